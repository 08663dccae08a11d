import { z } from 'zod'
import { port, secondTime } from './common.ts'

/** The SDK sends `{}` for an absent value. */
export const authConfig = z.object({
  scheme: z.literal('bearer').optional(),
  token: z.string().optional().meta({ description: '`auto` (default), or 16 and more characters' }),
})

export const putPreview = z.object({
  port,
  domain: z
    .string()
    .nullish()
    .meta({ description: 'A host name of your own, which leads here once its TXT record is seen; `null` removes it' }),
  authConfig: authConfig.nullish().meta({ description: 'The token to demand; `null` demands none' }),
})

export const preview = z
  .object({
    id: z.string(),
    sandboxId: z.string(),
    orgId: z.string(),
    hostname: z.string(),
    customHostname: z.string().optional(),
    verification: z
      .object({ name: z.string(), value: z.string() })
      .optional()
      .meta({ description: 'With a domain: the TXT record that proves it to be yours' }),
    port: z.int(),
    sslStatus: z.enum(['pending', 'active', 'failed', 'disabled']).meta({
      description: '`pending` until the TXT record of the domain is seen, then until a certificate is served',
    }),
    authConfig: z.object({ scheme: z.literal('bearer').optional() }),
    createdAt: secondTime,
    previewAuthToken: z.string().optional().meta({ description: 'Shown this once' }),
  })
  .meta({ id: 'Preview' })

export const rotated = z
  .object({ previewAuthToken: z.string(), scheme: z.literal('bearer') })
  .meta({ id: 'RotatedToken' })
