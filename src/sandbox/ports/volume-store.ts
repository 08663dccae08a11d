import type { Creation } from '../../lib/creation.ts'
import type { Volume, VolumeAttachment, VolumeSnapshot } from '../volume.ts'

/**
 * The port to the records of volumes; a part of `SandboxStore`, whose `insertSandbox` attaches the volumes of a sandbox in the same
 * transaction: it throws `conflict` when another sandbox writes one of them, or one is gone.
 */
export interface VolumeStore {
  /** Remembers an id under which the driver may have data from now on, until it is inserted or forgotten. */
  reserveVolume(id: string): Promise<void>
  /** Ends its reservation. Throws `conflict` when the organisation has a volume of this name. */
  insertVolume(volume: Volume, creation?: Creation): Promise<void>
  volume(orgId: string, key: { name: string } | { id: string }): Promise<Volume | undefined>
  /** By name. */
  listVolumes(orgId: string): Promise<Volume[]>
  /** Ends its reservation. Throws `conflict` when the volume has a snapshot of this name, or is gone. */
  insertVolumeSnapshot(snapshot: VolumeSnapshot, creation?: Creation): Promise<void>
  /** Oldest first. */
  listVolumeSnapshots(volumeId: string): Promise<VolumeSnapshot[]>
  /** Deletes a volume or a snapshot and remembers its id; false when there is none. Throws `conflict` while something needs the volume. */
  deleteVolume(id: string): Promise<boolean>
  /** Of all organisations, snapshots too. */
  volumeIds(): Promise<string[]>
  /** Ids that are reserved, or whose records are deleted: the driver may have data of them. */
  volumeRemains(): Promise<string[]>
  forgetVolumes(ids: readonly string[]): Promise<void>

  /** Who has it, by id of the sandbox. A stopped sandbox counts until its attachments are deleted. */
  volumeAttachments(volumeId: string): Promise<VolumeAttachment[]>
  /** Deletes the attachments of a stopped sandbox; harmless for another one. To be called when its machine is gone. */
  detachVolumes(sandboxId: string): Promise<void>
  /** Stopped sandboxes with attachments. */
  stoppedHolders(): Promise<string[]>
}
