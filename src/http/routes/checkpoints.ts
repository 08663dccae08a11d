import { z } from 'zod'
import {
  assertInput,
  type Checkpoint,
  type CheckpointOwner,
  type ListedCheckpoint,
  type StartedSandbox,
  type StartFromCheckpoint,
} from '../../sandbox/index.ts'
import { checkpoints as wire, common, sandboxes } from '../../protocol/http/index.ts'
import type { HttpDeps } from '../server/config.ts'
import { asServiceError, sandboxErrorBody } from '../server/errors.ts'
import { nextPageHeader, pageAnswer, type Route, routesOf, wakingErrors } from '../server/route.ts'
import { egressInputOf } from './egress.ts'
import { assertInline, startResult, startedWithWebhooks } from './sandboxes.ts'
import { seconds } from '../server/time.ts'
import { defined } from '../../lib/defined.ts'
import { checkpointVolumesBody } from './volumes.ts'

const route = routesOf('Checkpoints', 'sandbox')

/** Errors of a start from a checkpoint. */
const startErrors = [
  ...['conflict', 'memory_not_restorable', 'full_checkpoint_unavailable', 'quota_exceeded', 'no_capacity'],
  'unavailable',
] as const

export const checkpointRoutes = [
  route('POST', '/api/sandboxes/:id/checkpoints', {
    id: 'createCheckpoint',
    lenient: true,
    summary: 'Checkpoint a sandbox',
    description:
      'Answers at once; the list shows when it is `ready`. `full` (default) keeps disk and memory, `disk_only` the disk. ' +
      'At most 10 full and 100 disk-only ones, unless `retentionPolicy` deletes the oldest.',
    body: wire.createCheckpoint,
    creates: true,
    answers: { 201: { description: 'It is being made', body: wire.checkpoint } },
    errors: [...wakingErrors, 'quota_exceeded', 'full_checkpoint_unavailable'],
    async handle({ orgId, params, body, creation, deps }) {
      const { name, kind, retentionPolicy, expiresInSeconds } = body
      const input = { name, ...defined({ kind, retentionPolicy, expiresInSeconds }) }
      const checkpoint = await deps.sandboxes.checkpoints.create(orgId, params.id, input, { creation })
      return { statusCode: 201, body: checkpointBody(checkpoint) }
    },
  }),
  route('GET', '/api/sandboxes/:id/checkpoints', {
    id: 'listCheckpoints',
    lenient: true,
    summary: 'List the checkpoints of a sandbox',
    query: wire.checkpointsOfSandboxQuery,
    answers: { 200: { description: 'Oldest first', body: z.array(wire.checkpoint) } },
    answer: async ({ orgId, params, query, deps }) =>
      (await deps.sandboxes.checkpoints.list(orgId, params.id, ownerOf(query.origin))).map(checkpointBody),
  }),
  route('GET', '/api/checkpoints', {
    id: 'listAllCheckpoints',
    summary: 'List all checkpoints, newest first',
    description:
      'Of all sandboxes, stopped ones too, and those that images and sessions have made for themselves (`owner`); those of turns with ' +
      '`origin=turn` alone. The next page is named by the header `X-Next-Cursor`.',
    query: wire.listCheckpointsQuery,
    answers: {
      200: {
        description: 'One page',
        body: z.array(wire.listedCheckpoint),
        headers: nextPageHeader,
      },
    },
    errors: ['not_found'],
    async handle({ orgId, query, deps, request }) {
      const { sandbox: sandboxId, origin, limit = 1000, cursor } = query
      const owner = ownerOf(origin) ?? query.owner
      if (owner !== undefined && query.owner !== undefined && query.owner !== shownOwner(owner))
        return pageAnswer({ items: [] }, listedBody)
      const { reach } = request.caller ?? {}
      const page = await deps.sandboxes.checkpoints.page(orgId, {
        limit,
        ...defined({ sandboxId, owner, cursor, reach }),
      })
      return pageAnswer(page, listedBody)
    },
  }),
  route('GET', '/api/checkpoints/:checkpointId', {
    id: 'getCheckpoint',
    summary: 'Read a checkpoint',
    answers: { 200: { description: 'The checkpoint', body: wire.listedCheckpoint } },
    answer: async ({ orgId, params, deps }) =>
      listedBody(await deps.sandboxes.checkpoints.get(orgId, params.checkpointId)),
  }),
  route('PATCH', '/api/checkpoints/:checkpointId', {
    id: 'updateCheckpoint',
    summary: 'Change when a checkpoint is deleted by itself',
    description: 'Those of images and of sessions are deleted with what needs them (409).',
    body: wire.updateCheckpoint,
    answers: { 200: { description: 'The checkpoint', body: wire.listedCheckpoint } },
    errors: ['conflict'],
    answer: async ({ orgId, params, body, deps }) => {
      const expiresInSeconds = body.expiresInSeconds ?? undefined
      return listedBody(await deps.sandboxes.checkpoints.setExpiry(orgId, params.checkpointId, expiresInSeconds))
    },
  }),
  route('DELETE', '/api/checkpoints/:checkpointId', {
    id: 'deleteCheckpointById',
    summary: 'Delete a checkpoint with its patches, whatever sandbox it is of',
    description: 'Sandboxes started from it run on. That of a turn is deleted with its session (409).',
    answers: { 204: { description: 'It is gone' } },
    errors: ['conflict'],
    answer: ({ orgId, params, deps }) => deps.sandboxes.checkpoints.delete(orgId, undefined, params.checkpointId),
  }),
  route('DELETE', '/api/sandboxes/:id/checkpoints/:checkpointId', {
    id: 'deleteCheckpoint',
    lenient: true,
    summary: 'Delete a checkpoint with its patches',
    description: 'Sandboxes started from it run on. That of a turn is deleted with its session (409).',
    answers: { 204: { description: 'It is gone' } },
    errors: ['conflict'],
    answer: ({ orgId, params, deps }) => deps.sandboxes.checkpoints.delete(orgId, params.id, params.checkpointId),
  }),
  route('POST', '/api/sandboxes/:id/checkpoints/:checkpointId/restore', {
    id: 'restoreCheckpoint',
    lenient: true,
    summary: 'Restore a sandbox to a checkpoint, in place',
    answers: { 200: { description: 'It is restored', body: common.empty } },
    errors: [...startErrors, 'sandbox_stopped'],
    answer: ({ orgId, params, deps }) => deps.sandboxes.checkpoints.restore(orgId, params.id, params.checkpointId),
  }),
  publishing('publishCheckpoint', 'publish', true),
  publishing('unpublishCheckpoint', 'unpublish', false),
  route('POST', '/api/sandboxes/from-checkpoint/:checkpointId', {
    id: 'createSandboxFromCheckpoint',
    naming: 'made',
    lenient: true,
    summary: 'Start a sandbox from a checkpoint',
    description:
      'Waits for a checkpoint that is still `processing` and runs its patches in sequence order before it answers. ' +
      'A patch that exits non-zero fails the start (422) and nothing is left running.',
    body: sandboxes.fromCheckpoint,
    creates: true,
    answers: {
      201: {
        description: 'It runs; with `count`, each has its own result or error',
        body: sandboxes.startedFromCheckpoint,
      },
    },
    errors: [...startErrors, 'not_found', 'patch_failed', 'not_implemented'],
    async handle(call) {
      const { orgId, params, body, creation, deps } = call
      await assertInline(call)
      const { name, onIdle, maxAgeSeconds, envs, volumes, user, count } = body
      const { timeout: timeoutSeconds, memoryMB: memoryMb } = body
      const lifetimes = { timeoutSeconds, onIdle, maxAgeSeconds }
      const input: StartFromCheckpoint = {
        ...defined({ name, ...lifetimes, envs, memoryMb, volumes, user }),
        ...egressInputOf(body),
      }
      const { checkpointId } = params
      if (count !== undefined) {
        assertInput(body.webhooks === undefined, 'webhooks', 'is for one sandbox, not for several (count)')
        assertInput(name === undefined || count === 1, 'name', 'is for one sandbox, not for several (count)')
        const { checkpoints } = deps.sandboxes
        const results = await checkpoints.startMany(orgId, checkpointId, input, count, { creation })
        return { statusCode: 201, body: { sandboxes: results.map((result) => outcome(deps, checkpointId, result)) } }
      }
      const started = await deps.sandboxes.checkpoints.start(orgId, checkpointId, input, { creation })
      return { statusCode: 201, body: await startedWithWebhooks(call, started) }
    },
  }),
]

function listedBody({ checkpoint, dependents, sandboxName }: ListedCheckpoint): z.output<typeof wire.listedCheckpoint> {
  return { ...checkpointBody(checkpoint), owner: shownOwner(checkpoint.owner), dependents, ...defined({ sandboxName }) }
}

/** How the API calls what a checkpoint was made for. */
export const originOf = {
  client: 'client',
  image: 'image',
  session: 'fork',
  wake: 'wake',
  turn: 'turn',
} as const satisfies Record<CheckpointOwner, z.output<typeof wire.origin>>

function ownerOf(origin: z.output<typeof wire.origin> | undefined): CheckpointOwner | undefined {
  return (Object.keys(originOf) as CheckpointOwner[]).find((owner) => originOf[owner] === origin)
}

function shownOwner(owner: CheckpointOwner): z.output<typeof wire.owner> {
  return owner === 'turn' ? 'session' : owner
}

function publishing(id: string, verb: string, isPublic: boolean): Route {
  return route('POST', `/api/sandboxes/checkpoints/:checkpointId/${verb}`, {
    id,
    ofAll: true,
    summary: isPublic
      ? 'Let every organisation start from a checkpoint'
      : 'Let only its owner start from a checkpoint again',
    description: 'Others may start from it, and neither patch nor delete it.',
    answers: { 200: { description: 'The checkpoint', body: wire.checkpoint } },
    errors: ['forbidden'],
    answer: async ({ orgId, params, deps }) =>
      checkpointBody(await deps.sandboxes.checkpoints.publish(orgId, params.checkpointId, isPublic)),
  })
}

function outcome(deps: HttpDeps, checkpointId: string, result: PromiseSettledResult<StartedSandbox>): object {
  if (result.status === 'fulfilled') return startResult(result.value, deps.config)
  const error: unknown = result.reason
  if (asServiceError(error).code === 'internal_error') deps.log.error({ err: error, checkpointId }, 'a start failed')
  return sandboxErrorBody(error)
}

function checkpointBody(checkpoint: Checkpoint): z.output<typeof wire.checkpoint> {
  const { id, sandboxId, orgId, name, kind, status, sizeBytes } = checkpoint
  const { image: templateID, cpuCount, memoryMb: memoryMB, diskMb: diskMB, envs } = checkpoint.sandboxConfig
  return {
    ...{ id, sandboxId, orgId, name, kind, status, sizeBytes },
    sandboxConfig: { templateID, cpuCount, memoryMB, diskMB, envs },
    volumes: checkpointVolumesBody(checkpoint.volumes),
    origin: originOf[checkpoint.owner],
    createdAt: seconds(checkpoint.createdAt),
    ...defined({ public: checkpoint.isPublic, error: checkpoint.error }),
    ...(checkpoint.expiresAt && { expiresAt: seconds(checkpoint.expiresAt) }),
  }
}
