/** Where things are in the pool: paths relative to it. */

/** Of the `InodeTemplates`. */
export const templatesFolder = 'templates'
/** Downloads and unfinished layers of imports of images under way. */
export const importsFolder = 'imports'
/** The snapshots that a backup copies, and those with which the next backup is compared. */
export const backupsFolder = 'backup'
/** Of builds, kept from one to the next. */
export const cachesFolder = 'caches'
/** Of mounts for one step of a build, and of sandboxes whose disks are being read. */
export const scratchFolder = 'scratch'
/** A subvolume of its own, so that a backup can take a snapshot of it. */
export const memoryFolder = 'memory'

/** A sandbox, with the name of its subvolume where that is not its id. */
export interface DiskOwner {
  id: string
  /** Name of its own subvolume; its id when absent. A restore in place gives it another. */
  disk?: string
}

/** A frozen disk: the snapshot taken for a checkpoint, and the first id of the range that owns its files. */
export interface Layer {
  /** For a layer of an image: `oci-` and digits of its digest. */
  checkpointId: string
  /** 0 in a layer of an image: no sandbox has it. */
  rangeStart: number
  /** Above all inode numbers of this layer and those below it. Absent where not known. */
  inodeEnd?: number
}

export function diskOf({ id, disk }: DiskOwner): string {
  return `sandboxes/${disk ?? id}`
}

export function layerOf(checkpointId: string): string {
  return `layers/${checkpointId}`
}

/** What is known of a layer of an image, beside its files; see `oci-image/importer.ts`. `layer` is absolute. */
export function noteOf(layer: string): string {
  return `${layer}/layer.json`
}
