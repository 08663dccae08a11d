import { z } from 'zod'
import { scopes } from '../organisation.ts'
import { milliTime } from './common.ts'
import { at, ids, showExample } from './examples.ts'

const scope = z.enum(scopes)

export const createKey = z.object({
  name: z.string().max(128).optional().describe('For people; default empty'),
  scopes: z.array(scope).max(scopes.length).optional().describe('What it may do; left out: all'),
  expiresAt: z.iso.datetime({ offset: true }).optional().describe('When it ends; left out: never'),
  namePrefix: z
    .string()
    .optional()
    .describe(
      'It sees and makes only what has a name that begins so, and what it has made itself; 1 to 32 of `a–z`, `0–9` and `-`',
    ),
  sandboxesMax: z.int().min(0).max(1_000_000).optional().describe('Sandboxes of it that are not stopped'),
})
showExample(createKey, { name: 'ci', scopes: ['sandbox:read', 'sandbox:write', 'sandbox:exec'], namePrefix: 'ci-' })

const keyFields = {
  id: z.string().describe('Id of the key, `key_…`, as events and the audit have it'),
  orgId: z.string().describe('Its organisation'),
  name: z.string().describe('Its name'),
  keyPrefix: z.string().nullable().describe('The first characters of the secret'),
  scopes: z.array(scope).nullable().describe('What it may do; `null`: all'),
  expiresAt: milliTime.nullable().describe('When it ends'),
  lastUsedAt: milliTime.nullable().describe('When it was used last, to a minute'),
  namePrefix: z.string().nullable().describe('Names of what it sees and makes begin so'),
  sandboxesMax: z.int().nullable().describe('Sandboxes of it that are not stopped'),
  madeBy: z
    .string()
    .nullable()
    .describe('The key that made it, with which it ends; `null`: the operator or the server'),
  isDefault: z.boolean().describe('Whether the first start made it, or `ATOLL_API_KEY` says it'),
  createdAt: milliTime.describe('When it was made'),
}

const example = {
  ...{ id: ids.key, orgId: ids.org, name: 'ci', keyPrefix: 'atoll_3f9a1c7e', scopes: null },
  ...{ expiresAt: null, lastUsedAt: at.millisecond, namePrefix: 'ci-', sandboxesMax: null, madeBy: null },
  ...{ isDefault: false, createdAt: at.millisecond },
}

export const key = z.object(keyFields).meta({ id: 'ApiKey', examples: [example] })

export const createdKey = z
  .object({ ...keyFields, key: z.string().describe('The secret, shown this once') })
  .meta({ id: 'CreatedApiKey', examples: [{ ...example, key: 'atoll_3f9a1c7e…' }] })
