import { z } from 'zod'
import { scopes } from '../organisation.ts'
import { milliTime } from './common.ts'
import { ids } from './examples.ts'

export const whoami = z
  .object({
    org_id: z.string().describe('Id of the organisation of the key; empty for the operator'),
    org_name: z.string().nullable().describe('Its name'),
    user_id: z.null().describe('Keys are of organisations alone'),
    email: z.null().describe('Keys are of organisations alone'),
    key: z
      .object({
        id: z.string().describe('Id of the key, `key_…`, as events have it'),
        name: z.string().describe('Its name'),
        scopes: z.array(z.enum(scopes)).nullable().describe('What it may do; `null`: all'),
        namePrefix: z.string().nullable().describe('Names of what it sees and makes begin so'),
        expiresAt: milliTime.nullable().describe('When it ends'),
      })
      .describe('The key; of the operator, which has no record, the fields are empty'),
    isOperator: z.boolean().describe('Whether it is the key of the operator, which acts for no organisation'),
  })
  .meta({
    id: 'Whoami',
    examples: [
      {
        org_id: ids.org,
        org_name: 'default',
        user_id: null,
        email: null,
        key: { id: ids.key, name: 'default', scopes: null, namePrefix: null, expiresAt: null },
        isOperator: false,
      },
    ],
  })
