import { open, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { ServiceError } from '../../errors.ts'
import { endStrayTools } from '../cleanup.ts'
import { CommandError } from '../command.ts'
import { backupsFolder } from '../disk/index.ts'
import { draftOf } from './backup-cut.ts'
import { createContext, type OciDriverOptions } from './context.ts'
import { resolveHostTool } from './image-folder.ts'
import { lockHost, releaseHost } from './open-host.ts'
import type { CheckpointRecord, SandboxRecord, SavedMemory } from './records.ts'
import { makeRunFolders } from './run-folders.ts'

/** Long enough for hundreds of gigabytes. */
const receiveTimeoutMs = 24 * 3_600_000
/** Replaces the boot in which a restore of saved memory began: any id but that of this boot. */
const earlierBoot = 'before the backup'

export type OfflineRestore = Awaited<ReturnType<typeof openOfflineRestore>>

interface Placed {
  /** Id of the stream. */
  id: string
  isReadOnly: boolean
  limitBytes?: number | undefined
}

/**
 * Opens an empty pool for the streams of a backup. Throws `unavailable` when a driver has the data directory open.
 */
export async function openOfflineRestore(options: OciDriverOptions) {
  const context = createContext(options)
  const { names, runtime, hostd, pool, images } = context
  const lock = await lockHost(names)
  const dispose = () => releaseHost(context, lock)
  try {
    const hostTool = await resolveHostTool(images.path)
    await makeRunFolders(names, runtime.stateDir, hostTool)
    await hostd.open(hostTool)
    await endStrayTools(hostd, [names.runDir, names.poolFile])
    // Close the pool of a restore that was cut off.
    await pool.close()
    await rm(names.poolFile, { force: true })
    await pool.open()
  } catch (error) {
    await dispose()
    throw error
  }
  const received = pool.path(backupsFolder)
  return {
    /** Makes the subvolume of a stream, once that on which it builds is there. Throws `CommandError`, and `no_capacity` when the pool is full. */
    async receive(file: string): Promise<void> {
      try {
        await hostd.run(['btrfs', 'receive', '--quiet', '-e', '-f', file, received], { timeoutMs: receiveTimeoutMs })
      } catch (error) {
        throw error instanceof CommandError && /No space left/i.test(error.stderr) ? poolTooSmall(error) : error
      }
    },

    /** Puts what was received in its place. */
    async place(path: string, { id, isReadOnly, limitBytes }: Placed): Promise<void> {
      // Place a snapshot, which does not carry the mark of a received subvolume: with it, later streams would name another source.
      await pool.remove(path)
      await pool.createSubvolume(path, join(received, draftOf(id)))
      // Overlay has also stored handles of the upper layer, which is another one now, even over the same layers.
      if (!isReadOnly && path.startsWith('sandboxes/')) await rm(pool.path(`${path}/lowers`), { force: true })
      if (limitBytes !== undefined) await pool.limit(path, limitBytes)
      if (isReadOnly) await hostd.run(['btrfs', 'property', 'set', '-t', 'subvol', pool.path(path), 'ro', 'true'])
    },

    /** Removes what was received and not placed, and returns once all is on the disk. */
    async complete(): Promise<void> {
      for (const name of await pool.list(backupsFolder)) await pool.remove(`${backupsFolder}/${name}`)
      await pool.flush()
      await using file = await open(names.poolFile)
      await file.sync()
    },

    [Symbol.asyncDispose]: dispose,
  }
}

function poolTooSmall(cause: unknown): ServiceError {
  return new ServiceError('no_capacity', 'the backup does not fit into the disk pool: give ATOLL_DISK_POOL_MB', {
    cause,
  })
}

/** The text of a record file of a backup, as a restored data directory has it. */
export function restoredRecord(text: string): string {
  let record: SandboxRecord | CheckpointRecord
  try {
    record = JSON.parse(text) as SandboxRecord | CheckpointRecord
  } catch {
    // A record in quarantine may be unreadable, and stays as it is.
    return text
  }
  // A record in quarantine may hold anything.
  if (typeof record?.memory !== 'object' || record.memory === null) return text
  const { memory, ...rest } = record
  // A dump was under way, and is dropped as after a loss of power.
  if (memory.bytes === undefined) return JSON.stringify(rest)
  return JSON.stringify({ ...rest, memory: restoredMemory(memory) })
}

/** The snapshot of a backup has all of the memory. If its restore had begun, nobody knows whether the processes had gone on. */
function restoredMemory(saved: SavedMemory): SavedMemory {
  const { unflushed: _, ...memory } = saved
  return memory.resuming === undefined ? memory : { ...memory, resuming: earlierBoot }
}
