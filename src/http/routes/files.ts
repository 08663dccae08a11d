import type { z } from 'zod'
import { files as wire } from '../../protocol/http/index.ts'
import { receiveFile, sendFile } from '../server/file-body.ts'
import { noContent, route, wakingErrors } from '../server/route.ts'
import { reportedSeconds } from '../server/time.ts'

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
]
