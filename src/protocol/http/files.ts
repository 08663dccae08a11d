import { z } from 'zod'
import { secondTime } from './common.ts'

const fileUser = z
  .string()
  .optional()
  .describe('Whose rights it has, and who owns what is made; default the user of the sandbox. `root` may do all')
export const pathQuery = z.object({
  path: z.string().min(1).describe('Absolute path in the sandbox'),
  user: fileUser,
})

export const entries = z.array(
  z
    .object({
      name: z.string().describe('Name in its directory'),
      isDir: z.boolean().describe('Whether it is a directory'),
      size: z.number().describe('Bytes'),
      path: z.string().describe('Absolute path in the sandbox'),
      mode: z.int().describe('Permission bits'),
      modifiedAt: secondTime.describe('When its content last changed'),
    })
    .meta({ id: 'DirectoryEntry' }),
)

const signing = {
  expiresIn: z.int().min(1).max(86_400).default(3600).describe('Seconds'),
  maxBytes: z.int().min(1).optional().describe('Bounds an upload'),
}
export const signFile = z.object({
  path: z.string().min(1).describe('Absolute path in the sandbox'),
  user: fileUser,
  ...signing,
})
export const signArchive = z.object(signing)

export const signedUrl = z
  .object({
    url: z.string().describe('An address that needs no key'),
    expiresAt: secondTime.describe('When it stops working'),
  })
  .meta({ id: 'SignedUrl' })

/** Its signature is checked, not its shape: any fault is 403. */
const signature = {
  expires: z.string().optional().describe('Unix seconds'),
  signature: z.string().optional().describe('Hex HMAC-SHA256'),
  maxBytes: z.string().optional().describe('Longest upload in bytes'),
}
export const signedQuery = z.object({
  path: z.string().optional().describe('Absolute path in the sandbox'),
  user: z.string().optional().describe('Whose rights it has'),
  ...signature,
})
export const signedArchiveQuery = z.object({
  org: z.string().optional().describe('The organisation that gets the image'),
  ...signature,
})
