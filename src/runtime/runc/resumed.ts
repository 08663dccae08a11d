import { rm } from 'node:fs/promises'
import { ServiceError } from '../../errors.ts'
import type { DiskPool } from '../disk/index.ts'
import type { Parts } from './parts.ts'
import type { Records, SandboxRecord } from './records.ts'

/**
 * Saved memory and its disk belong together until the processes go on: what they write makes the disk newer, and the same
 * memory on it once more would damage files. CRIU leaves a mark for a disk in the last moment at which a restore can still
 * be given up (`restore.ts`), and none can go on without it; the mark goes when the record has forgotten the memory:
 *
 *     saved ── restore fails ──► saved        saved ── mark ──► processes go on ── record without memory ──► no mark
 *
 * So whoever finds memory in a record and a mark, this server or the next, gives the memory up.
 */
export const marksFolder = 'memory/resumed'

/** The mark of a sandbox's present disk, relative to the pool. */
export function markOf({ id, disk }: SandboxRecord): string {
  return `${marksFolder}/${disk ?? id}`
}

/** Harmless when there is none. To be called once the record names no memory, or the disk is gone. */
export async function removeMark(pool: Pick<DiskPool, 'path'>, record: SandboxRecord): Promise<void> {
  await rm(pool.path(markOf(record)), { force: true })
}

/** Gives up a saved memory whose processes have gone on. Returns the record in force: without it, or as it was. */
export async function giveUpResumed(
  pool: Pick<DiskPool, 'path' | 'has'>,
  sandboxes: Records<SandboxRecord>,
  record: SandboxRecord,
): Promise<SandboxRecord> {
  const { memory, ...diskAlone } = record
  if (memory === undefined || !(await pool.has(markOf(record)))) return record
  await sandboxes.put(diskAlone)
  await removeMark(pool, record)
  return diskAlone
}

/** The fault of a wake that failed when the processes had gone on already, which costs the memory. */
export function onDiskAlone({ log }: Pick<Parts, 'log'>, id: string, error: unknown): ServiceError {
  const known = error instanceof ServiceError
  if (!known) log(`waking sandbox ${id} failed: ${String(error)}`)
  const code = known ? error.code : 'unavailable'
  const why = known ? error.message : 'the sandbox could not be started'
  const message = `${why}; its processes had gone on already and were ended, the next wake starts it anew on its disk`
  return new ServiceError(code, message, { cause: error, details: known ? error.details : {} })
}
