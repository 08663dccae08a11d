import { z } from 'zod'
import { port, secondTime } from './common.ts'

/** `{}`, which the SDK sends when it is given nothing, says as little as an absent value. */
export const authConfig = z.object({
  scheme: z.literal('bearer').optional(),
  token: z.string().optional().meta({ description: '`auto` (default), or 16 and more characters' }),
})

export const putPreview = z.object({
  port,
  domain: z.string().nullish().meta({ description: 'A host name of your own; `null` removes it' }),
  authConfig: authConfig.nullish().meta({ description: 'The token to demand; `null` demands none' }),
})

export const preview = z
  .object({
    id: z.string(),
    sandboxId: z.string(),
    orgId: z.string(),
    hostname: z.string(),
    customHostname: z.string().optional(),
    port: z.int(),
    sslStatus: z.enum(['pending', 'active', 'failed', 'disabled']),
    authConfig: z.object({ scheme: z.literal('bearer').optional() }),
    createdAt: secondTime,
    previewAuthToken: z.string().optional().meta({ description: 'Shown this once' }),
  })
  .meta({ id: 'Preview' })

export const rotated = z
  .object({ previewAuthToken: z.string(), scheme: z.literal('bearer') })
  .meta({ id: 'RotatedToken' })
