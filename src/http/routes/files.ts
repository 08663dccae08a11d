import type { FastifyRequest } from 'fastify'
import type { z } from 'zod'
import { files as wire } from '../../protocol/http/index.ts'
import type { FileOperation, SignFile } from '../../sandbox/index.ts'
import type { HttpDeps } from '../server/config.ts'
import { receiveFile, sendFile } from '../server/file-body.ts'
import { noContent, route, wakingErrors } from '../server/route.ts'
import type { Answer } from '../server/route.ts'
import { reportedSeconds, seconds } from '../server/time.ts'
import { defined } from '../../lib/defined.ts'

const tag = 'Files'
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

const read = {
  path: '/api/sandboxes/:id/files',
  tag,
  auth: 'key',
  query: wire.pathQuery,
  errors: wakingErrors,
} as const

const signing = {
  tag: 'Signed URLs',
  auth: 'key',
  body: wire.signFile,
  errors: ['not_found', 'sandbox_stopped'],
} as const
const signed = {
  tag: 'Signed URLs',
  auth: 'signed',
  query: wire.signedQuery,
  errors: ['signature_invalid', 'signature_expired', ...wakingErrors],
} as const

export const fileRoutes = [
  route({
    ...read,
    method: 'GET',
    summary: 'Read a file',
    answers: fileAnswers,
    handle: ({ orgId, params, query, request, reply, deps }) =>
      sendFile({ files: deps.sandboxes.files, orgId, sandboxId: params.id, path: query.path, request, reply }),
  }),
  route({
    ...read,
    method: 'HEAD',
    summary: 'Read size and type of a file',
    answers: { 200: { description: 'Headers alone', headers: rangeHeaders } },
    handle: ({ orgId, params, query, request, reply, deps }) =>
      sendFile({ files: deps.sandboxes.files, orgId, sandboxId: params.id, path: query.path, request, reply }),
  }),
  route({
    ...read,
    method: 'PUT',
    summary: 'Write a file',
    description:
      'The body is taken as raw bytes whatever its type. Parents are made. A broken upload leaves the old file.',
    body: 'raw',
    answers: { 204: { description: 'Written' } },
    errors: [...wakingErrors, 'too_large'],
    async handle({ orgId, params, query, request, deps, limits }) {
      await receiveFile({
        files: deps.sandboxes.files,
        orgId,
        sandboxId: params.id,
        path: query.path,
        request: request.raw,
        bytesMax: limits.uploadBytesMax,
      })
      return noContent
    },
  }),
  route({
    ...read,
    method: 'DELETE',
    summary: 'Remove a file, or a directory with all below it',
    answers: { 204: { description: 'It is gone' } },
    async handle({ orgId, params, query, deps }) {
      await deps.sandboxes.files.remove(orgId, params.id, query.path)
      return noContent
    },
  }),
  route({
    ...read,
    method: 'GET',
    path: '/api/sandboxes/:id/files/list',
    summary: 'List a directory',
    answers: { 200: { description: 'Its entries', body: wire.entries } },
    async handle({ orgId, params, query, deps }) {
      const entries = await deps.sandboxes.files.list(orgId, params.id, query.path)
      const body = entries.map(({ name, isDir, size, path, mode, modifiedAt }) => ({
        name,
        isDir,
        size,
        path,
        mode,
        modifiedAt: reportedSeconds(modifiedAt),
      })) satisfies z.output<typeof wire.entries>
      return { statusCode: 200, body }
    },
  }),
  route({
    ...read,
    method: 'POST',
    path: '/api/sandboxes/:id/files/mkdir',
    summary: 'Make a directory and its parents',
    answers: { 204: { description: 'It exists' } },
    async handle({ orgId, params, query, deps }) {
      await deps.sandboxes.files.mkdir(orgId, params.id, query.path)
      return noContent
    },
  }),
  route({
    ...signing,
    method: 'POST',
    path: '/api/sandboxes/:id/files/upload-url',
    summary: 'Make a URL that uploads one file without a key',
    answers: { 200: { description: 'The URL', body: wire.signedUrl } },
    handle: ({ orgId, params, body, request, deps }) =>
      signedAnswer(deps, request, orgId, params.id, signFile('upload', body)),
  }),
  route({
    ...signing,
    method: 'POST',
    path: '/api/sandboxes/:id/files/download-url',
    summary: 'Make a URL that downloads one file without a key',
    answers: { 200: { description: 'The URL', body: wire.signedUrl } },
    handle: ({ orgId, params, body, request, deps }) =>
      signedAnswer(deps, request, orgId, params.id, signFile('download', body)),
  }),
  route({
    ...signed,
    method: 'PUT',
    path: '/api/sandboxes/:id/files/upload',
    summary: 'Upload with a signed URL',
    description: 'The body is taken as raw bytes whatever its type. A broken upload leaves the old file.',
    body: 'raw',
    answers: { 204: { description: 'Written' } },
    errors: [...signed.errors, 'too_large'],
    async handle({ params, query, request, deps, limits }) {
      const { files } = deps.sandboxes
      const { orgId, bytesMax = limits.uploadBytesMax } = await files.verify('upload', params.id, query)
      await receiveFile({
        files,
        orgId,
        sandboxId: params.id,
        path: query.path ?? '',
        request: request.raw,
        bytesMax: Math.min(bytesMax, limits.uploadBytesMax),
      })
      return noContent
    },
  }),
  route({
    ...signed,
    method: 'GET',
    path: '/api/sandboxes/:id/files/download',
    summary: 'Download with a signed URL',
    answers: fileAnswers,
    handle: ({ params, query, request, reply, deps }) => download(deps, params.id, query, request, reply),
  }),
  route({
    ...signed,
    method: 'HEAD',
    path: '/api/sandboxes/:id/files/download',
    summary: 'Read size and type with a signed URL',
    answers: { 200: { description: 'Headers alone' } },
    handle: ({ params, query, request, reply, deps }) => download(deps, params.id, query, request, reply),
  }),
]

async function download(
  deps: HttpDeps,
  sandboxId: string,
  query: Parameters<HttpDeps['sandboxes']['files']['verify']>[2],
  request: FastifyRequest,
  reply: Parameters<typeof sendFile>[0]['reply'],
): Promise<Answer | undefined> {
  const { files } = deps.sandboxes
  const { orgId } = await files.verify('download', sandboxId, query)
  return await sendFile({ files, orgId, sandboxId, path: query.path ?? '', request, reply, isAttachment: true })
}

function signFile(
  operation: FileOperation,
  body: { path: string; expiresIn: number; maxBytes?: number | undefined },
): SignFile {
  return {
    operation,
    path: body.path,
    expiresInSeconds: body.expiresIn,
    ...defined({ bytesMax: body.maxBytes }),
  }
}

async function signedAnswer(
  deps: HttpDeps,
  request: FastifyRequest,
  orgId: string,
  sandboxId: string,
  input: SignFile,
): Promise<Answer> {
  const { query, expiresAt } = await deps.sandboxes.files.sign(orgId, sandboxId, input)
  const origin = deps.config.publicUrl?.replace(/\/+$/, '') ?? `${request.protocol}://${request.host}`
  const url = `${origin}/api/sandboxes/${sandboxId}/files/${input.operation}?${query}`
  return { statusCode: 200, body: { url, expiresAt: seconds(expiresAt) } }
}
