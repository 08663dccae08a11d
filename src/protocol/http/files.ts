import { z } from 'zod'
import { secondTime } from './common.ts'

export const pathQuery = z.object({ path: z.string().min(1).meta({ description: 'Absolute path in the sandbox' }) })

export const entries = z.array(
  z
    .object({
      name: z.string(),
      isDir: z.boolean(),
      size: z.number(),
      path: z.string(),
      mode: z.int().meta({ description: 'Permission bits' }),
      modifiedAt: secondTime,
    })
    .meta({ id: 'DirectoryEntry' }),
)

export const signFile = z.object({
  path: z.string().min(1),
  expiresIn: z.int().min(1).max(86_400).default(3600).meta({ description: 'Seconds' }),
  maxBytes: z.int().min(1).optional().meta({ description: 'Bounds an upload' }),
})

export const signedUrl = z.object({ url: z.string(), expiresAt: secondTime }).meta({ id: 'SignedUrl' })

/** Its signature is checked, not its shape: any fault is 403. */
export const signedQuery = z.object({
  path: z.string().optional(),
  expires: z.string().optional().meta({ description: 'Unix seconds' }),
  signature: z.string().optional().meta({ description: 'Hex HMAC-SHA256' }),
  maxBytes: z.string().optional(),
})
