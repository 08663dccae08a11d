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

/** Hundreds of gigabytes. */
const receiveTimeoutMs = 24 * 3_600_000
/** In the place of the boot in which a restore of saved memory began: not this one, whichever it was. */
const earlierBoot = 'before the backup'

export type OfflineRestore = Awaited<ReturnType<typeof openOfflineRestore>>

interface Placed {
  /** Of its stream. */
  id: string
  isReadOnly: boolean
  limitBytes?: number | undefined
}

/**
 * An empty pool for the streams of a backup, and what must be changed in its records. No driver has the data directory open. Throws
 * `unavailable` when one has.
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
    // Of a restore that was cut off.
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
      // A snapshot does not say that it was received, which would make later streams of it those of another.
      await pool.remove(path)
      await pool.createSubvolume(path, join(received, draftOf(id)))
      // Overlay has noted handles of the upper layer too, which is another one, also over the same layers.
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
    // One in quarantine may be unreadable, and stays as it is.
    return text
  }
  // Of one in quarantine anything may be in there.
  if (typeof record?.memory !== 'object' || record.memory === null) return text
  const { memory, ...rest } = record
  // A dump was under way: as in a loss of power.
  if (memory.bytes === undefined) return JSON.stringify(rest)
  return JSON.stringify({ ...rest, memory: restoredMemory(memory) })
}

/** The snapshot of a backup has all of it; whether the processes had gone on nobody knows where its restore had begun. */
function restoredMemory(saved: SavedMemory): SavedMemory {
  const { unflushed: _, ...memory } = saved
  return memory.resuming === undefined ? memory : { ...memory, resuming: earlierBoot }
}
