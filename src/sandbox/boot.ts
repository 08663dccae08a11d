import { ServiceError, isServiceError } from '../errors.ts'
import type { CreateOptions, Creation } from '../lib/creation.ts'
import type { Lifecycle, LifecycleContext } from './lifecycle.ts'
import type { Guest } from './ports/guest.ts'
import type { RuntimeDriver, SandboxSpec } from './ports/runtime-driver.ts'
import type { SandboxStore } from './ports/sandbox-store.ts'
import { mayBeWarm } from './ports/warm-start.ts'
import type { RunningSandboxQuota } from './quota.ts'
import { type Sandbox, type SandboxChange, specOf } from './sandbox.ts'
import type { Starts } from './starts.ts'
import type { WarmPool } from './warm-pool.ts'
import { type InFlightBoots, type RunBoot, type TransitionQueue, deletedDuringBoot } from './transition-queue.ts'

/** Prepares a started or woken sandbox for clients. A failure undoes the start. */
export type Prepare = (guest: Guest, sandbox: Sandbox, signal: AbortSignal) => Promise<void>

export interface BootOptions extends CreateOptions {
  prepare?: Prepare
  /** The id was announced before the boot: a failure stays visible as `error`, and the boot may be retried under the same id. */
  isAnnounced: boolean
  /** It starts from saved memory. */
  keepsMemory?: boolean
  /** It starts on the disk of its checkpoint alone, whatever that has. */
  isDiskOnly?: boolean
}

export interface BootContext extends LifecycleContext {
  lifecycle: Pick<Lifecycle, 'set' | 'maxAges'>
  warm: WarmPool
  starts: Starts
  quota: RunningSandboxQuota
  boots: InFlightBoots
  transitions: TransitionQueue
}

/**
 * Boots a sandbox of this record. After a failure nothing runs and the record has the reason. With an idempotency key the sandbox
 * counts as made when it runs; until then a repeat starts over under the same id.
 */
export async function bootSandbox(context: BootContext, draft: Sandbox, options: BootOptions): Promise<Sandbox> {
  const { store, driver, guest, quota, disk, boots, transitions, lifecycle, warm, starts } = context
  const { isAnnounced, creation, keepsMemory = false } = options
  let sandbox = draft
  let run: RunBoot
  try {
    run = await quota.claimRecord(draft, async () => {
      context.assertActive?.(draft.orgId)
      await assertKeyHasRoom(store, draft.id)
      // A repeat of a request with a key must find its id again, which may be a reserved one.
      const spec = specOf(draft)
      const isReservable = !isAnnounced && !creation && mayBeWarm({ ...spec, keepsMemory })
      const reserved = isReservable ? warm.reserve(spec, draft.orgId) : undefined
      if (reserved !== undefined) sandbox = { ...draft, id: reserved }
      const { id, orgId, diskMb } = sandbox
      // Nobody has used a random id before.
      const record = () => (isAnnounced || creation ? insert(store, sandbox, creation) : store.insertSandbox(sandbox))
      return await boots.begin(id, () => disk.claimMb(orgId, diskMb, record, id))
    })
    lifecycle.maxAges.notice(sandbox.expiresAt)
  } catch (error) {
    // The commit may have happened. Nobody else knows this id, so undo it.
    if (!isAnnounced && isServiceError(error, 'unavailable')) await undo(context, sandbox, error, options)
    else if (sandbox !== draft) warm.release(sandbox.id)
    throw error
  }
  const { id } = sandbox
  const boot = async (signal: AbortSignal) => {
    const { orgId, memoryMb } = sandbox
    const create = () => driver.create(startOf(sandbox, options), signal)
    // A takeover waits for nothing, because the machine runs already.
    await (warm.take(id) ? warm.withRoom(create) : starts.run({ orgId, memoryMb, signal }, create))
    await context.trust?.(guest(id, orgId), sandbox)
    await options.prepare?.(guest(id, orgId), sandbox, signal)
    // It may have been suspended meanwhile.
    context.assertActive?.(sandbox.orgId)
    const now = new Date()
    const change = { status: 'running', startedAt: now, activeAt: now, ...hookReason(driver, id) } as const
    const creationNote = creation && ({ creation, outcome: 'made' } as const)
    const running = await lifecycle.set(id, change, ['creating'], { creationNote, expected: sandbox })
    if (!running) throw deletedDuringBoot(id)
    return running
  }
  try {
    return await run((signal) => transitions.run(id, () => boot(signal)))
  } catch (error) {
    await undo(context, sandbox, error, options)
    throw error
  }
}

/** What the driver is to start. Later starts of the sandbox are from its own memory, or from its own disk. */
function startOf(sandbox: Sandbox, { isDiskOnly = false }: BootOptions): SandboxSpec {
  const spec = specOf(sandbox)
  return isDiskOnly && spec.from !== undefined ? { ...spec, from: { ...spec.from, memory: false } } : spec
}

/** For the holder of the organisation's lock. */
async function assertKeyHasRoom(store: SandboxStore, id: string): Promise<void> {
  const bound = await store.reachedKeyBound(id)
  if (bound === undefined) return
  const message = `the API key has ${bound} sandboxes, the most it may have`
  throw new ServiceError('quota_exceeded', message, { details: { limit: bound } })
}

async function insert(store: SandboxStore, sandbox: Sandbox, creation?: Creation): Promise<void> {
  const earlier = await store.sandbox(sandbox.id, sandbox.orgId)
  // An earlier run of the request undid it, or a client deleted it while that run booted it.
  if (creation && earlier?.status === 'stopped') throw deletedDuringBoot(sandbox.id)
  // A derived id is still `creating` when an earlier run could not record its end.
  const retryable = creation ? (['error', 'creating'] as const) : (['error'] as const)
  const isRetry = earlier && (await store.updateSandbox(sandbox.id, retriedRecord(sandbox), retryable))
  if (!isRetry) await store.insertSandbox(sandbox)
}

/** What a retry writes over the earlier record. Name, tags and lifetimes stay: clients may have set them during the boot. */
function retriedRecord(sandbox: Sandbox): SandboxChange {
  const { id: _id, orgId: _orgId, createdAt: _createdAt, tags: _tags, timeoutSeconds: _timeout, ...more } = sandbox
  // The earlier attempt has attached the same volumes.
  const { name: _name, volumes: _volumes, onIdle: _onIdle, expiresAt: _expiresAt, ...rest } = more
  return { ...rest, reason: undefined, reasonMessage: undefined, stoppedAt: undefined }
}

async function undo(
  { store, driver, log, transitions, lifecycle, warm }: BootContext,
  { id, volumes }: Sandbox,
  error: unknown,
  { isAnnounced, creation }: BootOptions,
): Promise<void> {
  // A fault of the host is for the operator: log all that the answer leaves out.
  if (!isServiceError(error) || error.code === 'unavailable') {
    log.error({ err: error, sandboxId: id }, 'a sandbox could not be started')
  }
  warm.take(id)
  const isGone = await transitions
    .run(id, () => driver.delete(id))
    .then(() => true)
    .catch((cause: unknown) => {
      log.error({ err: cause, sandboxId: id }, 'remains of a failed start could not be removed')
      return false
    })
  const end = isAnnounced ? ({ status: 'error' } as const) : ({ status: 'stopped', stoppedAt: new Date() } as const)
  const creationNote = creation && ({ creation, outcome: 'undone' } as const)
  await lifecycle.set(id, { ...end, ...reasonOf(error, 'the sandbox could not be started') }, ['creating', 'running'], {
    creationNote,
  })
  if (isGone && volumes.length > 0) await store.detachVolumes(id)
  // What is wrong with the request is in its answer, and no record has to keep it.
  if (isGone && isServiceError(error) && error.details['field'] !== undefined) await store.purgeSandboxes([id])
}

/** Which hooks of a fork failed in a sandbox that has just started. */
export function hookReason(
  driver: Pick<RuntimeDriver, 'hookFailure'>,
  id: string,
): Pick<Sandbox, 'reason' | 'reasonMessage'> {
  const reasonMessage = driver.hookFailure?.(id)
  return reasonMessage === undefined ? {} : { reason: 'hook_failed', reasonMessage }
}

/** The reason that a failed transition leaves on the record. `message` stands in for errors that clients must not read. */
export function reasonOf(error: unknown, message: string) {
  return {
    reason: isServiceError(error, 'patch_failed') ? 'patch_failed' : 'runtime_failed',
    reasonMessage: error instanceof ServiceError ? error.message : message,
  } as const
}
