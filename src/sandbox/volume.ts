import { ServiceError, isServiceError } from '../errors.ts'
import { KeyedMutex } from '../lib/async/mutex.ts'
import type { CreateOptions } from '../lib/creation.ts'
import { defined } from '../lib/defined.ts'
import { newId } from '../lib/id.ts'
import type { Log } from '../lib/log.ts'
import type { DiskQuota } from './disk-quota.ts'
import { assertInput, assertInteger } from './input.ts'
import type { RuntimeDriver, SandboxVolume, VolumeState } from './ports/runtime-driver.ts'
import type { SandboxStore } from './ports/sandbox-store.ts'
import type { SandboxLimits } from './quota.ts'
import { assertVolumeName, assertVolumePaths } from './volume-input.ts'

/** A folder with a size of its own that outlives sandboxes. */
export interface Volume {
  id: string
  orgId: string
  /** The installation whose host has its data; see `Sandbox.hostId`. */
  hostId?: string
  /** Unique in its organisation. */
  name: string
  sizeMb: number
  /** What it is a clone of, as the request named it: `volume` or `volume@snapshot`. */
  source?: string
  createdAt: Date
}

/** A volume as it was at one moment. */
export interface VolumeSnapshot {
  id: string
  orgId: string
  volumeId: string
  /** Unique among the snapshots of its volume. */
  name: string
  /** Of the volume. */
  sizeMb: number
  createdAt: Date
}

/** A sandbox has a volume, from before its first start until its machine is gone. At most one attachment of a volume writes. */
export interface VolumeAttachment {
  sandboxId: string
  volumeId: string
  path: string
  readOnly: boolean
}

/** A volume as one sandbox has it mounted. */
export interface MountedVolume extends SandboxVolume {
  name: string
}

/** A volume that a checkpoint's sandbox had. The checkpoint does not contain it. */
export interface CheckpointVolume extends MountedVolume {
  /** Of the volume before the dump; see `VolumeState`. Absent until the checkpoint is `ready`, and for a volume without data. */
  generation?: number
}

export interface VolumeMount {
  name: string
  path: string
  /** Default: false. */
  readOnly?: boolean
}

export interface CreateVolume {
  name: string
  /** Default: that of the source, else 10 240. */
  sizeMb?: number
  /** `volume` or `volume@snapshot`. */
  from?: string
}

/** The state is absent while the driver has no data of it. */
export interface VolumeDetails extends Partial<VolumeState> {
  volume: Volume
  attachments: VolumeAttachment[]
}

export type VolumeService = Omit<Volumes, 'resolve' | 'resolveAgain' | 'readStates'>

interface VolumesContext {
  store: SandboxStore
  driver: Pick<RuntimeDriver, 'createVolume' | 'deleteVolume' | 'snapshotVolume' | 'volumeState'>
  disk: DiskQuota
  limits: SandboxLimits
  log: Log
}

const sizeMbDefault = 10_240
const namedMax = 5

/**
 * Volumes, their snapshots, and who may have them. The record of a volume is written after its data and deleted before it; the id is
 * remembered meanwhile, so that the next start removes what a crash leaves. A volume has one writer at most: the database refuses a
 * second attachment that writes.
 */
export class Volumes {
  readonly #context: VolumesContext
  /** By organisation: checks and the work that they allow run under one lock. */
  readonly #changes = new KeyedMutex()

  constructor(context: VolumesContext) {
    this.#context = context
  }

  async create(orgId: string, input: CreateVolume, { creation }: CreateOptions = {}): Promise<Volume> {
    const { store, driver, disk, limits } = this.#context
    const [madeId] = creation?.made ?? []
    if (madeId !== undefined) return (await store.volume(orgId, { id: madeId })) ?? noVolume(input.name)
    const { name, from } = input
    assertVolumeName(name, 'name')
    if (input.sizeMb !== undefined) assertInteger(input.sizeMb, 'sizeMB', limits.volumeMbMin, limits.volumeMbMax)
    return await this.#changes.run(orgId, async () => {
      const volumes = await store.listVolumes(orgId)
      if (volumes.some((volume) => volume.name === name)) {
        throw new ServiceError('conflict', `the organisation has a volume named ${name}`)
      }
      assertRoom(volumes.length, limits.volumesMax, 'the organisation', 'volumes')
      const source = from === undefined ? undefined : await this.#findSource(orgId, from)
      const sizeMb = input.sizeMb ?? source?.sizeMb ?? Math.min(sizeMbDefault, limits.volumeMbMax)
      assertInput(sizeMb >= (source?.sizeMb ?? 0), 'sizeMB', `must be at least that of ${from}, ${source?.sizeMb}`)
      const id = newId('vol-')
      const volume: Volume = { id, orgId, name, sizeMb, ...defined({ source: from }), createdAt: new Date() }
      const make = () =>
        this.#make(
          id,
          () => driver.createVolume({ id, sizeMb, ...defined({ from: source?.id }) }),
          () => store.insertVolume(volume, creation),
        )
      await disk.claimMb(orgId, sizeMb, make)
      return volume
    })
  }

  list(orgId: string): Promise<Volume[]> {
    return this.#context.store.listVolumes(orgId)
  }

  async get(orgId: string, name: string): Promise<VolumeDetails> {
    const { store, driver } = this.#context
    const volume = await this.#read(orgId, name)
    const attachments = await store.volumeAttachments(volume.id)
    return { volume, attachments, ...(await driver.volumeState(volume.id)) }
  }

  /** Throws `conflict`, with their names, while sandboxes have it or snapshots of it are left. Its clones stay. */
  async delete(orgId: string, name: string): Promise<void> {
    const { store } = this.#context
    await this.#changes.run(orgId, async () => {
      const { id } = await this.#read(orgId, name)
      const holders = (await store.volumeAttachments(id)).map(({ sandboxId }) => sandboxId)
      if (holders.length > 0) throw inUse(name, { sandboxIds: holders })
      const snapshots = (await store.listVolumeSnapshots(id)).map((snapshot) => snapshot.name)
      if (snapshots.length > 0) throw inUse(name, { snapshots })
      await this.#remove(id)
    })
  }

  async createSnapshot(
    orgId: string,
    volumeName: string,
    name: string,
    { creation }: CreateOptions = {},
  ): Promise<VolumeSnapshot> {
    const { store, driver, disk, limits } = this.#context
    assertVolumeName(name, 'name')
    const [madeId] = creation?.made ?? []
    return await this.#changes.run(orgId, async () => {
      const { id: volumeId, sizeMb } = await this.#read(orgId, volumeName)
      const snapshots = await store.listVolumeSnapshots(volumeId)
      const made = snapshots.find((snapshot) => snapshot.id === madeId)
      if (madeId !== undefined) return made ?? noSnapshot(volumeName, name)
      if (snapshots.some((snapshot) => snapshot.name === name)) {
        throw new ServiceError('conflict', `volume ${volumeName} has a snapshot named ${name}`)
      }
      assertRoom(snapshots.length, limits.snapshotsPerVolumeMax, `volume ${volumeName}`, 'snapshots')
      const snapshot: VolumeSnapshot = { id: newId('vol-'), orgId, volumeId, name, sizeMb, createdAt: new Date() }
      const make = () =>
        this.#make(
          snapshot.id,
          () => driver.snapshotVolume(volumeId, snapshot.id),
          () => store.insertVolumeSnapshot(snapshot, creation),
        )
      // Claim the whole size: a snapshot shares nothing with a volume that has been written anew.
      await disk.claimMb(orgId, sizeMb, make)
      return snapshot
    })
  }

  /** Oldest first. */
  async listSnapshots(orgId: string, volumeName: string): Promise<VolumeSnapshot[]> {
    return await this.#context.store.listVolumeSnapshots((await this.#read(orgId, volumeName)).id)
  }

  async deleteSnapshot(orgId: string, volumeName: string, name: string): Promise<void> {
    await this.#changes.run(orgId, async () => {
      await this.#remove((await this.#readSnapshot(orgId, volumeName, name)).id)
    })
  }

  /**
   * Finds the volumes that a new sandbox asks for. Throws `invalid_request` and `not_found` with the field, and `conflict` when another sandbox than
   * `sandboxId` writes a volume that this one wants to write.
   */
  async resolve(orgId: string, mounts: readonly VolumeMount[], sandboxId?: string): Promise<MountedVolume[]> {
    assertVolumePaths(mounts, this.#context.limits.volumesPerSandboxMax)
    const volumes = await Promise.all(
      mounts.map(async ({ name, path, readOnly = false }, index) => {
        const { id } = await this.#read(orgId, name, `volumes.${index}.name`)
        return { id, name, path, readOnly }
      }),
    )
    await this.#assertNoWriter(volumes, sandboxId)
    return volumes
  }

  /** Like `resolve`, for a sandbox that starts from a checkpoint and gets the volumes of its source. */
  async resolveAgain(
    orgId: string,
    volumes: readonly CheckpointVolume[],
    sandboxId?: string,
  ): Promise<MountedVolume[]> {
    for (const { id, name } of volumes) {
      if (await this.#context.store.volume(orgId, { id })) continue
      throw new ServiceError('not_found', `volume ${name} of the checkpoint is gone: name others in volumes`)
    }
    const claimed = volumes.map(({ generation: _generation, ...volume }) => volume)
    await this.#assertNoWriter(claimed, sandboxId)
    return claimed
  }

  /** Volumes with their generations; that of one without data is left out. */
  async readStates(volumes: readonly MountedVolume[]): Promise<CheckpointVolume[]> {
    return await Promise.all(
      volumes.map(async (volume) => {
        const state = await this.#context.driver.volumeState(volume.id, { flush: true })
        return { ...volume, ...defined({ generation: state?.generation }) }
      }),
    )
  }

  async #assertNoWriter(volumes: readonly MountedVolume[], sandboxId?: string): Promise<void> {
    for (const { id, name, readOnly } of volumes) {
      if (readOnly) continue
      const attachments = await this.#context.store.volumeAttachments(id)
      const writer = attachments.find((attachment) => !attachment.readOnly && attachment.sandboxId !== sandboxId)
      if (writer === undefined) continue
      throw new ServiceError(
        'conflict',
        `sandbox ${writer.sandboxId} writes volume ${name}, which has one writer at a time: ` +
          'mount it readOnly, mount a clone of it, or delete that sandbox first',
        { details: { volume: name, sandboxIds: [writer.sandboxId] } },
      )
    }
  }

  /** Makes data and then their record. */
  async #make(id: string, makeData: () => Promise<void>, insert: () => Promise<void>): Promise<void> {
    await this.#context.store.reserveVolume(id)
    try {
      await makeData()
      await insert()
    } catch (error) {
      // The row may have been inserted; the next start finds out.
      if (isServiceError(error, 'unavailable')) throw error
      await removeRemains(this.#context, id)
      throw error
    }
  }

  /** The record goes first, so that no call can name it. */
  async #remove(id: string): Promise<void> {
    const { store, driver } = this.#context
    if (!(await store.deleteVolume(id))) return
    await driver.deleteVolume(id)
    await store.forgetVolumes([id])
  }

  async #findSource(orgId: string, from: string): Promise<{ id: string; sizeMb: number }> {
    const [volumeName = '', snapshotName, ...more] = from.split('@')
    assertInput(more.length === 0, 'from', 'must be the name of a volume, or volume@snapshot')
    if (snapshotName === undefined) return await this.#read(orgId, volumeName, 'from')
    return await this.#readSnapshot(orgId, volumeName, snapshotName, 'from')
  }

  async #read(orgId: string, name: string, field?: string): Promise<Volume> {
    return (await this.#context.store.volume(orgId, { name })) ?? noVolume(name, field)
  }

  async #readSnapshot(orgId: string, volumeName: string, name: string, field?: string): Promise<VolumeSnapshot> {
    const { id } = await this.#read(orgId, volumeName, field)
    const snapshots = await this.#context.store.listVolumeSnapshots(id)
    return snapshots.find((snapshot) => snapshot.name === name) ?? noSnapshot(volumeName, name, field)
  }
}

/** Removes what interrupted creations and deletions of volumes left, and detaches volumes of sandboxes whose machines are gone. */
export async function recoverVolumes(
  context: Pick<VolumesContext, 'store' | 'log'> & { driver: RuntimeDriver },
): Promise<void> {
  const { store, driver, log } = context
  for (const id of await store.volumeRemains()) await removeRemains(context, id)
  for (const id of await store.stoppedHolders()) {
    await driver
      .delete(id)
      .then(() => store.detachVolumes(id))
      .catch((error: unknown) => log.warn({ err: error, sandboxId: id }, 'a stopped sandbox still has its volumes'))
  }
}

async function removeRemains(
  { store, driver, log }: Pick<VolumesContext, 'store' | 'log'> & { driver: Pick<RuntimeDriver, 'deleteVolume'> },
  id: string,
): Promise<void> {
  await driver
    .deleteVolume(id)
    .then(() => store.forgetVolumes([id]))
    .catch((error: unknown) => log.warn({ err: error, volumeId: id }, 'remains of a volume cannot be removed now'))
}

function assertRoom(count: number, max: number, owner: string, what: string): void {
  if (count >= max) throw new ServiceError('conflict', `${owner} has ${count} ${what}, the most it may have`)
}

function inUse(
  name: string,
  details: { sandboxIds: readonly string[] } | { snapshots: readonly string[] },
): ServiceError {
  const [why, names] =
    'snapshots' in details ? ['has snapshots:', details.snapshots] : ['is in use by', details.sandboxIds]
  const more = names.length > namedMax ? ` and ${names.length - namedMax} more` : ''
  const message = `volume ${name} ${why} ${names.slice(0, namedMax).join(', ')}${more}`
  return new ServiceError('conflict', message, { details: { volume: name, ...details } })
}

function noVolume(name: string, field?: string): never {
  throw new ServiceError('not_found', `no volume ${JSON.stringify(name.slice(0, 80))}`, { details: defined({ field }) })
}

function noSnapshot(volumeName: string, name: string, field?: string): never {
  const message = `volume ${volumeName} has no snapshot ${JSON.stringify(name.slice(0, 80))}`
  throw new ServiceError('not_found', message, { details: defined({ field }) })
}
