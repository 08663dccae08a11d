import { ServiceError } from '../errors.ts'
import { KeyedMutex } from '../lib/async/mutex.ts'
import { Semaphore } from '../lib/async/semaphore.ts'
import type { CreateOptions, Creation } from '../lib/creation.ts'
import { defined } from '../lib/defined.ts'
import { newId } from '../lib/id.ts'
import { sha256 } from '../lib/secret.ts'
import { assertInput, assertInteger, assertNewSandbox, previewToken } from './input.ts'
import type { Lifecycle, LifecycleContext } from './lifecycle.ts'
import type { Patch, Patches } from './patch.ts'
import {
  type CheckpointKind,
  type ImageSource,
  type ImportedImage,
  RestartedOnDiskError,
} from './ports/runtime-driver.ts'
import {
  type CreateSandbox,
  type Sandbox,
  type StartedSandbox,
  newSandbox,
  withUser,
  startDefaults,
} from './sandbox.ts'
import type { CheckpointVolume, MountedVolume, VolumeMount, Volumes } from './volume.ts'

/** Sizes and environment that a sandbox started from the checkpoint inherits. */
export type SandboxConfig = Pick<Sandbox, 'image' | 'cpuCount' | 'memoryMb' | 'diskMb' | 'envs' | 'commandDefaults'>

export interface Checkpoint {
  id: string
  orgId: string
  /** The installation whose host has its data; see `Sandbox.hostId`. */
  hostId?: string
  /** The source; it may be deleted long before the checkpoint. */
  sandboxId: string
  /** Unique among the checkpoints of its sandbox. */
  name: string
  kind: CheckpointKind
  status: 'processing' | 'ready' | 'failed'
  sizeBytes: number
  sandboxConfig: SandboxConfig
  /** Every organisation may start sandboxes from it. */
  isPublic?: boolean
  /** Those of the sandbox, which it does not contain. */
  volumes: CheckpointVolume[]
  error?: string
  createdAt: Date
}

export type CheckpointChange = Partial<
  Pick<Checkpoint, 'status' | 'sizeBytes' | 'sandboxConfig' | 'isPublic' | 'volumes'>
> & {
  error?: string | undefined
}

export interface CreateCheckpoint {
  /** For sessions, which recognise their own checkpoints by it. Clients never choose it. */
  id?: string
  name: string
  kind?: CheckpointKind
  /** What a sandbox started from it inherits in place of what the source has. */
  sandboxConfig?: Partial<SandboxConfig>
  /** Of an image: it does not count for the quota of its sandbox. */
  isOfImage?: boolean
  /** Leaves at most `maxCount` of the kind once the new one is ready. A dump that fails deletes none. */
  retentionPolicy?: { mode: 'delete_oldest'; maxCount: number }
}

export interface ImportCheckpoint {
  id: string
  name: string
  source: ImageSource
}

/** `volumes`: in place of those of the checkpoint. From a full one they have the same paths and are as writable. */
export type StartFromCheckpoint = Omit<CreateSandbox, 'image'>

export type CheckpointService = Omit<Checkpoints, 'close'>

/** Starts of one `startMany` call at a time. */
const startsAtOnceMax = 10

interface CheckpointsContext extends Pick<LifecycleContext, 'store' | 'driver' | 'limits' | 'log'> {
  lifecycle: Lifecycle
  patches: Patches
  volumes: Volumes
}

/** `processing ──► ready | failed`. Dumps run in the background; the next start of the server fails those that a crash cut off. */
export class Checkpoints {
  readonly #context: CheckpointsContext
  readonly #dumps = new Map<string, Promise<void>>()
  /** By sandbox. */
  readonly #creations = new KeyedMutex()

  constructor(context: CheckpointsContext) {
    this.#context = context
  }

  /** Returns while the checkpoint is `processing`; `settled` waits for its end. */
  async create(
    orgId: string,
    sandboxId: string,
    input: CreateCheckpoint,
    { creation }: CreateOptions = {},
  ): Promise<Checkpoint> {
    const { store, driver, lifecycle } = this.#context
    const { name, kind = 'full', retentionPolicy } = input
    if (retentionPolicy) assertInteger(retentionPolicy.maxCount, 'retentionPolicy.maxCount', 1, this.#countMax(kind))
    const [madeId] = creation?.made ?? []
    if (madeId !== undefined) return await this.#made(orgId, madeId, retentionPolicy?.maxCount)
    await lifecycle.get(orgId, sandboxId)
    const { fullCheckpoints, fullCheckpointsReason = 'the runtime cannot keep memory' } =
      driver.capabilitiesOf(sandboxId)
    if (kind === 'full' && !fullCheckpoints) {
      const message = `no full checkpoint: ${fullCheckpointsReason}. Use kind "disk_only".`
      throw new ServiceError('full_checkpoint_unavailable', message)
    }
    const release = lifecycle.keepAlive(sandboxId)
    try {
      const sandbox = await lifecycle.awake(sandboxId, orgId)
      const checkpoint: Checkpoint = {
        id: input.id ?? newId('cp-'),
        orgId,
        sandboxId,
        name,
        kind,
        status: 'processing',
        sizeBytes: 0,
        sandboxConfig: { ...configOf(sandbox), ...input.sandboxConfig },
        volumes: sandbox.volumes,
        createdAt: new Date(),
      }
      // Check and insert under one lock; otherwise concurrent calls would all find the last unit of the quota free.
      await this.#creations.run(sandboxId, async () => {
        if (!input.isOfImage) await this.#claim(checkpoint, retentionPolicy !== undefined)
        await store.insertCheckpoint(checkpoint, creation)
      })
      this.#beginDump(checkpoint, retentionPolicy?.maxCount)
      return checkpoint
    } finally {
      release()
    }
  }

  /**
   * Makes a `disk_only` checkpoint of an OCI image; sandboxes from it have its variables, folder and user. Throws what the driver throws, and
   * leaves nothing then.
   */
  async import(orgId: string, input: ImportCheckpoint, signal?: AbortSignal): Promise<ImportedImage> {
    const { store, driver } = this.#context
    const { id, name, source } = input
    if (driver.importImage === undefined) throw new ServiceError('not_implemented', 'this driver imports no images')
    const { image, cpuCount, memoryMb, diskMb } = startDefaults
    const checkpoint: Checkpoint = {
      id,
      orgId,
      // No sandbox has this id.
      sandboxId: newId('sb-'),
      name,
      kind: 'disk_only',
      status: 'processing',
      sizeBytes: 0,
      sandboxConfig: { image, cpuCount, memoryMb, diskMb, envs: {} },
      volumes: [],
      createdAt: new Date(),
    }
    await store.insertCheckpoint(checkpoint)
    try {
      const imported = await driver.importImage(id, source, signal)
      const { env: envs, cwd, user } = imported.config
      const sandboxConfig = { ...checkpoint.sandboxConfig, envs, commandDefaults: defined({ cwd, user }) }
      const change = { status: 'ready', sizeBytes: imported.sizeBytes, sandboxConfig } as const
      if ((await store.updateCheckpoint(id, change)) !== undefined) return imported
      await driver.deleteCheckpoint(id)
      throw new ServiceError('not_found', `checkpoint ${id} was deleted`)
    } catch (error) {
      await this.#remove(id)
      throw error
    }
  }

  /** Throws `invalid_request` for a reference to an OCI image that is none, or in a registry that is not allowed. */
  assertImportable(reference: string): void {
    const { driver } = this.#context
    if (driver.assertImportable === undefined)
      throw new ServiceError('not_implemented', 'this driver imports no images')
    driver.assertImportable(reference)
  }

  /** The checkpoint once it is `ready` or `failed`. */
  async settled(orgId: string, checkpointId: string): Promise<Checkpoint> {
    await this.#dumps.get(checkpointId)
    return await this.#known(orgId, checkpointId)
  }

  /** What sandboxes of the organisation may start from, once it is `ready` or `failed`: its own, and what others have published. */
  async usable(orgId: string, checkpointId: string): Promise<Checkpoint> {
    await this.#dumps.get(checkpointId)
    const checkpoint = await this.#context.store.checkpoint(checkpointId)
    if (checkpoint?.orgId === orgId || checkpoint?.isPublic) return checkpoint
    throw new ServiceError('not_found', `no checkpoint ${checkpointId}`)
  }

  async list(orgId: string, sandboxId: string): Promise<Checkpoint[]> {
    const checkpoints = await this.#context.store.listCheckpoints(sandboxId, orgId)
    // Checkpoints outlive their sandbox, so only an empty list needs the sandbox's record.
    if (checkpoints.length === 0) await this.#context.lifecycle.get(orgId, sandboxId)
    return checkpoints
  }

  /** Of all sandboxes and organisations, those whose name begins with `prefix`: sessions look for their own. */
  async named(prefix: string): Promise<Checkpoint[]> {
    return await this.#context.store.checkpointsNamed(prefix)
  }

  async delete(orgId: string, sandboxId: string, checkpointId: string): Promise<void> {
    await this.#ofSandbox(orgId, sandboxId, checkpointId)
    await this.#remove(checkpointId)
  }

  async restore(orgId: string, sandboxId: string, checkpointId: string): Promise<void> {
    const { lifecycle, driver } = this.#context
    assertReady(await this.#ofSandbox(orgId, sandboxId, checkpointId))
    await lifecycle.get(orgId, sandboxId)
    await lifecycle.replace(sandboxId, async (spec) => {
      const { restores } = await lifecycle.get(orgId, sandboxId)
      // Count first: a client that reaches a process of the past must find the restore counted, also after a crash in between.
      await lifecycle.change(sandboxId, { restores: restores + 1 })
      try {
        await driver.restore(spec, checkpointId)
      } catch (error) {
        const isUntouched = !(error instanceof RestartedOnDiskError) && (await lifecycle.answers(sandboxId))
        if (isUntouched) await lifecycle.change(sandboxId, { restores })
        throw error
      }
    })
  }

  /** Starts a sandbox from it; waits for one that is `processing`. Patches run before it returns (`patch_failed`). */
  async start(
    orgId: string,
    checkpointId: string,
    input: StartFromCheckpoint,
    { creation }: CreateOptions = {},
  ): Promise<StartedSandbox> {
    const made = await this.#context.lifecycle.made(orgId, creation)
    if (made) return { sandbox: made, ...shownToken(input, creation) }
    return await this.#start(orgId, await this.#startable(orgId, checkpointId, input), input, creation)
  }

  /** Starts `count` sandboxes, each with a result of its own; throws what would fail every one of them. */
  async startMany(
    orgId: string,
    checkpointId: string,
    input: StartFromCheckpoint,
    count: number,
    { creation }: CreateOptions = {},
  ): Promise<PromiseSettledResult<StartedSandbox>[]> {
    // Sandboxes that an earlier run of the request has made do not need the checkpoint any more.
    const isRepeat = creation !== undefined && creation.made.length > 0
    const [startable] = await Promise.allSettled([this.#startable(orgId, checkpointId, input)])
    if (startable.status === 'rejected' && !isRepeat) throw startable.reason
    const startOne = async (part?: Creation): Promise<StartedSandbox> => {
      const made = await this.#context.lifecycle.made(orgId, part)
      if (made) return { sandbox: made }
      if (startable.status === 'rejected') throw startable.reason
      return await this.#start(orgId, startable.value, input, part)
    }
    const semaphore = new Semaphore({ permits: startsAtOnceMax })
    const starts = Array.from({ length: count }, (_, index) => semaphore.use(() => startOne(creation?.part(index))))
    return await Promise.allSettled(starts)
  }

  async close(): Promise<void> {
    await Promise.allSettled(this.#dumps.values())
  }

  /** Reads the patches once for the call: a patch that is created later applies to the next call. */
  async #startable(orgId: string, checkpointId: string, input: StartFromCheckpoint) {
    const { limits, store } = this.#context
    assertNewSandbox(input, limits)
    const patches = await store.listPatches(checkpointId)
    const checkpoint = await this.usable(orgId, checkpointId)
    assertReady(checkpoint)
    return { checkpoint, patches }
  }

  async #start(
    orgId: string,
    { checkpoint, patches }: { checkpoint: Checkpoint; patches: Patch[] },
    input: StartFromCheckpoint,
    creation?: Creation,
  ): Promise<StartedSandbox> {
    const { id = creation?.id('sb-'), timeoutSeconds, cpuCount, memoryMb, diskMb, envs, metadata, user } = input
    const { sandboxConfig } = checkpoint
    const volumes = await this.#volumesOf(orgId, checkpoint, input.volumes, id)
    const draft = newSandbox(orgId, {
      ...sandboxConfig,
      ...defined({ id, timeoutSeconds, cpuCount, memoryMb, diskMb, metadata }),
      volumes,
      envs: { ...sandboxConfig.envs, ...envs },
      commandDefaults: withUser(sandboxConfig.commandDefaults, user),
      fromCheckpointId: checkpoint.id,
    })
    const shown = shownToken(input, creation)
    if (shown.previewAuthToken !== undefined) draft.previewTokenHash = sha256(shown.previewAuthToken)
    const sandbox = await this.#context.lifecycle.create(draft, {
      isAnnounced: input.id !== undefined,
      keepsMemory: checkpoint.kind === 'full',
      creation,
      prepare: (guest, starting, signal) => this.#context.patches.run('start', guest, starting, patches, signal),
    })
    return { sandbox, ...shown }
  }

  /**
   * What a start gets: volumes of the organisation that starts, whoever owns the checkpoint. A second writer is a `conflict`, and so is
   * each start from a checkpoint whose source writes a volume.
   */
  async #volumesOf(
    orgId: string,
    { kind, volumes }: Checkpoint,
    given: readonly VolumeMount[] | undefined,
    sandboxId: string | undefined,
  ): Promise<MountedVolume[]> {
    if (given === undefined) return await this.#context.volumes.reclaimable(orgId, volumes, sandboxId)
    const claimed = await this.#context.volumes.claimable(orgId, given, sandboxId)
    if (kind === 'full') {
      const [had, has] = [volumes, claimed].map((some) => some.map(({ path, readOnly }) => `${path} ${readOnly}`))
      const isAlike = had?.toSorted().join('\n') === has?.toSorted().join('\n')
      assertInput(isAlike, 'volumes', 'must have the paths and readOnly of those of a full checkpoint')
    }
    return claimed
  }

  /** The record of an earlier run of the request. That run may have failed before the dump, which then begins here. */
  async #made(orgId: string, checkpointId: string, keepMax?: number): Promise<Checkpoint> {
    const checkpoint = await this.#known(orgId, checkpointId)
    if (checkpoint.status === 'processing' && !this.#dumps.has(checkpointId)) this.#beginDump(checkpoint, keepMax)
    return checkpoint
  }

  async #ofSandbox(orgId: string, sandboxId: string, checkpointId: string): Promise<Checkpoint> {
    const checkpoint = await this.settled(orgId, checkpointId)
    if (checkpoint.sandboxId !== sandboxId) throw new ServiceError('not_found', `no checkpoint ${checkpointId}`)
    return checkpoint
  }

  async #known(orgId: string, checkpointId: string): Promise<Checkpoint> {
    const checkpoint = await this.#context.store.checkpoint(checkpointId, orgId)
    if (!checkpoint) throw new ServiceError('not_found', `no checkpoint ${checkpointId}`)
    return checkpoint
  }

  /** Lets every organisation start sandboxes from it, or ends that. Throws `forbidden` for one that another organisation has published. */
  async publish(orgId: string, checkpointId: string, isPublic: boolean): Promise<Checkpoint> {
    const checkpoint = await this.usable(orgId, checkpointId)
    if (checkpoint.orgId !== orgId)
      throw new ServiceError('forbidden', `checkpoint ${checkpointId} is of another organisation`)
    return (await this.#context.store.updateCheckpoint(checkpointId, { isPublic })) ?? checkpoint
  }

  #beginDump(checkpoint: Checkpoint, keepMax?: number): void {
    const release = this.#context.lifecycle.keepAlive(checkpoint.sandboxId)
    const dump = this.#dump(checkpoint, keepMax)
      .finally(() => this.#dumps.delete(checkpoint.id))
      .finally(release)
    this.#dumps.set(checkpoint.id, dump)
  }

  async #dump(checkpoint: Checkpoint, keepMax?: number): Promise<void> {
    const { store, driver, lifecycle, log } = this.#context
    const { id, sandboxId, kind } = checkpoint
    try {
      const { sizeBytes, ...more } = await lifecycle.withoutTransitions(sandboxId, async () => {
        const volumes =
          checkpoint.volumes.length === 0 ? undefined : await this.#context.volumes.states(checkpoint.volumes)
        return { ...(await driver.checkpoint(sandboxId, id, kind)), ...defined({ volumes }) }
      })
      const ready = await store.updateCheckpoint(id, { status: 'ready', sizeBytes, ...more })
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

  #countMax(kind: CheckpointKind): number {
    const { fullCheckpointsMax, diskOnlyCheckpointsMax } = this.#context.limits
    return kind === 'full' ? fullCheckpointsMax : diskOnlyCheckpointsMax
  }

  /**
   * Throws `conflict` for a taken name and for a used-up quota of the kind. Failed checkpoints hold no data and are removed to free
   * their unit. With a retention policy ready ones do not count: they go once the new one is ready.
   */
  async #claim(checkpoint: Checkpoint, isRetained: boolean): Promise<void> {
    const { orgId, sandboxId, name, kind } = checkpoint
    const all = await this.#context.store.listCheckpoints(sandboxId, orgId)
    if (all.some((other) => other.name === name)) {
      throw new ServiceError('conflict', `sandbox ${sandboxId} has a checkpoint named ${JSON.stringify(name)}`)
    }
    const alike = all.filter((other) => other.kind === kind)
    const max = this.#countMax(kind)
    const failed = alike.filter(({ status }) => status === 'failed').slice(0, Math.max(0, alike.length - max + 1))
    const counted = alike.filter(({ status }) => status === 'processing' || (status === 'ready' && !isRetained))
    if (counted.length >= max) {
      const count = `${counted.length} ${kind} checkpoints`
      throw new ServiceError('conflict', `sandbox ${sandboxId} has ${count}, the most it may have`)
    }
    for (const { id } of failed) await this.#remove(id)
  }

  /** Leaves `keepMax` of a kind. Failed ones go first, then the oldest, never the newest. */
  async #removeOldest({ id, orgId, sandboxId, kind }: Checkpoint, keepMax: number): Promise<void> {
    const all = await this.#context.store.listCheckpoints(sandboxId, orgId)
    const alike = all.filter((other) => other.kind === kind && other.status !== 'processing' && !isInternal(other))
    const older = alike.filter((other) => other.id !== id)
    const failedFirst = (['failed', 'ready'] as const).flatMap((status) => older.filter((it) => it.status === status))
    for (const other of failedFirst.slice(0, Math.max(0, alike.length - keepMax))) await this.#remove(other.id)
  }

  // The record goes first, so that no call can name it. The store remembers the id for the next start, in case of a crash here.
  async #remove(checkpointId: string): Promise<void> {
    const { store, driver } = this.#context
    if (!(await store.deleteCheckpoint(checkpointId))) return
    await driver.deleteCheckpoint(checkpointId)
    await store.forgetCheckpoints([checkpointId])
  }
}

export function configOf({ image, cpuCount, memoryMb, diskMb, envs, commandDefaults }: Sandbox): SandboxConfig {
  return { image, cpuCount, memoryMb, diskMb, envs, ...defined({ commandDefaults }) }
}

/** Whether the service made it for its own use. Its name then ends with the unique part of its id: clients choose names, never ids. */
function isInternal({ id, name }: Checkpoint): boolean {
  return name.endsWith(id.slice('cp-'.length))
}

function shownToken({ previewAuth }: StartFromCheckpoint, creation?: Creation): { previewAuthToken?: string } {
  return defined({ previewAuthToken: previewAuth && previewToken(previewAuth, 'previewAuth', creation) })
}

function assertReady(checkpoint: Checkpoint): void {
  if (checkpoint.status === 'ready') return
  const why = checkpoint.error ?? 'no reason known'
  throw new ServiceError('conflict', `checkpoint ${checkpoint.id} has failed: ${why}`)
}
