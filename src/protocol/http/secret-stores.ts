import { z } from 'zod'
import { milliTime } from './common.ts'
import { at, ids, showExample } from './examples.ts'

const hosts = z.array(z.string().max(260)).max(1000)
const nameText = 'Its name, by which sandboxes are given it; unique in the organisation'
const egressAllowlistText =
  'Host names, `*.name` for all below it, or `*`: a sandbox with the store reaches nothing else. Empty: no restriction'
const allowedHostsText =
  'Where the value is sent: host names, `*.name` or `*`. Empty: where the egress of the sandbox is a list, to what that names; elsewhere nowhere'
const name = z.string().max(128).describe(nameText)
const egressAllowlist = hosts.describe(egressAllowlistText)
const isDefault = z
  .boolean()
  .describe('Whether every sandbox of the organisation has it, beneath the stores that it names')
export const allowedHosts = hosts.describe(allowedHostsText)
const places = z
  .array(z.enum(['header', 'basic', 'body', 'query', 'path']))
  .describe('Parts of a request in which the value is put in place of the placeholder')
const placeholder = z
  .string()
  .max(256)
  .describe(
    'How placeholders look: `sealed`, a known shape such as `openai`, `github` or `jwt`, or a pattern such as `key-{32}` or `{hex:40}`',
  )
const sign = z.strictObject({
  type: z.literal('aws-sigv4').describe('Signature Version 4 of AWS'),
  accessKeyId: z
    .string()
    .max(64)
    .optional()
    .describe('Name of the secret that holds the id of the access key. Default `AWS_ACCESS_KEY_ID`'),
})

export const createSecretStore = z.object({
  name,
  egressAllowlist: hosts.nullish().describe(egressAllowlistText),
  isDefault: isDefault.optional(),
})
showExample(createSecretStore, { name: 'production', egressAllowlist: ['api.example.com', '*.internal.example.com'] })

export const updateSecretStore = z.object({
  name: z.string().max(128).nullish().describe(nameText),
  egressAllowlist: hosts.nullish().describe(egressAllowlistText),
  isDefault: isDefault.optional(),
})
showExample(updateSecretStore, { egressAllowlist: ['api.example.com'] })

export const secretStore = z
  .object({
    id: z.string().describe('Id of the store, `ss-…`'),
    orgId: z.string().describe('Id of the organisation'),
    name,
    egressAllowlist,
    isDefault,
    createdAt: milliTime.describe('When it was made'),
    updatedAt: milliTime.describe('When it, or a secret of it, was changed'),
  })
  .meta({
    id: 'SecretStore',
    examples: [
      {
        ...{ id: ids.secretStore, orgId: ids.org, name: 'production', egressAllowlist: ['api.example.com'] },
        ...{ isDefault: false, createdAt: at.millisecond, updatedAt: at.millisecond },
      },
    ],
  })

/** How a secret is used, in a store or in a creation. */
export const secretRules = {
  in: places.optional().describe('Parts of a request in which the value is put. Default `header`, `basic`, `body`'),
  placeholder: placeholder.optional().describe('How placeholders look. Default `sealed`'),
  sign: sign.optional().describe('The value signs requests and is not sent itself'),
}

export const setSecret = z.object({
  value: z.string().describe('The value: at least one byte and at most 64 KiB, without NUL. No answer has it'),
  allowedHosts: hosts.nullish().describe(allowedHostsText),
  ...secretRules,
})
showExample(setSecret, { value: 'sk-the-value', allowedHosts: ['api.openai.com'], placeholder: 'openai' })

export const secretSet = z
  .object({
    name: z.string().describe('Name of the secret'),
    status: z.literal('set').describe('It is stored'),
    refreshed: z.int().describe('Running sandboxes that use it from now on'),
    failures: z
      .array(
        z.object({
          sandboxId: z.string().describe('Id of the sandbox'),
          error: z.string().describe('Why it goes on as before'),
        }),
      )
      .describe('Running sandboxes that could not be refreshed, at most 100'),
    isComplete: z
      .boolean()
      .describe('False: some are still being refreshed; the call answers after 15 s at the latest'),
  })
  .meta({
    id: 'SecretSet',
    examples: [{ name: 'OPENAI_API_KEY', status: 'set', refreshed: 0, failures: [], isComplete: true }],
  })

export const secret = z
  .object({
    id: z.string().describe('Id of the secret'),
    storeId: z.string().describe('Id of its store'),
    name: z.string().describe('Its name: that of the variable in which a sandbox has its placeholder'),
    allowedHosts,
    in: places,
    placeholder,
    sign: sign.optional().describe('How requests are signed with it'),
    createdAt: milliTime.describe('When it was made'),
    updatedAt: milliTime.describe('When its value was set'),
  })
  .meta({
    id: 'Secret',
    examples: [
      {
        ...{ id: ids.secret, storeId: ids.secretStore, name: 'OPENAI_API_KEY', allowedHosts: ['api.openai.com'] },
        ...{ in: ['header', 'basic', 'body'], placeholder: 'openai' },
        ...{ createdAt: at.millisecond, updatedAt: at.millisecond },
      },
    ],
  })

export const secretsKeyRotated = z
  .object({
    keyId: z.string().describe('Id of the key that seals from now on'),
    resealed: z.int().describe('Values and keys that were sealed anew'),
    unreadable: z.int().describe('Those whose key is missing; they are kept as they are'),
    formerKeys: z
      .int()
      .describe('Former keys that are still in the file: each goes within some minutes, when nothing needs it'),
  })
  .meta({ id: 'SecretsKeyRotated', examples: [{ keyId: '4f1a9c07', resealed: 12, unreadable: 0, formerKeys: 1 }] })
