import type { z } from 'zod'
import { files as wire } from '../../protocol/http/index.ts'
import { assertInput, type DirectoryEntry, type FileChange, type FileOperation } from '../../sandbox/index.ts'
import { apiOrigin } from '../server/config.ts'
import { streamEvents } from '../server/event-stream.ts'
import { receiveFile, sendFile } from '../server/file-body.ts'
import { heartbeat, type Encoding } from '../server/event-writer.ts'
import { jsonElements, JsonText } from '../server/json-text.ts'
import { noContent, routesOf, wakingErrors, type Answer, type Call } from '../server/route.ts'
import { watchCaps } from '../server/streams.ts'
import { reportedSeconds, seconds } from '../server/time.ts'
import { pathOfBase64 } from '../../lib/byte-path.ts'
import { defined } from '../../lib/defined.ts'

const route = routesOf('Files', 'sandbox:exec')
const rangeHeaders = { 'Accept-Ranges': '`bytes`', 'Content-Length': 'Bytes of the body' }

export const fileAnswers = {
  200: {
    description: 'The bytes; the type goes by the extension',
    content: '*/*',
    example: 'hello\n',
    headers: rangeHeaders,
  },
  206: {
    description: 'The part that `Range` asked for',
    content: '*/*',
    example: 'ell',
    headers: { ...rangeHeaders, 'Content-Range': 'Which part' },
  },
  416: { description: 'The file is shorter than the range', content: '*/*', headers: { 'Content-Range': 'The size' } },
}

const path = '/api/sandboxes/:id/files'
const read = {
  scope: 'sandbox:read',
  lenient: true,
  query: wire.pathQuery,
  errors: ['forbidden', ...wakingErrors],
} as const
const signing = {
  tag: 'Signed URLs',
  lenient: true,
  body: wire.signFile,
  answers: { 200: { description: 'The URL', body: wire.signedUrl } },
  errors: ['sandbox_stopped'],
} as const
const signed = {
  tag: 'Signed URLs',
  auth: 'signed',
  lenient: true,
  query: wire.signedQuery,
  errors: ['forbidden', 'signature_invalid', 'signature_expired', ...wakingErrors],
} as const
const upload = {
  description:
    'The body is taken as raw bytes whatever its type. Parents are made. A broken upload leaves the old file.',
  body: 'raw',
  bodyExample: 'hello\n',
  answers: { 204: { description: 'Written' } },
} as const

export const fileRoutes = [
  route('GET', path, {
    id: 'readFile',
    audited: true,
    ...read,
    summary: 'Read a file',
    answers: fileAnswers,
    handle: (call) => sendFile(call, fileOf(call)),
  }),
  route('HEAD', path, {
    id: 'statFile',
    ...read,
    summary: 'Read size and type of a file',
    answers: { 200: { description: 'Headers alone', headers: rangeHeaders } },
    handle: (call) => sendFile(call, fileOf(call)),
  }),
  route('PUT', path, {
    id: 'writeFile',
    ...read,
    scope: 'sandbox:exec',
    ...upload,
    summary: 'Write a file',
    errors: [...read.errors, 'too_large'],
    async handle(call) {
      await receiveFile(call, fileOf(call))
      return noContent
    },
  }),
  route('DELETE', path, {
    id: 'deleteFile',
    ...read,
    scope: 'sandbox:exec',
    summary: 'Remove a file, or a directory with all below it',
    answers: { 204: { description: 'It is gone' } },
    answer: ({ orgId, params, query, deps }) =>
      deps.sandboxes.files.remove(orgId, params.id, pathOf(query), defined({ user: query.user })),
  }),
  route('GET', `${path}/stat`, {
    id: 'inspectFile',
    ...read,
    summary: 'Look at a file, directory or link',
    description: 'A link is told as such. `PATH/.` leads to the directory behind one.',
    answers: { 200: { description: 'What it is', body: wire.fileInfo } },
    async answer({ orgId, params, query, deps }) {
      const user = defined({ user: query.user })
      const found = await deps.sandboxes.files.inspect(orgId, params.id, pathOf(query), user)
      const { mode, modifiedAt, ...entry } = found
      return { ...entry, mode: mode.toString(8).padStart(4, '0'), modifiedAt: reportedSeconds(modifiedAt) }
    },
  }),
  route('POST', `${path}/move`, {
    id: 'moveFile',
    summary: 'Move or rename a file, directory or link',
    description:
      'One rename where the file system can; else a copy takes the new place at once and the old one is removed.',
    body: wire.moveFile,
    answers: { 204: { description: 'It has its new path' } },
    errors: read.errors,
    answer({ orgId, params, body, deps }) {
      const from = pathOf({ path: body.from, pathBase64: body.fromBase64 }, 'from')
      const to = pathOf({ path: body.to, pathBase64: body.toBase64 }, 'to')
      const { overwrite, user } = body
      return deps.sandboxes.files.move(orgId, params.id, from, to, defined({ overwrite, user }))
    },
  }),
  route('GET', `${path}/watch`, {
    id: 'watchFiles',
    ...read,
    auth: 'key_or_query',
    query: wire.watchQuery,
    summary: 'Follow what changes in a directory',
    description:
      'Server-sent events whose `data` is one JSON object, a [`FileChange`](#/components/schemas/FileChange), from now on. A change may be told ' +
      'twice in a directory that is new. A watch wakes the sandbox and does not keep it awake: with its hibernation the stream ends, ' +
      'behind `ended`. A sandbox has at most 16 watches and 16 384 watched directories.',
    answers: {
      200: {
        description: 'The stream',
        content: 'text/event-stream',
        example: 'data: {"type":"created","path":"/workspace/hello.txt"}\n\n',
      },
    },
    errors: [...read.errors, 'too_large'],
    async handle(call) {
      const { orgId, params, query, deps } = call
      const options = { caps: watchCaps(call, params.id), about: { sandboxId: params.id } }
      return await streamEvents(call, options, async (signal, send) => {
        const watching = { recursive: query.recursive === 'true', signal, ...defined({ user: query.user }) }
        return await send(await deps.sandboxes.files.watch(orgId, params.id, pathOf(query), watching), changeEncoding)
      })
    },
  }),
  route('GET', `${path}/list`, {
    id: 'listDirectory',
    ...read,
    query: wire.listQuery,
    summary: 'List a directory',
    answers: { 200: { description: 'Its entries', body: wire.entries } },
    async answer({ orgId, params, query, deps }) {
      const entries = await deps.sandboxes.files.list(orgId, params.id, pathOf(query), defined({ user: query.user }))
      return new JsonText(() => entryTexts(entries))
    },
  }),
  route('POST', `${path}/mkdir`, {
    id: 'makeDirectory',
    ...read,
    scope: 'sandbox:exec',
    query: wire.makeQuery,
    summary: 'Make a directory and its parents',
    answers: { 204: { description: 'It exists' } },
    answer: ({ orgId, params, query, deps }) =>
      deps.sandboxes.files.mkdir(orgId, params.id, pathOf(query), defined({ user: query.user })),
  }),
  route('POST', `${path}/upload-url`, {
    id: 'createUploadUrl',
    ...signing,
    summary: 'Make a URL that uploads one file without a key',
    handle: (call) => signedUrl(call, 'upload'),
  }),
  route('POST', `${path}/download-url`, {
    id: 'createDownloadUrl',
    ...signing,
    scope: 'sandbox:read',
    summary: 'Make a URL that downloads one file without a key',
    handle: (call) => signedUrl(call, 'download'),
  }),
  route('PUT', `${path}/upload`, {
    id: 'uploadSignedFile',
    ...signed,
    ...upload,
    summary: 'Upload with a signed URL',
    errors: [...signed.errors, 'too_large'],
    async handle(call) {
      const { params, query, deps } = call
      const { orgId, bytesMax } = await deps.sandboxes.files.verify('upload', params.id, query)
      await receiveFile(call, { orgId, path: query.path ?? '', ...defined({ bytesMax, user: query.user }) })
      return noContent
    },
  }),
  route('GET', `${path}/download`, {
    id: 'downloadSignedFile',
    audited: true,
    ...signed,
    summary: 'Download with a signed URL',
    answers: fileAnswers,
    handle: download,
  }),
  route('HEAD', `${path}/download`, {
    id: 'statSignedFile',
    ...signed,
    summary: 'Read size and type with a signed URL',
    answers: { 200: { description: 'Headers alone' } },
    handle: download,
  }),
]

/** Changes have no numbers: a client that comes back reads the folder again. */
const changeEncoding: Encoding<readonly FileChange[]> = {
  encode: (changes) => Buffer.from(changes.map((change) => `data: ${JSON.stringify(change)}\n\n`).join('')),
  heartbeat: () => heartbeat,
}

interface GivenPath {
  path?: string | undefined
  pathBase64?: string | undefined
}

/** As in `lib/byte-path.ts`. Throws `invalid_request` that names the field. */
function pathOf({ path: text, pathBase64 }: GivenPath, field = 'path'): string {
  if (pathBase64 === undefined) {
    assertInput(text !== undefined, field, 'is required')
    return text
  }
  assertInput(text === undefined, `${field}Base64`, `excludes ${field}`)
  const found = pathOfBase64(pathBase64)
  assertInput(found !== undefined, `${field}Base64`, 'must be base64, in a URL with its + as %2B')
  return found
}

function fileOf({ orgId, query }: { orgId: string; query: z.output<typeof wire.pathQuery> }) {
  return { orgId, path: pathOf(query), ...defined({ user: query.user }) }
}

/** Yields the text of one entry at a time: a directory may have a hundred thousand. */
function* entryTexts(entries: readonly DirectoryEntry[]): Generator<string> {
  yield '['
  yield* jsonElements(entries, ({ modifiedAt, ...rest }) => {
    const entry = { ...rest, modifiedAt: reportedSeconds(modifiedAt) }
    return [JSON.stringify(entry satisfies z.output<typeof wire.entries>[number])]
  })
  yield ']'
}

async function download(call: Call<{ id: string }, z.output<typeof wire.signedQuery>>): Promise<Answer | undefined> {
  const { params, query, deps } = call
  const { orgId } = await deps.sandboxes.files.verify('download', params.id, query)
  return await sendFile(call, { orgId, path: query.path ?? '', ...defined({ user: query.user }), isAttachment: true })
}

async function signedUrl(
  { orgId, params, body, request, deps }: Call<{ id: string }, unknown, z.output<typeof wire.signFile>>,
  operation: FileOperation,
): Promise<Answer> {
  const input = {
    operation,
    path: body.path,
    expiresInSeconds: body.expiresIn,
    ...defined({ bytesMax: body.maxBytes, user: body.user }),
  }
  const { query, expiresAt } = await deps.sandboxes.files.sign(orgId, params.id, input)
  const url = `${apiOrigin(deps.config, request)}/api/sandboxes/${params.id}/files/${operation}?${query}`
  return { statusCode: 200, body: { url, expiresAt: seconds(expiresAt) } }
}
