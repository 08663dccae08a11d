import { files, images as wire } from '../../protocol/http/index.ts'
import { apiOrigin } from '../server/config.ts'
import { goneSignal } from '../server/build-stream.ts'
import { receiving } from '../server/file-body.ts'
import { jsonElements, JsonText } from '../server/json-text.ts'
import { type Answer, type Call, routesOf } from '../server/route.ts'

const route = routesOf('Images', 'image')

const upload = {
  description:
    'A tar, plain or compressed with gzip or zstd, with files of the context by their paths; all that are missing, or some at a time. Each is compared with its ' +
    'digest: one that changed while it was sent is refused with its path, and what came before it stays. Entries that the context does not name are ignored.',
  body: 'raw',
  bodyExample: '(the bytes of the archive)',
  answers: { 200: { description: 'It is taken', body: wire.uploadedContext } },
} as const

const uploadErrors = ['quota_exceeded', 'too_large', 'no_capacity', 'disk_full'] as const

export const contextRoutes = [
  route('POST', '/api/images/contexts', {
    id: 'createContext',
    summary: 'Say which files a build reads',
    description:
      'The answer names the contents that the server lacks; `uploadUrl` takes them. Equal files are the same context, and contents are kept by their digest, ' +
      'so only what has changed is sent again. A context goes a day after its last use. With `image` a faulty Dockerfile, and one that names an image that ' +
      'is not there, is refused as its build would be.',
    body: wire.createContext,
    bodyLimit: 'manifestBytesMax',
    takesList: true,
    answers: { 201: { description: 'It is known', body: wire.context } },
    errors: ['conflict', 'not_found', 'quota_exceeded', 'too_large', 'no_capacity', 'disk_full', 'unavailable'],
    async answer({ orgId, body, request, reply, deps }) {
      const { contexts } = deps.images
      // Before anything is kept or travels.
      if (body.image !== undefined) await deps.images.checkDockerfile(orgId, body.image)
      const { id, missing } = await contexts.create(orgId, body.files, goneSignal({ reply }))
      const uploadUrl = `${apiOrigin(deps.config, request)}/api/images/contexts/${id}/archive/signed?${contexts.signUpload(orgId, id)}`
      return stateText(missing, { id, uploadUrl })
    },
  }),
  route('PUT', '/api/images/contexts/:contextId/archive', {
    id: 'uploadContext',
    summary: 'Send files of a context',
    ...upload,
    errors: uploadErrors,
    handle: (call) => receiveContext(call, call.orgId),
  }),
  route('PUT', '/api/images/contexts/:contextId/archive/signed', {
    id: 'uploadSignedContext',
    tag: 'Signed URLs',
    auth: 'signed',
    summary: 'Send files of a context with a signed URL',
    query: files.signedArchiveQuery,
    ...upload,
    errors: [...uploadErrors, 'signature_invalid', 'signature_expired'],
    handle: (call) =>
      receiveContext(call, call.deps.images.contexts.verifyUpload(call.params.contextId, call.query).orgId),
  }),
]

type UploadCall = Pick<Call<{ contextId: string }>, 'params' | 'request' | 'reply' | 'deps' | 'limits' | 'streams'>

/** Reads the body as an archive, as fast as its files are written. */
async function receiveContext(call: UploadCall, orgId: string): Promise<Answer> {
  const { params, request, deps, limits, streams } = call
  // A signed URL outlives a suspension.
  deps.organisations.assertActive(orgId)
  const archive = request.raw.iterator({ destroyOnReturn: false }) as AsyncIterable<Uint8Array>
  const { contextId } = params
  const { id, missing, ignored } = await receiving(request.raw, { limits, streams, orgId }, () =>
    deps.images.contexts.upload(orgId, contextId, archive, goneSignal(call)),
  )
  return { statusCode: 200, body: stateText(missing, { id, ignored }) }
}

/** There may be a hundred thousand digests. */
function stateText(missing: readonly string[], rest: object): JsonText {
  return new JsonText(function* () {
    yield `${JSON.stringify(rest).slice(0, -1)},"missing":[`
    yield* jsonElements(missing, (digest) => [JSON.stringify(digest)])
    yield ']}'
  })
}
