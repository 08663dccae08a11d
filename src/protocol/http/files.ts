import { z } from 'zod'
import { at, ids, showExample } from './examples.ts'
import { secondTime } from './common.ts'

const fileUser = z
  .string()
  .optional()
  .describe('Whose rights it has, and who owns what is made; default the user of the sandbox. `root` may do all')
const pathText = z.string().min(1).optional()
/** Its form is checked with the path. */
const pathBytes = z.string().max(8192).optional()
export const pathQuery = z.object({
  path: pathText.meta({ description: 'Absolute path in the sandbox', examples: ['/workspace/hello.txt'] }),
  pathBase64: pathBytes.describe('The path as bytes in base64, in place of `path`: for a name that is no UTF-8'),
  user: fileUser,
})
export const watchQuery = pathQuery.extend({
  path: pathText.meta({ description: 'Absolute path in the sandbox', examples: ['/workspace'] }),
  recursive: z.enum(['true', 'false']).optional().describe('With all folders below; default `false`'),
})
export const moveFile = z.object({
  from: pathText.describe('Absolute path of what is moved'),
  fromBase64: pathBytes.describe('The same as bytes in base64'),
  to: pathText.describe('Its new absolute path, in a folder that exists'),
  toBase64: pathBytes.describe('The same as bytes in base64'),
  overwrite: z.boolean().optional().describe('Replaces what is there; a folder only if it is empty. Default `false`'),
  user: fileUser,
})
showExample(moveFile, { from: '/workspace/hello.txt', to: '/workspace/moved.txt' })

const shownPath = {
  path: z.string().describe('Absolute path in the sandbox. A byte that is no UTF-8 is shown as `\\xff`'),
  pathBase64: z.string().optional().describe('The bytes of a path that is no UTF-8'),
}

export const fileInfo = z
  .object({
    ...shownPath,
    name: z.string().describe('Name in its directory'),
    type: z.enum(['file', 'directory', 'symlink', 'other']).describe('What it is; a link is not followed'),
    size: z.number().describe('Bytes'),
    mode: z.string().describe('Permission bits in octal digits, such as `0644`'),
    uid: z.int().describe('Number of the owner'),
    gid: z.int().describe('Number of the group'),
    user: z.string().optional().describe('Name of the owner, if it has one'),
    modifiedAt: secondTime.describe('When its content last changed'),
    target: z.string().optional().describe('Where a link leads'),
  })
  .meta({
    id: 'FileInfo',
    examples: [
      {
        path: '/workspace/hello.txt',
        name: 'hello.txt',
        type: 'file',
        size: 6,
        mode: '0644',
        uid: 0,
        gid: 0,
        modifiedAt: at.second,
      },
    ],
  })

export const fileChange = z
  .object({
    type: z
      .enum(['created', 'modified', 'removed', 'moved', 'lost', 'ended'])
      .describe('What happened. `lost`: changes were not seen, so read the folder again. `ended`: the last one'),
    path: shownPath.path.optional(),
    pathBase64: shownPath.pathBase64,
    isDir: z.boolean().optional().describe('Whether it is a directory'),
    from: z.string().optional().describe('The former path of what was moved'),
    fromBase64: z.string().optional().describe('The bytes of a former path that is no UTF-8'),
    reason: z
      .enum(['removed', 'moved', 'hibernated', 'stopped'])
      .optional()
      .describe('Why it ended: the folder is removed or moved, or the sandbox is'),
  })
  .meta({ id: 'FileChange' })

export const listQuery = pathQuery.extend({ path: pathQuery.shape.path.meta({ examples: ['/workspace'] }) })
export const makeQuery = pathQuery.extend({ path: pathQuery.shape.path.meta({ examples: ['/workspace/src'] }) })

export const entries = z.array(
  z
    .object({
      name: z.string().describe('Name in its directory'),
      isDir: z.boolean().describe('Whether it is a directory'),
      size: z.number().describe('Bytes'),
      ...shownPath,
      mode: z.int().describe('Permission bits'),
      modifiedAt: secondTime.describe('When its content last changed'),
    })
    .meta({
      id: 'DirectoryEntry',
      examples: [
        { name: 'hello.txt', isDir: false, size: 6, path: '/workspace/hello.txt', mode: 420, modifiedAt: at.second },
      ],
    }),
)

const signing = {
  expiresIn: z.int().min(1).max(86_400).default(3600).describe('Seconds'),
  maxBytes: z.int().min(1).optional().describe('Bounds an upload'),
}
export const signFile = z.object({
  path: z.string().min(1).max(4096).describe('Absolute path in the sandbox'),
  user: fileUser,
  ...signing,
})
showExample(signFile, { path: '/workspace/hello.txt', expiresIn: 600 })
export const signArchive = z.object(signing)
showExample(signArchive, { expiresIn: 600 })

export const signedUrl = z
  .object({
    url: z.string().describe('An address that needs no key'),
    expiresAt: secondTime.describe('When it stops working'),
  })
  .meta({
    id: 'SignedUrl',
    examples: [
      {
        url: `https://atoll.example.com/api/sandboxes/${ids.sandbox}/files/download?path=%2Fworkspace%2Fhello.txt&expires=1768473000&signature=5e0c…`,
        expiresAt: at.second,
      },
    ],
  })

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
