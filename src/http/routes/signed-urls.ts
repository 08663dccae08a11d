import type { FastifyRequest } from 'fastify'
import { files as wire } from '../../protocol/http/index.ts'
import type { FileOperation, SignFile } from '../../sandbox/index.ts'
import type { Answer } from '../server/route.ts'
import { fileAnswers } from './files.ts'
import { receiveFile, sendFile } from '../server/file-body.ts'
import type { HttpDeps } from '../server/config.ts'
import { noContent, route, wakingErrors } from '../server/route.ts'
import { seconds } from '../server/time.ts'

const tag = 'Signed URLs'
const signing = { tag, auth: 'key', body: wire.signFile, errors: ['not_found', 'sandbox_stopped'] } as const
const signed = {
  tag,
  auth: 'signed',
  query: wire.signedQuery,
  errors: ['signature_invalid', 'signature_expired', ...wakingErrors],
} as const

export const signedUrlRoutes = [
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
    ...(body.maxBytes === undefined ? {} : { bytesMax: body.maxBytes }),
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
