import { rm } from 'node:fs/promises'
import { ServiceError } from '../../errors.ts'
import { bootId } from '../process.ts'
import type { DiskPool } from '../disk/index.ts'
import { allDone, reportOf } from '../cleanup.ts'
import type { Inventory } from './inventory.ts'
import type { CheckpointRecord, Records, SandboxRecord, SavedMemory } from './records.ts'

/**
 * Saved memory and its disk belong together until the processes go on: their writes make the disk newer, and a second restore
 * of the same memory on it would damage files. A *fence*, a file per disk, says that the processes have gone on. CRIU makes it
 * at the last stage at which a restore can still fail (`restore.ts`), and no process goes on without it. It is removed when the
 * record no longer names the memory.
 *
 * The fence survives the server but not a loss of power, before which processes may have synced their writes. So the record
 * says in `resuming` in which boot of the machine a restore has begun, and is on the disk before the restore begins.
 *
 *     saved ── resuming ──► restoring ── fence ──► processes go on ── record without memory ──► no fence
 *       ▲                      │
 *       └──── restore fails ───┘
 *
 * This server, or a later one, drops memory that has a fence, and memory whose restore has begun in another boot, since nobody
 * knows its outcome. `unflushed` guards against the opposite, memory whose disk is older: memory that was not flushed in the
 * boot in which it was saved is dropped too.
 */
export const fencesFolder = 'memory/resumed'

/** The fence of a sandbox's present disk, relative to the pool. */
export function fenceOf({ id, disk }: SandboxRecord): string {
  return `${fencesFolder}/${disk ?? id}`
}

/** Harmless when there is none. To be called once the record names no memory, or the disk is gone. */
export async function removeFence(pool: Pick<DiskPool, 'path'>, record: SandboxRecord): Promise<void> {
  await rm(pool.path(fenceOf(record)), { force: true })
}

/** Where saved memory is, and who names it. */
interface MemoryHost {
  pool: Pick<DiskPool, 'has' | 'path'>
  inventory: Pick<Inventory, 'sandboxes'>
  log: (message: string) => void
}

/** Drops saved memory that may not belong to the disk any more. Returns the record in force: without it, or unchanged. */
export async function dropStaleMemory(
  { pool, inventory, log }: MemoryHost,
  record: SandboxRecord,
): Promise<SandboxRecord> {
  const { memory, ...diskAlone } = record
  const why = memory && whyStale(memory, await pool.has(fenceOf(record)))
  if (why === undefined) return record
  log(`the memory of sandbox ${record.id} is dropped, and its next start is anew on its disk: ${why}`)
  await inventory.sandboxes.put(diskAlone)
  await removeFence(pool, record)
  return diskAlone
}

function whyStale({ resuming, unflushed }: SavedMemory, hasFence: boolean): string | undefined {
  if (hasFence) return 'its processes have gone on since it was saved'
  if (resuming !== undefined && resuming !== bootId()) {
    return 'the machine went down while it was brought back, and its processes may have gone on'
  }
  if (unflushed !== undefined && unflushed !== bootId()) {
    return 'the machine went down before it and its disk had been flushed'
  }
  return undefined
}

/** To be called when a restore has failed and ended before the processes went on: it may be tried again, after a loss of power too. */
export async function clearResuming(sandboxes: Records<SandboxRecord>, id: string): Promise<void> {
  await sandboxes.update(id, (record) => {
    if (record.memory?.resuming === undefined) return undefined
    const { resuming: _, ...memory } = record.memory
    return { ...record, memory }
  })
}

/** The error of a wake that failed after the processes had gone on, which costs the memory. */
export function onDiskAlone(host: Pick<MemoryHost, 'log'>, id: string, error: unknown): ServiceError {
  const words = { failed: `waking sandbox ${id}`, fallback: 'the sandbox could not be started' }
  const { code, message } = reportOf(host, error, words)
  const consequence = 'its processes had gone on already and were ended, the next wake starts it anew on its disk'
  const details = error instanceof ServiceError ? error.details : {}
  return new ServiceError(code, `${message}; ${consequence}`, { cause: error, details })
}

/**
 * Returns when all saved memory is on the disk of the host with the disks that it belongs to, what is saved meanwhile included,
 * and records say so. Until then a loss of power costs the memory. It does not wait for work on a sandbox: a record that such
 * work writes back is flushed once more. Returns the ids of the checkpoints among it.
 */
export async function flushMemory(
  pool: Pick<DiskPool, 'flush'>,
  { sandboxes, checkpoints }: Pick<Inventory, 'sandboxes' | 'checkpoints'>,
): Promise<string[]> {
  const flushed: string[] = []
  for (;;) {
    const saved = { sandboxes: sandboxes.all().filter(isSaved), checkpoints: checkpoints.all().filter(isSaved) }
    if (saved.sandboxes.length === 0 && saved.checkpoints.length === 0) return flushed
    await pool.flush()
    await allDone([
      ...saved.sandboxes.map(({ id, memory }) => sandboxes.update(id, (record) => onDisk(record, memory))),
      ...saved.checkpoints.map(({ id, memory }) => checkpoints.update(id, (record) => onDisk(record, memory))),
    ])
    flushed.push(...saved.checkpoints.map(({ id }) => id))
  }
}

/** Complete, not flushed, and not being restored. */
function isSaved({ memory }: SandboxRecord | CheckpointRecord): boolean {
  return memory?.unflushed !== undefined && memory.bytes !== undefined && memory.resuming === undefined
}

function onDisk<T extends { memory?: SavedMemory }>(record: T, flushed: SavedMemory | undefined): T | undefined {
  if (record.memory?.unflushed === undefined || record.memory.folder !== flushed?.folder) return undefined
  const { unflushed: _, ...memory } = record.memory
  return { ...record, memory }
}
