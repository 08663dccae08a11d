import type { z } from 'zod'
import { files as wire } from '../../protocol/http/index.ts'
import type { DirectoryEntry, FileOperation } from '../../sandbox/index.ts'
import { apiOrigin } from '../server/config.ts'
import { receiveFile, sendFile } from '../server/file-body.ts'
import { jsonElements, JsonText } from '../server/json-text.ts'
import { noContent, routesOf, wakingErrors, type Answer, type Call } from '../server/route.ts'
import { reportedSeconds, seconds } from '../server/time.ts'
import { defined } from '../../lib/defined.ts'

const route = routesOf('Files')
const rangeHeaders = { 'Accept-Ranges': '`bytes`', 'Content-Length': 'Bytes of the body' }

export const fileAnswers = {
  200: { description: 'The bytes; the type goes by the extension', content: '*/*', headers: rangeHeaders },
  206: {
    description: 'The part that `Range` asked for',
    content: '*/*',
    headers: { ...rangeHeaders, 'Content-Range': 'Which part' },
  },
  416: { description: 'The file is shorter than the range', content: '*/*', headers: { 'Content-Range': 'The size' } },
}

const path = '/api/sandboxes/:id/files'
const read = { lenient: true, query: wire.pathQuery, errors: ['forbidden', ...wakingErrors] } as const
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
  answers: { 204: { description: 'Written' } },
} as const

export const fileRoutes = [
  route('GET', path, {
    id: 'readFile',
    ...read,
    summary: 'Read a file',
    answers: fileAnswers,
    handle: (call) => sendFile(call, { orgId: call.orgId, ...defined(call.query) }),
  }),
  route('HEAD', path, {
    id: 'statFile',
    ...read,
    summary: 'Read size and type of a file',
    answers: { 200: { description: 'Headers alone', headers: rangeHeaders } },
    handle: (call) => sendFile(call, { orgId: call.orgId, ...defined(call.query) }),
  }),
  route('PUT', path, {
    id: 'writeFile',
    ...read,
    ...upload,
    summary: 'Write a file',
    errors: [...read.errors, 'too_large'],
    async handle(call) {
      await receiveFile(call, { orgId: call.orgId, ...defined(call.query) })
      return noContent
    },
  }),
  route('DELETE', path, {
    id: 'deleteFile',
    ...read,
    summary: 'Remove a file, or a directory with all below it',
    answers: { 204: { description: 'It is gone' } },
    answer: ({ orgId, params, query, deps }) =>
      deps.sandboxes.files.remove(orgId, params.id, query.path, defined({ user: query.user })),
  }),
  route('GET', `${path}/list`, {
    id: 'listDirectory',
    ...read,
    summary: 'List a directory',
    answers: { 200: { description: 'Its entries', body: wire.entries } },
    async answer({ orgId, params, query, deps }) {
      const entries = await deps.sandboxes.files.list(orgId, params.id, query.path, defined({ user: query.user }))
      return new JsonText(() => entryTexts(entries))
    },
  }),
  route('POST', `${path}/mkdir`, {
    id: 'makeDirectory',
    ...read,
    summary: 'Make a directory and its parents',
    answers: { 204: { description: 'It exists' } },
    answer: ({ orgId, params, query, deps }) =>
      deps.sandboxes.files.mkdir(orgId, params.id, query.path, defined({ user: query.user })),
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

/** Yields the text of one entry at a time: a directory may have a hundred thousand. */
function* entryTexts(entries: readonly DirectoryEntry[]): Generator<string> {
  yield '['
  yield* jsonElements(entries, ({ name, isDir, size, path: entryPath, mode, modifiedAt }) => {
    const entry = { name, isDir, size, path: entryPath, mode, modifiedAt: reportedSeconds(modifiedAt) }
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
