import { isServiceError, ServiceError } from '../errors.ts'
import type { CreateOptions, Creation } from '../lib/creation.ts'
import { newId } from '../lib/id.ts'
import { KeyedMutex } from '../lib/async/mutex.ts'
import type { Log } from '../lib/log.ts'
import type { CheckpointService, CreateCheckpoint, StartedSandbox, StartFromCheckpoint } from './api.ts'
import { isInternal } from './checkpoint.ts'
import type { Checkpoint } from './checkpoint.ts'
import type { CheckpointKind, RuntimeDriver } from './ports/runtime-driver.ts'
import { demand, demandEnvs, demandInteger } from './input.ts'
import type { Lifecycle } from './lifecycle.ts'
import { newSandbox } from './new-sandbox.ts'
import type { SandboxLimits } from './limits.ts'
import { type Patch, patchStrategies } from './patch.ts'
import type { Patches } from './patches.ts'
import type { SandboxStore } from './ports/sandbox-store.ts'

const nameLengthMax = 128
/** Of one call, that start at the same time. */
const forksAtOnceMax = 10

interface CheckpointsDeps {
  store: SandboxStore
  driver: RuntimeDriver
  lifecycle: Lifecycle
  patches: Patches
  limits: SandboxLimits
  log: Log
}

/**
 * Checkpoints move `processing ──► ready | failed`. The dump runs in the background; `#dumps` holds those of this process,
 * and a dump cut off by a crash is marked failed at the next start.
 */
export class Checkpoints implements CheckpointService {
  readonly #deps: CheckpointsDeps
  readonly #dumps = new Map<string, Promise<void>>()
  readonly #creations = new KeyedMutex()

  constructor(deps: CheckpointsDeps) {
    this.#deps = deps
  }

  async create(
    orgId: string,
    sandboxId: string,
    input: CreateCheckpoint,
    { creation }: CreateOptions = {},
  ): Promise<Checkpoint> {
    const { store, driver, lifecycle } = this.#deps
    const { name, kind = 'full', retentionPolicy } = input
    demand(name.trim() !== '' && name.length <= nameLengthMax, 'name', `must be 1 to ${nameLengthMax} characters`)
    if (retentionPolicy) demandInteger(retentionPolicy.maxCount, 'retentionPolicy.maxCount', 1, this.#max(kind))
    const [madeId] = creation?.made ?? []
    if (madeId !== undefined) return await this.#made(orgId, madeId, retentionPolicy?.maxCount)
    await lifecycle.get(orgId, sandboxId)
    if (kind === 'full' && !driver.capabilities.fullCheckpoints) {
      const why = driver.capabilities.fullCheckpointsReason ?? 'the runtime cannot keep memory'
      throw new ServiceError('full_checkpoint_unavailable', `no full checkpoint: ${why}. Use kind "disk_only".`)
    }
    // A checkpoint is an operation like any other: the sandbox stays awake for it, and its clock begins anew at the end.
    const release = lifecycle.hold(sandboxId)
    try {
      const sandbox = await lifecycle.awake(sandboxId, orgId)
      const { image, cpuCount, memoryMb, diskMb, envs } = sandbox
      const checkpoint: Checkpoint = {
        id: input.id ?? newId('cp-'),
        orgId,
        sandboxId,
        name,
        kind,
        status: 'processing',
        sizeBytes: 0,
        sandboxConfig: { image, cpuCount, memoryMb, diskMb, envs },
        createdAt: new Date(),
      }
      // One at a time, or calls at the same time would all find the last place free.
      await this.#creations.run(sandboxId, async () => {
        await this.#demandRoom(checkpoint, retentionPolicy !== undefined)
        await store.insertCheckpoint(checkpoint, creation)
      })
      this.#beginDump(checkpoint, retentionPolicy?.maxCount)
      return checkpoint
    } finally {
      release()
    }
  }

  async settled(orgId: string, checkpointId: string): Promise<Checkpoint> {
    await this.#dumps.get(checkpointId)
    return await this.#known(orgId, checkpointId)
  }

  async list(orgId: string, sandboxId: string): Promise<Checkpoint[]> {
    const checkpoints = await this.#deps.store.listCheckpoints(sandboxId, orgId)
    // Checkpoints outlive their sandbox, so that only an empty list needs one.
    if (checkpoints.length === 0) await this.#deps.lifecycle.get(orgId, sandboxId)
    return checkpoints
  }

  async named(prefix: string): Promise<Checkpoint[]> {
    return await this.#deps.store.checkpointsNamed(prefix)
  }

  async delete(orgId: string, sandboxId: string, checkpointId: string): Promise<void> {
    const checkpoint = await this.settled(orgId, checkpointId)
    if (checkpoint.sandboxId !== sandboxId) throw new ServiceError('not_found', `no checkpoint ${checkpointId}`)
    await this.#remove(checkpointId)
  }

  async restore(orgId: string, sandboxId: string, checkpointId: string): Promise<void> {
    const { lifecycle, driver } = this.#deps
    const checkpoint = await this.settled(orgId, checkpointId)
    if (checkpoint.sandboxId !== sandboxId) throw new ServiceError('not_found', `no checkpoint ${checkpointId}`)
    demandReady(checkpoint)
    await lifecycle.get(orgId, sandboxId)
    await lifecycle.replace(sandboxId, async (spec) => {
      const { restores } = await lifecycle.get(orgId, sandboxId)
      // First: whoever reaches a process of the past finds it counted, also after a crash in between.
      await lifecycle.change(sandboxId, { restores: restores + 1 })
      try {
        await driver.restore(spec, checkpointId)
      } catch (error) {
        const startedAnew = isServiceError(error) && error.details['startedAnew'] === true
        if (!startedAnew && (await lifecycle.answers(sandboxId))) await lifecycle.change(sandboxId, { restores })
        throw error
      }
    })
  }

  async start(
    orgId: string,
    checkpointId: string,
    input: StartFromCheckpoint,
    { creation }: CreateOptions = {},
  ): Promise<StartedSandbox> {
    const made = await this.#deps.lifecycle.made(orgId, creation)
    if (made) return { sandbox: made }
    return await this.#start(await this.#startable(orgId, checkpointId, input), input, creation)
  }

  async startMany(
    orgId: string,
    checkpointId: string,
    input: StartFromCheckpoint,
    count: number,
    { creation }: CreateOptions = {},
  ) {
    // Those that an earlier run of the request has made need no checkpoint any more.
    const isRepeat = creation !== undefined && creation.made.length > 0
    const [startable] = await Promise.allSettled([this.#startable(orgId, checkpointId, input)])
    if (startable.status === 'rejected' && !isRepeat) throw startable.reason
    const startOne = async (part?: Creation): Promise<StartedSandbox> => {
      const made = await this.#deps.lifecycle.made(orgId, part)
      if (made) return { sandbox: made }
      if (startable.status === 'rejected') throw startable.reason
      return await this.#start(startable.value, input, part)
    }
    const results: PromiseSettledResult<StartedSandbox>[] = []
    let next = 0
    const startInTurn = async () => {
      while (next < count) {
        const index = next++
        const [result] = await Promise.allSettled([startOne(creation?.part(index))])
        results[index] = result
      }
    }
    await Promise.all(Array.from({ length: Math.min(count, forksAtOnceMax) }, startInTurn))
    return results
  }

  async close(): Promise<void> {
    await Promise.allSettled(this.#dumps.values())
  }

  /** What starts begin with. The patches are those of this moment: one that is created later is for the next call. */
  async #startable(orgId: string, checkpointId: string, input: StartFromCheckpoint) {
    const { limits, store } = this.#deps
    const { timeoutSeconds, memoryMb, envs } = input
    if (timeoutSeconds !== undefined) demandInteger(timeoutSeconds, 'timeout', 0, limits.timeoutSecondsMax)
    if (memoryMb !== undefined) demandInteger(memoryMb, 'memoryMB', limits.memoryMbMin, limits.memoryMbMax)
    if (envs !== undefined) demandEnvs(envs)
    const patches = await store.listPatches(checkpointId)
    const checkpoint = await this.settled(orgId, checkpointId)
    demandReady(checkpoint)
    return { checkpoint, patches }
  }

  async #start(
    { checkpoint, patches }: { checkpoint: Checkpoint; patches: Patch[] },
    input: StartFromCheckpoint,
    creation?: Creation,
  ): Promise<StartedSandbox> {
    const { id = creation?.id('sb-'), timeoutSeconds, memoryMb, envs } = input
    const draft = newSandbox(checkpoint.orgId, {
      ...checkpoint.sandboxConfig,
      ...(id === undefined ? {} : { id }),
      ...(timeoutSeconds === undefined ? {} : { timeoutSeconds }),
      ...(memoryMb === undefined ? {} : { memoryMb }),
      envs: { ...checkpoint.sandboxConfig.envs, ...envs },
      fromCheckpointId: checkpoint.id,
    })
    const sandbox = await this.#deps.lifecycle.create(draft, {
      announced: input.id !== undefined,
      creation,
      prepare: (guest, starting, signal) => this.#deps.patches.run(guest, starting, patches, patchStrategies, signal),
    })
    return { sandbox }
  }

  /** What an earlier run of the request has written down, with its dump, unless that has begun: the run may have failed between. */
  async #made(orgId: string, checkpointId: string, keepMax?: number): Promise<Checkpoint> {
    const checkpoint = await this.#known(orgId, checkpointId)
    if (checkpoint.status === 'processing' && !this.#dumps.has(checkpointId)) this.#beginDump(checkpoint, keepMax)
    return checkpoint
  }

  async #known(orgId: string, checkpointId: string): Promise<Checkpoint> {
    const checkpoint = await this.#deps.store.checkpoint(checkpointId, orgId)
    if (!checkpoint) throw new ServiceError('not_found', `no checkpoint ${checkpointId}`)
    return checkpoint
  }

  #beginDump(checkpoint: Checkpoint, keepMax?: number): void {
    const release = this.#deps.lifecycle.hold(checkpoint.sandboxId)
    const dump = this.#dump(checkpoint, keepMax)
      .finally(() => this.#dumps.delete(checkpoint.id))
      .finally(release)
    this.#dumps.set(checkpoint.id, dump)
  }

  async #dump(checkpoint: Checkpoint, keepMax?: number): Promise<void> {
    const { store, driver, lifecycle, log } = this.#deps
    const { id, sandboxId, kind } = checkpoint
    try {
      const { sizeBytes } = await lifecycle.still(sandboxId, () => driver.checkpoint(sandboxId, id, kind))
      const ready = await store.updateCheckpoint(id, { status: 'ready', sizeBytes })
      if (!ready) await driver.deleteCheckpoint(id)
    } catch (error) {
      if (!(error instanceof ServiceError)) log.error({ err: error, checkpointId: id }, 'a checkpoint failed')
      const reason = error instanceof ServiceError ? error.message : 'the checkpoint could not be written'
      await store.updateCheckpoint(id, { status: 'failed', error: reason }).catch((cause: unknown) => {
        log.error({ err: cause, checkpointId: id }, 'the failure of a checkpoint could not be recorded')
      })
      return
    }
    if (keepMax === undefined) return
    await this.#creations
      .run(sandboxId, () => this.#removeOldest(checkpoint, keepMax))
      .catch((error: unknown) => {
        log.error({ err: error, checkpointId: id }, 'older checkpoints could not be removed')
      })
  }

  #max(kind: CheckpointKind): number {
    const { fullCheckpointsMax, diskOnlyCheckpointsMax } = this.#deps.limits
    return kind === 'full' ? fullCheckpointsMax : diskOnlyCheckpointsMax
  }

  /**
   * Throws `conflict` for a name that is taken and when there is no room for one more. Those that failed hold nothing and
   * make room; with a retention policy the oldest do, but only once the new one is ready: a dump that fails costs nothing.
   */
  async #demandRoom(checkpoint: Checkpoint, oldestMayGo: boolean): Promise<void> {
    const { orgId, sandboxId, name, kind } = checkpoint
    const all = await this.#deps.store.listCheckpoints(sandboxId, orgId)
    if (all.some((other) => other.name === name)) {
      throw new ServiceError('conflict', `sandbox ${sandboxId} has a checkpoint named ${JSON.stringify(name)}`)
    }
    const alike = all.filter((other) => other.kind === kind)
    const max = this.#max(kind)
    const failed = alike.filter(({ status }) => status === 'failed').slice(0, Math.max(0, alike.length - max + 1))
    const inTheWay = alike.filter(({ status }) => status === 'processing' || (status === 'ready' && !oldestMayGo))
    if (inTheWay.length >= max) {
      const count = `${inTheWay.length} ${kind} checkpoints`
      throw new ServiceError('conflict', `sandbox ${sandboxId} has ${count}, the most it may have`)
    }
    for (const { id } of failed) await this.#remove(id)
  }

  /** Leaves `keepMax` of a kind, those that failed first and then the oldest, but never the newest one. */
  async #removeOldest({ id, orgId, sandboxId, kind }: Checkpoint, keepMax: number): Promise<void> {
    const all = await this.#deps.store.listCheckpoints(sandboxId, orgId)
    const alike = all.filter((other) => other.kind === kind && other.status !== 'processing' && !isInternal(other))
    const older = alike.filter((other) => other.id !== id)
    const inTurn = [
      ...older.filter(({ status }) => status === 'failed'),
      ...older.filter(({ status }) => status === 'ready'),
    ]
    for (const other of inTurn.slice(0, Math.max(0, alike.length - keepMax))) await this.#remove(other.id)
  }

  // The record goes first, so that nobody can name it any more. The store remembers the id for the next start, should this end.
  async #remove(checkpointId: string): Promise<void> {
    const { store, driver } = this.#deps
    if (!(await store.deleteCheckpoint(checkpointId))) return
    await driver.deleteCheckpoint(checkpointId)
    await store.forgetCheckpoints([checkpointId])
  }
}

function demandReady(checkpoint: Checkpoint): void {
  if (checkpoint.status === 'ready') return
  const why = checkpoint.error ?? 'no reason known'
  throw new ServiceError('conflict', `checkpoint ${checkpoint.id} has failed: ${why}`)
}
