import { z } from 'zod'
import { port, secondTime } from './common.ts'

/** The SDK sends `{}` for an absent value. */
export const authConfig = z.object({
  scheme: z.literal('bearer').optional().meta({ description: 'The token is sent as `Authorization: Bearer`' }),
  token: z.string().optional().meta({ description: '`auto` (default), or 16 and more characters' }),
})

export const putPreview = z.object({
  port: port.meta({ description: 'Port in the sandbox' }),
  domain: z
    .string()
    .nullish()
    .meta({ description: 'A host name of your own, which leads here once its TXT record is seen; `null` removes it' }),
  authConfig: authConfig.nullish().meta({ description: 'The token to demand; `null` demands none' }),
})

export const preview = z
  .object({
    id: z.string().meta({ description: 'Id of the preview, `pv-…`' }),
    sandboxId: z.string().meta({ description: 'The sandbox that serves it' }),
    orgId: z.string().meta({ description: 'The organisation that owns it' }),
    hostname: z.string().meta({ description: 'Host name under which the port answers' }),
    customHostname: z.string().optional().meta({ description: 'Host name of your own that leads here too' }),
    verification: z
      .object({
        name: z.string().meta({ description: 'Name of the TXT record' }),
        value: z.string().meta({ description: 'Its text' }),
      })
      .optional()
      .meta({ description: 'With a domain: the TXT record that proves it to be yours' }),
    port: z.int().meta({ description: 'Port in the sandbox' }),
    sslStatus: z.enum(['pending', 'active', 'failed', 'disabled']).meta({
      description: '`pending` until the TXT record of the domain is seen, then until a certificate is served',
    }),
    authConfig: z
      .object({
        scheme: z.literal('bearer').optional().meta({ description: 'The token is sent as `Authorization: Bearer`' }),
      })
      .meta({ description: 'Without `scheme`, it has no token of its own' }),
    createdAt: secondTime.meta({ description: 'When it was declared' }),
    previewAuthToken: z.string().optional().meta({ description: 'Shown this once' }),
  })
  .meta({ id: 'Preview' })

export const rotated = z
  .object({
    previewAuthToken: z.string().meta({ description: 'The new token' }),
    scheme: z.literal('bearer').meta({ description: 'The token is sent as `Authorization: Bearer`' }),
  })
  .meta({ id: 'RotatedToken' })
