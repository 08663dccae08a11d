import { ServiceError } from '../errors.ts'
import type { CreateOptions } from '../lib/creation.ts'
import { defined } from '../lib/defined.ts'
import { CheckpointExpiry } from './checkpoint-expiry.ts'
import {
  assertOutlives,
  type Checkpoint,
  type CheckpointDependents,
  type CheckpointOwner,
  CheckpointRecords,
  countsForSandbox,
  type CreateCheckpoint,
  newCheckpoint,
  type SavedCheckpoint,
  secondsAfter,
} from './checkpoint-records.ts'
import { Forks, type ForksContext } from './fork.ts'
import { assertInteger, lifeSecondsMax } from './input.ts'
import type { LifecycleContext } from './lifecycle.ts'
import {
  assertDiskTakesData,
  type ImageSource,
  type ImageTarget,
  type ImportedImage,
  RestartedOnDiskError,
} from './ports/runtime-driver.ts'
import type { CheckpointQuery, Page } from './ports/sandbox-store.ts'
import { newSandbox, type Sandbox } from './sandbox.ts'

export interface ListedCheckpoint {
  checkpoint: Checkpoint
  dependents: CheckpointDependents
  /** Of a sandbox that is not stopped. */
  sandboxName?: string
}

/** Without an `owner` the list leaves those of turns out. */
export type ListCheckpoints = Omit<CheckpointQuery, 'orgId' | 'withoutTurns'>

export interface ImportCheckpoint {
  id: string
  name: string
  source: ImageSource
}

export type CheckpointService = Omit<Checkpoints, 'close' | 'keepMemory' | 'deleteExpired' | 'using'>

type CheckpointsContext = Pick<LifecycleContext, 'driver' | 'log' | 'disk' | 'quotaOf'> & Omit<ForksContext, 'ready'>

/** `processing ──► ready | failed`. Dumps run in the background; the next start of the server fails those that a crash cut off. */
export class Checkpoints {
  readonly start: Forks['start']
  readonly startMany: Forks['startMany']
  /** Keeps a checkpoint from its expiry during work that reads it. */
  readonly using: CheckpointExpiry['using']
  readonly #context: CheckpointsContext
  readonly #dumps = new Map<string, Promise<void>>()
  readonly #records: CheckpointRecords
  readonly #expiry: CheckpointExpiry

  constructor(context: CheckpointsContext) {
    this.#context = context
    this.#records = new CheckpointRecords(context)
    const ready = async (orgId: string, checkpointId: string) => assertReady(await this.usable(orgId, checkpointId))
    const forks = new Forks({ ...context, ready })
    const expiry = new CheckpointExpiry({ ...context, records: this.#records })
    this.#expiry = expiry
    this.using = (id, work) => expiry.using(id, work)
    this.start = (orgId, id, ...rest) => expiry.using(id, () => forks.start(orgId, id, ...rest))
    this.startMany = (orgId, id, ...rest) => expiry.using(id, () => forks.startMany(orgId, id, ...rest))
  }

  /** Returns while the checkpoint is `processing`; `settled` waits for its end. */
  async create(
    orgId: string,
    sandboxId: string,
    input: CreateCheckpoint,
    { creation }: CreateOptions = {},
  ): Promise<Checkpoint> {
    const { driver, lifecycle } = this.#context
    const { kind = 'full', retentionPolicy, expiresInSeconds } = input
    if (expiresInSeconds !== undefined) assertInteger(expiresInSeconds, 'expiresInSeconds', 1, lifeSecondsMax)
    if (retentionPolicy)
      assertInteger(retentionPolicy.maxCount, 'retentionPolicy.maxCount', 1, this.#records.countMax(kind))
    const [madeId] = creation?.made ?? []
    if (madeId !== undefined) return await this.#findMade(orgId, madeId, retentionPolicy?.maxCount)
    await lifecycle.read(sandboxId, orgId)
    // Before the dump, which would fail in the background.
    assertDiskTakesData(driver)
    const { fullCheckpoints, fullCheckpointsReason = 'the runtime cannot keep memory' } =
      driver.capabilitiesOf(sandboxId)
    if (kind === 'full' && !fullCheckpoints) {
      const message = `no full checkpoint: ${fullCheckpointsReason}. Use kind "disk_only".`
      throw new ServiceError('full_checkpoint_unavailable', message)
    }
    const release = lifecycle.keepAlive(sandboxId)
    try {
      const sandbox = await lifecycle.wakes.ensureRunning(sandboxId, orgId)
      const checkpoint = newCheckpoint(sandbox, { ...input, kind })
      const isRetained = retentionPolicy !== undefined
      if (countsForSandbox(checkpoint.owner)) await this.#records.claim(checkpoint, { isRetained, creation })
      else await this.#records.insert(checkpoint, creation)
      this.#beginDump(checkpoint, retentionPolicy?.maxCount)
      return checkpoint
    } finally {
      release()
    }
  }

  /**
   * Keeps the saved memory of a hibernated sandbox, with a copy of its disk, as a checkpoint; for the holder of its lock. Does nothing without
   * memory, or when an earlier call has kept it. Throws `conflict` at the limit of full checkpoints, and what the driver throws. A failure
   * leaves nothing; what a crash leaves the next start removes.
   */
  async keepMemory(sandbox: Sandbox): Promise<void> {
    const { store, driver } = this.#context
    if (!driver.hasMemory(sandbox.id)) return
    const earlier = await store.listCheckpoints(sandbox.id, sandbox.orgId)
    if (earlier.some(({ id, status }) => status === 'ready' && driver.isMemoryKept(sandbox.id, id))) return
    const name = `before-cold-wake-${new Date().toISOString()}`
    const checkpoint = newCheckpoint(sandbox, { owner: 'wake', name, kind: 'full' })
    await this.#records.claim(checkpoint)
    try {
      await this.#records.setReady(checkpoint, await this.#save(checkpoint))
    } catch (error) {
      await this.#records.remove(checkpoint.id)
      // The driver found the disk newer than the memory, and dropped the memory.
      if (driver.hasMemory(sandbox.id)) throw error
    }
  }

  /**
   * Makes a `disk_only` checkpoint of an OCI image; sandboxes from it have its variables, folder and user. Throws what the driver throws, and
   * leaves nothing then.
   */
  async import(orgId: string, input: ImportCheckpoint, signal?: AbortSignal): Promise<ImportedImage> {
    const { driver } = this.#context
    const { id, name, source } = input
    if (driver.importImage === undefined) throw new ServiceError('not_implemented', 'this driver imports no images')
    // No sandbox has the id of this record, which is not stored.
    const checkpoint = newCheckpoint(newSandbox(orgId, {}), { id, owner: 'image', name, kind: 'disk_only' })
    await this.#records.insert(checkpoint)
    try {
      const imported = await driver.importImage(id, source, signal, orgId)
      const { env: envs, cwd, user } = imported.config
      const sandboxConfig = { ...checkpoint.sandboxConfig, envs, commandDefaults: defined({ cwd, user }) }
      const { sizeBytes } = imported
      if ((await this.#records.setReady(checkpoint, { sizeBytes, sandboxConfig })) !== undefined) return imported
      await driver.deleteCheckpoint(id)
      throw new ServiceError('not_found', `checkpoint ${id} was deleted`)
    } catch (error) {
      await this.#records.remove(id)
      throw error
    }
  }

  /** Throws `invalid_request` for a reference to an OCI image that is none, or in a registry that is not allowed. */
  assertImportable(reference: string, field: 'image.oci' | 'reference' = 'image.oci'): void {
    const { driver } = this.#context
    if (driver.assertImportable === undefined)
      throw new ServiceError('not_implemented', 'this driver imports no images')
    driver.assertImportable(reference, field)
  }

  /** See `RuntimeDriver.pushImage`. */
  async push(
    archive: AsyncIterable<Uint8Array>,
    target: ImageTarget,
    signal: AbortSignal,
  ): Promise<{ digest: string }> {
    const { driver } = this.#context
    if (driver.pushImage === undefined) throw new ServiceError('not_implemented', 'this driver pushes no images')
    return await driver.pushImage(archive, target, signal)
  }

  /** The checkpoint once it is `ready` or `failed`. */
  async settled(orgId: string, checkpointId: string): Promise<Checkpoint> {
    await this.#dumps.get(checkpointId)
    return await this.#read(orgId, checkpointId)
  }

  /** What sandboxes of the organisation may start from, once it is `ready` or `failed`: its own, and what others have published. */
  async usable(orgId: string, checkpointId: string): Promise<Checkpoint> {
    await this.#dumps.get(checkpointId)
    const checkpoint = await this.#context.store.checkpoint(checkpointId)
    if (checkpoint?.orgId === orgId || checkpoint?.isPublic) return checkpoint
    throw new ServiceError('not_found', `no checkpoint ${checkpointId}`)
  }

  /** The id of the checkpoint of this name that the sandbox has. Throws `not_found`. */
  async idNamed(orgId: string, sandboxId: string, name: string): Promise<string> {
    const id = await this.#context.store.checkpointNamed(name, sandboxId, orgId)
    if (id === undefined) throw new ServiceError('not_found', `sandbox ${sandboxId} has no checkpoint ${name}`)
    return id
  }

  /** Of one sandbox, oldest first: those of an owner, or all but those of turns. */
  async list(orgId: string, sandboxId: string, owner?: CheckpointOwner): Promise<Checkpoint[]> {
    const checkpoints = await this.#context.store.listCheckpoints(sandboxId, orgId)
    // Checkpoints outlive their sandbox, so only an empty list needs the sandbox's record.
    if (checkpoints.length === 0) await this.#context.lifecycle.read(sandboxId, orgId)
    return checkpoints.filter((one) => (owner === undefined ? one.owner !== 'turn' : one.owner === owner))
  }

  /** Of all sandboxes and organisations: images and sessions look for what no row of theirs names. */
  async listOwnedBy(owner: CheckpointOwner): Promise<Checkpoint[]> {
    return await this.#context.store.checkpointsOwnedBy(owner)
  }

  /** Of all sandboxes, newest first. */
  async page(orgId: string, query: ListCheckpoints): Promise<Page<ListedCheckpoint>> {
    const withoutTurns = query.owner === undefined
    const { items, ...rest } = await this.#context.store.checkpointPage({ orgId, ...query, withoutTurns })
    return { items: await this.#withDependents(items), ...rest }
  }

  async get(orgId: string, checkpointId: string): Promise<ListedCheckpoint> {
    const checkpoint = await this.#read(orgId, checkpointId)
    const [listed] = await this.#withDependents([checkpoint])
    return listed ?? { checkpoint, dependents: noDependents }
  }

  /** Sets when it is deleted by itself, from now; undefined: never. Throws `conflict` for one that an image or session deletes. */
  async setExpiry(
    orgId: string,
    checkpointId: string,
    expiresInSeconds: number | undefined,
  ): Promise<ListedCheckpoint> {
    if (expiresInSeconds !== undefined) assertInteger(expiresInSeconds, 'expiresInSeconds', 1, lifeSecondsMax)
    assertOutlives(await this.#read(orgId, checkpointId))
    await this.#context.store.updateCheckpoint(checkpointId, { expiresAt: secondsAfter(new Date(), expiresInSeconds) })
    return await this.get(orgId, checkpointId)
  }

  /** Deletes those whose time is over, of all organisations, unless something needs them. */
  async deleteExpired(signal: AbortSignal): Promise<void> {
    await this.#expiry.deleteExpired(signal)
  }

  /** `sandboxId`: throws `not_found` when it is of another sandbox. Throws `conflict` for that of a turn, which its session deletes. */
  async delete(orgId: string, sandboxId: string | undefined, checkpointId: string): Promise<void> {
    const checkpoint =
      sandboxId === undefined
        ? await this.settled(orgId, checkpointId)
        : await this.#readOfSandbox(orgId, sandboxId, checkpointId)
    if (checkpoint.owner === 'turn') assertOutlives(checkpoint)
    await this.#records.remove(checkpointId)
  }

  /** Deletes one for whoever owns it. Throws `not_found`. */
  async deleteOwned(orgId: string, checkpointId: string): Promise<void> {
    await this.settled(orgId, checkpointId)
    await this.#records.remove(checkpointId)
  }

  async #withDependents(checkpoints: Checkpoint[]): Promise<ListedCheckpoint[]> {
    if (checkpoints.length === 0) return []
    const { store } = this.#context
    const found = await store.checkpointDependents(checkpoints.map(({ id }) => id))
    const names = await store.sandboxNames(checkpoints.map(({ sandboxId }) => sandboxId))
    return checkpoints.map((checkpoint) => ({
      checkpoint,
      dependents: found.get(checkpoint.id) ?? noDependents,
      ...defined({ sandboxName: names.get(checkpoint.sandboxId) }),
    }))
  }

  /** Puts a sandbox back to a checkpoint of its own, in place. */
  async restore(orgId: string, sandboxId: string, checkpointId: string): Promise<void> {
    await this.#expiry.using(checkpointId, async () => {
      assertReady(await this.#readOfSandbox(orgId, sandboxId, checkpointId))
      await this.#restore(orgId, sandboxId, checkpointId)
    })
  }

  /**
   * Likewise to any checkpoint of the organisation, also of another sandbox. Its sizes and volumes stay; no request of a client leads here. From
   * one without memory it starts as from a hibernation without: `on_resume` patches run (`patch_failed`, with the restore made).
   */
  async restoreFrom(orgId: string, sandboxId: string, checkpointId: string): Promise<void> {
    await this.#expiry.using(checkpointId, async () => {
      const { kind } = assertReady(await this.settled(orgId, checkpointId))
      await this.#restore(orgId, sandboxId, checkpointId)
      if (kind === 'full') return
      const { patches, lifecycle } = this.#context
      const { signal } = new AbortController()
      await lifecycle.use(orgId, sandboxId, async (guest, sandbox) =>
        patches.run('wake', guest, sandbox, await patches.listFor(sandbox), signal),
      )
    })
  }

  async #restore(orgId: string, sandboxId: string, checkpointId: string): Promise<void> {
    const { lifecycle, driver } = this.#context
    await lifecycle.read(sandboxId, orgId)
    await lifecycle.replace(sandboxId, async (spec) => {
      const { restores } = await lifecycle.read(sandboxId, orgId)
      // Count first: a client that reaches a process of the past must find the restore counted, also after a crash in between.
      await lifecycle.change(sandboxId, { restores: restores + 1 })
      try {
        await driver.restore(spec, checkpointId)
      } catch (error) {
        const isUntouched = !(error instanceof RestartedOnDiskError) && (await lifecycle.ends.answers(sandboxId))
        if (isUntouched) await lifecycle.change(sandboxId, { restores })
        throw error
      }
    })
  }

  async close(): Promise<void> {
    await Promise.allSettled(this.#dumps.values())
  }

  /** The record of an earlier run of the request. That run may have failed before the dump, which then begins here. */
  async #findMade(orgId: string, checkpointId: string, keepMax?: number): Promise<Checkpoint> {
    const checkpoint = await this.#read(orgId, checkpointId)
    if (checkpoint.status === 'processing' && !this.#dumps.has(checkpointId)) this.#beginDump(checkpoint, keepMax)
    return checkpoint
  }

  async #readOfSandbox(orgId: string, sandboxId: string, checkpointId: string): Promise<Checkpoint> {
    const checkpoint = await this.settled(orgId, checkpointId)
    if (checkpoint.sandboxId !== sandboxId) throw new ServiceError('not_found', `no checkpoint ${checkpointId}`)
    return checkpoint
  }

  async #read(orgId: string, checkpointId: string): Promise<Checkpoint> {
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
    const { id, sandboxId } = checkpoint
    try {
      const saved = await lifecycle.withoutTransitions(sandboxId, () => this.#save(checkpoint))
      const ready = await this.#records.setReady(checkpoint, saved)
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
    await this.#records.removeOldest(checkpoint, keepMax).catch((error: unknown) => {
      log.error({ err: error, checkpointId: id }, 'older checkpoints could not be removed')
    })
  }

  async #save({ id, sandboxId, kind, volumes: mounted }: Checkpoint): Promise<SavedCheckpoint> {
    const volumes = mounted.length === 0 ? undefined : await this.#context.volumes.readStates(mounted)
    const { sizeBytes } = await this.#context.driver.checkpoint(sandboxId, id, kind)
    return { sizeBytes, ...defined({ volumes }) }
  }
}

const noDependents: CheckpointDependents = { sandboxes: 0, sessions: 0, images: 0, checkpoints: 0 }

/** Throws `conflict` for one that has failed, with the reason. */
export function assertReady(checkpoint: Checkpoint): Checkpoint {
  if (checkpoint.status === 'ready') return checkpoint
  const why = checkpoint.error ?? 'no reason known'
  throw new ServiceError('conflict', `checkpoint ${checkpoint.id} has failed: ${why}`)
}
