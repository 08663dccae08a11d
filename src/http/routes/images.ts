import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { z } from 'zod'
import { boundedArchive, type Image, type OciArchive } from '../../image/index.ts'
import { defined } from '../../lib/defined.ts'
import { checkpoints as checkpointWire, files, images as wire } from '../../protocol/http/index.ts'
import { goneSignal, streamBuild, wantsStream } from '../server/build-stream.ts'
import { apiOrigin } from '../server/config.ts'
import { dropWhenStalled } from '../server/least-rate.ts'
import { onceClosed } from '../server/once-closed.ts'
import { type Answer, type Call, noContent, type Route, routesOf } from '../server/route.ts'
import { exportCaps } from '../server/streams.ts'
import { seconds } from '../server/time.ts'
import { patchBody, patchInput } from './patches.ts'
import { sendList } from '../server/json-list.ts'

const route = routesOf('Images', 'image')

/** Errors of routes that build an image. */
export const buildErrors = ['build_failed', 'conflict', 'quota_exceeded', 'no_capacity', 'unavailable'] as const

const buildEvents =
  'event: build_log\ndata: {"step":1,"type":"run","message":"…"}\n\nevent: result\ndata: {"id":"img-…",…}\n\n'

const buildLog =
  'building 1 step in sb-build-…\n[1/1] echo built\nbuilt\n[1/1] done in 0.2 s\nsaving files\nthe image is ready\n'

const archiveErrors = [
  'conflict',
  'quota_exceeded',
  'too_large',
  'no_capacity',
  'unavailable',
  'not_implemented',
] as const

const exportErrors = ['conflict', 'quota_exceeded', 'too_large', 'no_capacity', 'unavailable'] as const

export const imageRoutes = [
  route('POST', '/api/snapshots', {
    id: 'createSnapshot',
    naming: 'kept',
    lenient: true,
    summary: 'Build an image under a name',
    description:
      'Waits for the build. With `Accept: text/event-stream` it answers with events: `build_log` for each step, `build_output` with what a step ' +
      'writes, and at the end `result` with the image, or `error`. With `async=1` it answers 202 at once. An image with the same content is not ' +
      'built again, and a build goes on from the steps that it shares with an earlier one. A client that leaves ends its build.',
    query: wire.createSnapshotQuery,
    body: wire.createSnapshot,
    bodyLimit: 'manifestBytesMax',
    creates: true,
    answers: {
      201: { description: 'It is ready', body: wire.image },
      202: { description: 'It is being built', body: wire.image },
    },
    errors: [...buildErrors, 'not_found'],
    async handle(call) {
      const { orgId, body, query, creation, deps } = call
      const named = defined({ replace: body.replace })
      if (isYes(query.async)) {
        const image = await deps.images.createDetached(orgId, body.name, body.image, { creation, ...named })
        return { statusCode: 202, body: imageBody(image) }
      }
      if (wantsStream(call)) {
        return await streamBuild(call, async (follower) =>
          imageBody(await deps.images.create(orgId, body.name, body.image, { ...follower, ...named })),
        )
      }
      const options = { signal: goneSignal(call), creation, ...named }
      const image = await deps.images.create(orgId, body.name, body.image, options)
      return { statusCode: 201, body: imageBody(image) }
    },
  }),
  route('GET', '/api/snapshots', {
    id: 'listSnapshots',
    lenient: true,
    summary: 'List images with a name, newest first',
    answers: { 200: { description: 'All of them', body: z.array(wire.image) } },
    handle: (call) => sendList(call, call.deps.images.list(call.orgId, true), imageBody),
  }),
  route('GET', '/api/images', {
    id: 'listImages',
    summary: 'List all images, newest first',
    description: 'Those without a name go when nobody has started a sandbox from them for thirty days.',
    answers: { 200: { description: 'With and without a name', body: z.array(wire.image) } },
    handle: (call) => sendList(call, call.deps.images.list(call.orgId), imageBody),
  }),
  route('PUT', '/api/images/:name/archive', {
    id: 'importImage',
    summary: 'Make an image of an OCI or docker archive',
    description: 'The body is the archive as it is, plain or compressed. Answers when the image is ready.',
    query: wire.importQuery,
    body: 'raw',
    bodyExample: '(the bytes of the archive)',
    answers: { 201: { description: 'It is ready', body: wire.image } },
    errors: archiveErrors,
    handle: (call) => importArchive(call, { orgId: call.orgId, replace: isYes(call.query.replace) }),
  }),
  route('GET', '/api/images/:name/archive', {
    id: 'exportImage',
    audited: true,
    summary: 'Read an image as an OCI archive',
    description:
      'A tar of an OCI image layout, as skopeo and podman read it: one layer with all files, and the configuration. It is made first, in a sandbox of the ' +
      'image, so that the first byte of a large one takes its time.',
    answers: {
      200: { description: 'The archive', content: 'application/x-tar', example: '(the bytes of the archive)' },
    },
    errors: exportErrors,
    handle: sendArchive,
  }),
  route('POST', '/api/images/:name/push', {
    id: 'pushImage',
    summary: 'Send an image to a registry',
    description:
      'As the archive that `GET` answers, with the credentials of the organisation alone. Answers when the registry has it.',
    body: wire.pushImage,
    answers: { 200: { description: 'The registry has it', body: wire.pushedImage } },
    errors: [...exportErrors, 'not_implemented'],
    async handle(call) {
      const { orgId, params, body, deps } = call
      const { digest } = await deps.images.push(orgId, params.name, body.reference, goneSignal(call))
      return { statusCode: 200, body: { reference: body.reference, digest } }
    },
  }),
  route('POST', '/api/images/:name/archive-url', {
    id: 'createArchiveUrl',
    tag: 'Signed URLs',
    summary: 'Make a URL that uploads the archive of an image without a key',
    body: files.signArchive,
    answers: { 200: { description: 'The URL', body: files.signedUrl } },
    async handle({ orgId, params, body, request, deps }) {
      const options = { expiresInSeconds: body.expiresIn, ...defined({ bytesMax: body.maxBytes }) }
      const { query, expiresAt } = deps.images.uploads.sign(orgId, params.name, options)
      const url = `${apiOrigin(deps.config, request)}/api/images/${encodeURIComponent(params.name)}/archive/signed?${query}`
      return { statusCode: 200, body: { url, expiresAt: seconds(expiresAt) } }
    },
  }),
  route('PUT', '/api/images/:name/archive/signed', {
    id: 'importSignedImage',
    tag: 'Signed URLs',
    auth: 'signed',
    summary: 'Make an image of an archive with a signed URL',
    query: files.signedArchiveQuery,
    body: 'raw',
    bodyExample: '(the bytes of the archive)',
    answers: { 201: { description: 'It is ready', body: wire.image } },
    errors: ['signature_invalid', 'signature_expired', ...archiveErrors],
    handle: (call) => importArchive(call, call.deps.images.uploads.verify(call.params.name, call.query)),
  }),
  ...(['snapshots', 'images'] as const).flatMap(routesOfOne),
]

function isYes(given: string | undefined): boolean {
  return given === '1' || given === 'true'
}

/** Reads the body as an archive, as fast as it is unpacked. */
async function importArchive(
  { params, request, reply, deps }: Pick<Call<{ name: string }>, 'params' | 'request' | 'reply' | 'deps'>,
  { orgId, bytesMax = Infinity, replace = false }: { orgId: string; bytesMax?: number; replace?: boolean },
): Promise<Answer> {
  // A signed URL outlives a suspension.
  deps.organisations.assertActive(orgId)
  const body = request.raw.iterator({ destroyOnReturn: false }) as AsyncIterable<Uint8Array>
  const archive = boundedArchive(body, bytesMax)
  const options = { signal: goneSignal({ reply }), replace }
  const image = await deps.images.importArchive(orgId, params.name, archive, options)
  return { statusCode: 201, body: imageBody(image) }
}

/** Both collections take names and ids. */
function routesOfOne(collection: 'snapshots' | 'images'): Route[] {
  const path = `/api/${collection}/:name` as const
  const noun = collection === 'images' ? 'Image' : 'Snapshot'
  return [
    route('GET', path, {
      id: `get${noun}`,
      lenient: collection === 'snapshots',
      summary: 'Read an image',
      answers: { 200: { description: 'The image', body: wire.image } },
      answer: async ({ orgId, params, deps }) => imageBody(await deps.images.get(orgId, params.name)),
    }),
    route('DELETE', path, {
      id: `delete${noun}`,
      lenient: collection === 'snapshots',
      summary: 'Delete an image',
      description: 'Ends its build. Its data goes when nothing else needs it; sandboxes from it run on.',
      answers: { 204: { description: 'It is gone' } },
      answer: ({ orgId, params, deps }) => deps.images.delete(orgId, params.name),
    }),
    route('GET', `${path}/events`, {
      id: `follow${noun}Build`,
      summary: 'Follow the build of an image',
      description:
        'Events from the beginning of the build, as with the request that began it; `result` alone when it is over.',
      answers: { 200: { description: 'Events', content: 'text/event-stream', example: buildEvents } },
      handle: followBuild,
    }),
    route('GET', `${path}/log`, {
      id: `read${noun}Log`,
      summary: 'Read the log of the build of an image',
      description:
        'What the latest build of the image has told and its steps have written so far: the first 5 MiB and the last 4 to 5 MiB, with a line between them that says ' +
        'how many bytes are left out. It is kept for thirty days after the build, also of one that failed, and goes with the image. With `Accept: text/event-stream` it ' +
        'follows the build as `/events` does.',
      answers: { 200: { description: 'The log', content: 'text/plain', example: buildLog } },
      handle: (call) => (wantsStream(call) ? followBuild(call) : sendLog(call)),
    }),
    route('POST', `${path}/tag`, {
      id: `tag${noun}`,
      naming: 'kept',
      creates: true,
      summary: 'Give an image another name',
      description:
        'An image of its own with the same content: removing one leaves the other. One that has the name and that content is answered as it is.',
      body: wire.tagImage,
      answers: { 201: { description: 'The image of that name', body: wire.image } },
      errors: ['conflict'],
      async handle({ orgId, params, body, deps }) {
        const image = await deps.images.tag(orgId, params.name, body.name, defined({ replace: body.replace }))
        return { statusCode: 201, body: imageBody(image) }
      },
    }),
    route('POST', `${path}/patches`, {
      id: `create${noun}Patch`,
      summary: 'Attach a script to the checkpoint of an image',
      description: 'It runs in each sandbox started from the image.',
      body: checkpointWire.createPatch,
      creates: true,
      answers: { 201: { description: 'Attached', body: checkpointWire.createdPatch } },
      errors: ['too_large'],
      async handle({ orgId, params, body, creation, deps }) {
        const checkpointId = await deps.images.checkpointOf(orgId, params.name)
        // Sandboxes of an image know no other strategy.
        const input = { ...patchInput(body), strategy: 'on_wake' as const }
        const patch = await deps.sandboxes.patches.create(orgId, checkpointId, input, { creation })
        return { statusCode: 201, body: { patch: patchBody(patch) } }
      },
    }),
    route('GET', `${path}/patches`, {
      id: `list${noun}Patches`,
      summary: 'List the patches of an image',
      answers: { 200: { description: 'In sequence order', body: z.array(checkpointWire.patch) } },
      async answer({ orgId, params, deps }) {
        const checkpointId = await deps.images.checkpointOf(orgId, params.name)
        return (await deps.sandboxes.patches.list(orgId, checkpointId)).map(patchBody)
      },
    }),
    route('DELETE', `${path}/patches/:patchId`, {
      id: `delete${noun}Patch`,
      summary: 'Detach a patch of an image',
      answers: { 204: { description: 'It is gone' } },
      async handle({ orgId, params, deps }) {
        const checkpointId = await deps.images.checkpointOf(orgId, params.name)
        await deps.sandboxes.patches.delete(orgId, checkpointId, params.patchId)
        return noContent
      },
    }),
    publishing(path, `publish${noun}`, 'publish', true),
    publishing(path, `unpublish${noun}`, 'unpublish', false),
  ]
}

async function sendArchive(call: OfOne): Promise<undefined> {
  const { orgId, params, reply, deps, streams, limits } = call
  const response = reply.raw
  onceClosed(response, streams.open('export', exportCaps(call)))
  const send = async (archive: OciArchive) => {
    reply.hijack()
    dropWhenStalled(response, limits.streamStallMs)
    const headers = {
      'content-type': 'application/x-tar',
      'content-length': archive.bytes,
      'content-disposition': `attachment; filename="${params.name.replaceAll(':', '-')}.tar"`,
      'cache-control': 'no-store',
      'x-content-type-options': 'nosniff',
    }
    response.writeHead(200, { ...(reply.getHeaders() as Record<string, string>), ...headers })
    try {
      await pipeline(Readable.from(archive.content(), { objectMode: false }), response)
    } catch (error) {
      deps.log.debug({ err: error, image: params.name }, 'the sending of an image broke')
    }
  }
  await deps.images.export(orgId, params.name, send, goneSignal(call))
  return undefined
}

type OfOne = Pick<Call<{ name: string }>, 'orgId' | 'params' | 'request' | 'reply' | 'streams' | 'deps' | 'limits'>

async function followBuild(call: OfOne): Promise<undefined> {
  const { orgId, params, deps } = call
  return await streamBuild(call, async (follower) => imageBody(await deps.images.follow(orgId, params.name, follower)))
}

async function sendLog(call: OfOne): Promise<undefined> {
  const { orgId, params, reply, deps, streams, limits } = call
  const response = reply.raw
  onceClosed(response, streams.open('export', exportCaps(call)))
  await deps.images.readLog(orgId, params.name, async (text) => {
    reply.hijack()
    dropWhenStalled(response, limits.streamStallMs)
    const headers = {
      'content-type': 'text/plain; charset=utf-8',
      'cache-control': 'no-store',
      'x-content-type-options': 'nosniff',
    }
    response.writeHead(200, { ...(reply.getHeaders() as Record<string, string>), ...headers })
    try {
      await pipeline(Readable.from(text, { highWaterMark: 1 }), response)
    } catch (error) {
      deps.log.debug({ err: error, image: params.name }, 'the sending of a log broke')
    }
  })
  return undefined
}

function publishing(
  path: '/api/snapshots/:name' | '/api/images/:name',
  id: string,
  verb: string,
  isPublic: boolean,
): Route {
  return route('POST', `${path}/${verb}`, {
    id,
    ofAll: true,
    summary: isPublic ? 'Let every organisation start from an image' : 'Let only its owner start from an image again',
    description: "For the operator's own organisation alone.",
    answers: { 200: { description: 'Done', body: wire.published } },
    errors: ['forbidden', 'conflict'],
    async handle({ orgId, params, deps }) {
      const image = await deps.images.publish(orgId, params.name, isPublic)
      return { statusCode: 200, body: { name: image.name ?? image.id, public: image.isPublic } }
    },
  })
}

function imageBody(image: Image): z.output<typeof wire.image> {
  const { message: error, step, type, line, exitCode, stderr } = image.failure ?? {}
  return {
    id: image.id,
    orgId: image.orgId,
    ...defined({ name: image.name, replaces: image.replaces }),
    contentHash: image.contentHash,
    ...defined({ checkpointId: image.checkpointId }),
    status: image.status,
    manifest: { ...image.manifest },
    ...defined({ oci: image.oci && { ...image.oci, entrypoint: [...image.oci.entrypoint], cmd: [...image.oci.cmd] } }),
    ...defined({ sizeBytes: image.sizeBytes }),
    ...defined({ config: image.config as z.output<typeof wire.image>['config'] }),
    public: image.isPublic,
    createdAt: seconds(image.createdAt),
    lastUsedAt: seconds(image.lastUsedAt),
    ...defined({ error, step, type, line, exitCode, stderr }),
  }
}
