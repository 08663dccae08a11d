import { z } from 'zod'
import { InvalidRequestError, Sandbox } from '../../../sdk/src/index.ts'
import { reads, removes, sets, tool } from '../tool.ts'
import { firstPart, path, sandboxId } from './common.ts'

const encoding = z.enum(['utf8', 'base64'])
const user = z.string().optional().describe('Whose rights; default the user of the sandbox')
const entriesMax = 1000
/** A larger file is for other ways. */
const readBytesMax = 8 * 1024 * 1024

export const fileTools = [
  tool({
    name: 'read_file',
    title: 'Read a file',
    description: 'Read a file of a sandbox. Bytes that are no text come as base64. Long files are cut.',
    input: z.object({
      sandbox_id: sandboxId,
      path,
      user,
      offset: z.int().min(0).optional().describe('First line to return, from 0'),
      limit: z.int().min(1).optional().describe('Number of lines'),
    }),
    output: z.object({
      sandbox_id: z.string(),
      path: z.string(),
      content: z.string(),
      encoding,
      size: z.int(),
      truncated: z.boolean().optional(),
    }),
    hints: reads,
    async run({ sandbox_id, path: file, user: as, offset = 0, limit }, { client, signal }) {
      const { files } = await Sandbox.connect(sandbox_id, { client, signal })
      const size = await files.size(file, { user: as, signal })
      if (size !== undefined && size > readBytesMax) {
        throw new InvalidRequestError(
          `${file} has ${size} bytes, and at most ${readBytesMax} can be read: take a part with run`,
        )
      }
      const bytes = await files.read(file, { user: as, signal })
      const text = textOf(bytes)
      const lines = text?.split('\n').slice(offset, limit === undefined ? undefined : offset + limit)
      const wanted = firstPart(lines?.join('\n') ?? Buffer.from(bytes).toString('base64'))
      return {
        sandbox_id,
        path: file,
        content: wanted.text,
        encoding: text === undefined ? ('base64' as const) : ('utf8' as const),
        size: bytes.length,
        ...(wanted.isCut ? { truncated: true } : {}),
      }
    },
  }),
  tool({
    name: 'write_file',
    title: 'Write a file',
    description: 'Create or overwrite a file of a sandbox, with the folders above it.',
    input: z.object({ sandbox_id: sandboxId, path, user, content: z.string(), encoding: encoding.optional() }),
    output: z.object({ sandbox_id: z.string(), path: z.string(), size: z.int() }),
    hints: { ...removes, destructiveHint: true },
    async run({ sandbox_id, path: file, user: as, content, encoding: given = 'utf8' }, { client, signal }) {
      const { files } = await Sandbox.connect(sandbox_id, { client, signal })
      const bytes = new Uint8Array(Buffer.from(content, given))
      await files.write(file, bytes, { user: as, signal })
      return { sandbox_id, path: file, size: bytes.length }
    },
  }),
]

export const moreFileTools = [
  tool({
    name: 'list_files',
    title: 'List a folder',
    description: `List a folder of a sandbox, at most ${entriesMax} entries.`,
    input: z.object({ sandbox_id: sandboxId, path, user }),
    output: z.object({
      sandbox_id: z.string(),
      path: z.string(),
      entries: z.array(z.object({ name: z.string(), is_dir: z.boolean(), size: z.number() })),
      truncated: z.boolean().optional(),
    }),
    hints: reads,
    async run({ sandbox_id, path: folder, user: as }, { client, signal }) {
      const { files } = await Sandbox.connect(sandbox_id, { client, signal })
      const entries = await files.list(folder, { user: as, signal })
      const some = entries.slice(0, entriesMax).map(({ name, isDir, size }) => ({ name, is_dir: isDir, size }))
      return { sandbox_id, path: folder, entries: some, ...(some.length < entries.length ? { truncated: true } : {}) }
    },
  }),
  tool({
    name: 'make_dir',
    title: 'Make a folder',
    description: 'Make a folder in a sandbox, with those above it.',
    input: z.object({ sandbox_id: sandboxId, path, user }),
    output: z.object({ sandbox_id: z.string(), path: z.string() }),
    hints: sets,
    async run({ sandbox_id, path: folder, user: as }, { client, signal }) {
      const { files } = await Sandbox.connect(sandbox_id, { client, signal })
      await files.makeDir(folder, { user: as, signal })
      return { sandbox_id, path: folder }
    },
  }),
  tool({
    name: 'remove_file',
    title: 'Remove a file or folder',
    description: 'Remove a file of a sandbox, or a folder with all that it holds.',
    input: z.object({ sandbox_id: sandboxId, path, user }),
    output: z.object({ sandbox_id: z.string(), path: z.string() }),
    hints: removes,
    async run({ sandbox_id, path: file, user: as }, { client, signal }) {
      const { files } = await Sandbox.connect(sandbox_id, { client, signal })
      await files.remove(file, { user: as, signal })
      return { sandbox_id, path: file }
    },
  }),
]

/** Undefined for bytes that are no UTF-8, or hold what no text has. */
function textOf(bytes: Uint8Array): string | undefined {
  if (bytes.includes(0)) return undefined
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    return undefined
  }
}
