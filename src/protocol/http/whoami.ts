import { z } from 'zod'
import { ids } from './examples.ts'

export const whoami = z
  .object({
    org_id: z.string().describe('Id of the organisation of the key'),
    org_name: z.string().nullable().describe('Its name'),
    user_id: z.null().describe('Keys are of organisations alone'),
    email: z.null().describe('Keys are of organisations alone'),
    key: z.object({ id: z.string().describe('Id of the key, `key_…`, as events have it') }).describe('The key'),
  })
  .meta({
    id: 'Whoami',
    examples: [{ org_id: ids.org, org_name: 'default', user_id: null, email: null, key: { id: ids.key } }],
  })
