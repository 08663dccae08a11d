import type { Sandbox, StartedSandbox } from '../../sandbox/index.ts'
import { sandboxes as wire } from '../../protocol/http/index.ts'
import { refuseNotBuilt } from '../server/body.ts'
import type { HttpConfig, HttpDeps } from '../server/config.ts'
import { noContent, route, wakingErrors } from '../server/route.ts'
import { seconds } from '../server/time.ts'
import { z } from 'zod'

const tag = 'Sandboxes'
const notBuiltFields = ['image', 'snapshot', 'secretStore', 'webhooks'] as const

export const sandboxRoutes = [
  route({
    method: 'POST',
    path: '/api/sandboxes',
    tag,
    summary: 'Start a sandbox from an image',
    auth: 'key',
    body: wire.createSandbox,
    creates: true,
    answers: { 201: { description: 'The sandbox runs', body: wire.startResult } },
    errors: ['not_found', 'conflict', 'not_implemented', 'no_capacity', 'unavailable'],
    async handle({ orgId, body, creation, deps }) {
      refuseNotBuilt(body, notBuiltFields)
      const input = {
        image: body.templateID,
        ...(body.timeout === undefined ? {} : { timeoutSeconds: body.timeout }),
        ...(body.cpuCount === undefined ? {} : { cpuCount: body.cpuCount }),
        ...(body.memoryMB === undefined ? {} : { memoryMb: body.memoryMB }),
        ...(body.diskMB === undefined ? {} : { diskMb: body.diskMB }),
        ...(body.envs === undefined ? {} : { envs: body.envs }),
        ...(body.metadata === undefined ? {} : { metadata: body.metadata }),
        ...(body.previewAuth === undefined ? {} : { previewAuth: previewAuthOf(body.previewAuth) }),
      }
      const started = await deps.sandboxes.create(orgId, input, { creation })
      return { statusCode: 201, body: startResult(started, deps.config) }
    },
  }),
  route({
    method: 'GET',
    path: '/api/sandboxes',
    tag,
    summary: 'List sandboxes, newest first',
    description: 'Those not stopped, unless `status` says which. The next page is named by the header `X-Next-Cursor`.',
    auth: 'key',
    query: wire.listSandboxesQuery,
    answers: {
      200: {
        description: 'One page',
        body: z.array(wire.sandbox),
        headers: { 'X-Next-Cursor': 'Value of `cursor` for the next page; absent on the last' },
      },
    },
    async handle({ orgId, query, deps }) {
      const page = await deps.sandboxes.list(orgId, {
        ...(query.status === undefined ? {} : { status: query.status }),
        limit: query.limit ?? 1000,
        ...(query.cursor === undefined ? {} : { cursor: query.cursor }),
      })
      return {
        statusCode: 200,
        body: page.items.map((item) => sandboxBody(item, deps)),
        headers: page.nextCursor === undefined ? {} : { 'x-next-cursor': page.nextCursor },
      }
    },
  }),
  route({
    method: 'GET',
    path: '/api/sandboxes/:id',
    tag,
    summary: 'Read a sandbox',
    description: 'A stopped one can be read for 24 hours.',
    auth: 'key',
    answers: { 200: { description: 'The sandbox', body: wire.sandbox } },
    errors: ['not_found'],
    async handle({ orgId, params, deps }) {
      return { statusCode: 200, body: sandboxBody(await deps.sandboxes.get(orgId, params.id), deps) }
    },
  }),
  route({
    method: 'DELETE',
    path: '/api/sandboxes/:id',
    tag,
    summary: 'Stop a sandbox for good',
    description: 'Repeating it is harmless. Its checkpoints stay.',
    auth: 'key',
    answers: { 204: { description: 'It is stopped' } },
    errors: ['not_found'],
    async handle({ orgId, params, deps }) {
      await deps.sandboxes.delete(orgId, params.id)
      return noContent
    },
  }),
  route({
    method: 'POST',
    path: '/api/sandboxes/:id/hibernate',
    tag,
    summary: 'Keep a sandbox without CPU or memory',
    auth: 'key',
    answers: { 200: { description: 'It is hibernated', body: wire.hibernated } },
    errors: ['not_found', 'conflict', 'sandbox_stopped', 'unavailable'],
    async handle({ orgId, params, deps }) {
      const { sizeBytes } = await deps.sandboxes.hibernate(orgId, params.id)
      return { statusCode: 200, body: { sandboxID: params.id, status: 'hibernated', sizeBytes } }
    },
  }),
  route({
    method: 'POST',
    path: '/api/sandboxes/:id/wake',
    tag,
    summary: 'Wake a hibernated sandbox',
    description: 'Without `timeout` it keeps its own.',
    auth: 'key',
    body: wire.wakeBody,
    answers: { 200: { description: 'It runs', body: wire.startResult } },
    errors: wakingErrors,
    async handle({ orgId, params, body, deps }) {
      const sandbox = await deps.sandboxes.wake(orgId, params.id, body.timeout)
      return { statusCode: 200, body: startResult({ sandbox }, deps.config) }
    },
  }),
]

/** The parts that every answer about a sandbox has. */
function startFields(
  sandbox: Sandbox,
  config: HttpConfig,
): Omit<z.output<typeof wire.startResult>, 'previewAuthToken'> {
  return {
    sandboxID: sandbox.id,
    status: sandbox.status,
    region: config.region,
    workerID: config.workerId,
    sandboxDomain: new URL(config.previewUrl).host,
    memoryMB: sandbox.memoryMb,
    cpuCount: sandbox.cpuCount,
  }
}

export function startResult(started: StartedSandbox, config: HttpConfig): z.output<typeof wire.startResult> {
  return {
    ...startFields(started.sandbox, config),
    ...(started.previewAuthToken === undefined ? {} : { previewAuthToken: started.previewAuthToken }),
  }
}

function sandboxBody(sandbox: Sandbox, { config, sandboxes }: HttpDeps): z.output<typeof wire.sandbox> {
  return {
    ...startFields(sandbox, config),
    templateID: sandbox.image,
    timeout: sandbox.timeoutSeconds,
    metadata: sandbox.metadata,
    tags: sandbox.tags,
    tagsLastUpdatedAt: seconds(sandbox.tagsUpdatedAt),
    startedAt: seconds(sandbox.startedAt),
    endAt: seconds(sandboxes.endAt(sandbox)),
    ...(sandbox.reason === undefined ? {} : { reason: sandbox.reason }),
    ...(sandbox.reasonMessage === undefined ? {} : { reasonMessage: sandbox.reasonMessage }),
  }
}

export function previewAuthOf(auth: { token?: string | undefined }): { scheme: 'bearer'; token?: string } {
  return { scheme: 'bearer', ...(auth.token === undefined ? {} : { token: auth.token }) }
}
