/** Where things are in the pool: paths relative to it. */

/** Of the `InodeTemplates`. */
export const templatesFolder = 'templates'
/** What imports of images under way have: their downloads, and layers that are not whole. */
export const importsFolder = 'imports'
/** The snapshots that backups copy, and those that the next one is compared with. */
export const backupsFolder = 'backup'
/** A subvolume of its own, so that a backup can take a snapshot of it. */
export const memoryFolder = 'memory'

/** A sandbox, and its own subvolume where that does not have its id. */
export interface DiskOwner {
  id: string
  /** Name of its own subvolume; its id when absent. A restore in place gives it another. */
  disk?: string
}

/** A frozen disk: the snapshot taken for a checkpoint, and the first id of the range that owns its files. */
export interface Layer {
  /** Of a layer of an image: `oci-` and digits of its digest. */
  checkpointId: string
  /** 0 in a layer of an image: no sandbox has it. */
  rangeStart: number
  /** All files in it, and in those below it, have lower inode numbers. Absent where that is not known. */
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
