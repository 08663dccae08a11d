import { z } from 'zod'
import { secondTime } from './common.ts'

const fileUser = z.string().optional().meta({
  description: 'Whose rights it has, and who owns what is made; default the user of the sandbox. `root` may do all',
})
export const pathQuery = z.object({
  path: z.string().min(1).meta({ description: 'Absolute path in the sandbox' }),
  user: fileUser,
})

export const entries = z.array(
  z
    .object({
      name: z.string().meta({ description: 'Name in its directory' }),
      isDir: z.boolean().meta({ description: 'Whether it is a directory' }),
      size: z.number().meta({ description: 'Bytes' }),
      path: z.string().meta({ description: 'Absolute path in the sandbox' }),
      mode: z.int().meta({ description: 'Permission bits' }),
      modifiedAt: secondTime.meta({ description: 'When its content last changed' }),
    })
    .meta({ id: 'DirectoryEntry' }),
)

const signing = {
  expiresIn: z.int().min(1).max(86_400).default(3600).meta({ description: 'Seconds' }),
  maxBytes: z.int().min(1).optional().meta({ description: 'Bounds an upload' }),
}
export const signFile = z.object({
  path: z.string().min(1).meta({ description: 'Absolute path in the sandbox' }),
  user: fileUser,
  ...signing,
})
export const signArchive = z.object(signing)

export const signedUrl = z
  .object({
    url: z.string().meta({ description: 'An address that needs no key' }),
    expiresAt: secondTime.meta({ description: 'When it stops working' }),
  })
  .meta({ id: 'SignedUrl' })

/** Its signature is checked, not its shape: any fault is 403. */
const signature = {
  expires: z.string().optional().meta({ description: 'Unix seconds' }),
  signature: z.string().optional().meta({ description: 'Hex HMAC-SHA256' }),
  maxBytes: z.string().optional().meta({ description: 'Longest upload in bytes' }),
}
export const signedQuery = z.object({
  path: z.string().optional().meta({ description: 'Absolute path in the sandbox' }),
  user: z.string().optional().meta({ description: 'Whose rights it has' }),
  ...signature,
})
export const signedArchiveQuery = z.object({
  org: z.string().optional().meta({ description: 'The organisation that gets the image' }),
  ...signature,
})
