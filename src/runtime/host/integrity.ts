import { ServiceError, isServiceError } from '../../errors.ts'
import type { SandboxSpec } from '../../sandbox/ports/runtime-driver.ts'
import { imagesBytes, pagesBytes } from '../criu/image-files.ts'
import { assertProcessorFits } from '../criu/restore.ts'
import { type DiskPool, diskOf, layerOf } from '../disk/index.ts'
import type { HostTool } from '../hostd/index.ts'
import { bootId } from '../process.ts'
import type { CheckpointRecord, SandboxRecord, SavedMemory } from './records.ts'

const mebibyte = 1024 * 1024

type IntegrityPool = Pick<DiskPool, 'has' | 'path'>

/** Whether all that a record names is there: its disk or layer with all layers below, and a checkpoint's memory. */
export async function isIntact(pool: IntegrityPool, record: SandboxRecord | CheckpointRecord): Promise<boolean> {
  if (!(await hasDisk(pool, record))) return false
  return 'slot' in record || record.memory === undefined || hasMemory(pool, record.memory)
}

/** Whether the disk of a sandbox and all the layers below it, or all the layers of a checkpoint, are there. */
export async function hasDisk(pool: IntegrityPool, record: SandboxRecord | CheckpointRecord): Promise<boolean> {
  const disks = 'slot' in record ? [diskOf(record)] : []
  for (const path of [...disks, ...record.layers.map((layer) => layerOf(layer.checkpointId))]) {
    if (!(await pool.has(`${path}/upper`))) return false
  }
  return true
}

/**
 * Whether the images of a memory are all there. Sizes alone do not tell it after a loss of power: btrfs gives a file its whole
 * length when the first part of it reaches the disk.
 */
export async function hasMemory(pool: IntegrityPool, memory: SavedMemory): Promise<boolean> {
  if (memory.unflushed !== undefined && memory.unflushed !== bootId()) return false
  return memory.bytes !== undefined && (await imagesBytes(pool.path(memory.folder))) === memory.bytes
}

/** The error of a failed restore: CRIU gives no cause where an image is missing. */
export async function causeOf(pool: IntegrityPool, memory: SavedMemory, error: unknown): Promise<unknown> {
  if (!isServiceError(error, 'full_checkpoint_unavailable') || (await hasMemory(pool, memory))) return error
  const message = 'the memory cannot be restored: its images are incomplete'
  return new ServiceError('memory_not_restorable', message, { cause: error })
}

/**
 * Checks in advance what would make a start from a checkpoint fail. Throws `not_found` when its disk is incomplete, `memory_not_restorable`
 * when its memory is, `full_checkpoint_unavailable` when the memory comes from another processor, `conflict` when it is too large for the
 * sandbox. `criu` is the program that restores it.
 */
export async function assertStartable(
  { pool, hostd }: { pool: DiskPool; hostd: HostTool },
  checkpoint: CheckpointRecord,
  { memoryMb }: Pick<SandboxSpec, 'memoryMb'>,
  criu?: string,
): Promise<void> {
  const { id, memory } = checkpoint
  if (!(await hasDisk(pool, checkpoint))) {
    throw new ServiceError('not_found', `the disk of checkpoint ${id} is incomplete`)
  }
  if (memory === undefined) return
  if (!(await hasMemory(pool, memory))) {
    throw new ServiceError('memory_not_restorable', `the memory of checkpoint ${id} is incomplete`)
  }
  if (criu !== undefined) await assertProcessorFits(hostd.run, criu, pool.path(memory.folder))
  const pagesMb = Math.ceil((await pagesBytes(pool.path(memory.folder))) / mebibyte)
  if (pagesMb > memoryMb) {
    const message = `checkpoint ${id} holds ${pagesMb} MB of memory, and the sandbox may have ${memoryMb} MB`
    throw new ServiceError('conflict', message)
  }
}
