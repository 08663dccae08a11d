/**
 * The disk pool of one data directory: a btrfs in a sparse file, mounted where only root looks. Each sandbox writes into a
 * subvolume of its own with a limit; a layer is a read-only snapshot of one, made in constant time while the sandbox runs.
 */
import { chmod, mkdir, open, readdir, rename, rm, stat, statfs, truncate, writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { ServiceError } from '../../errors.ts'
import { Semaphore } from '../../lib/async/semaphore.ts'
import { syncFolder } from '../../lib/sync-folder.ts'
import { CommandError, type Run } from '../command.ts'
import { exists } from '../exists.ts'
import { HostdError, type HostTool } from '../hostd/index.ts'
import type { HostToolRequest } from '../../protocol/hostd.ts'
import { shrinkToSpare, spareBytes } from './compaction.ts'
import { backupsFolder, cachesFolder, importsFolder, memoryFolder, scratchFolder, templatesFolder } from './folders.ts'
import { deviceOf, isMounted, isReadOnly, mountsBelow, readOnlyReason, unmountBelow } from './mounts.ts'
import { Quota } from './quota.ts'
import { readSuperblock } from './superblock.ts'

export * from './folders.ts'
export { deviceOf, isMounted, mountOf, mountsBelow, unmountBelow } from './mounts.ts'
export { InodeTemplates } from './inode-templates.ts'

const poolShareOfFreeSpace = 0.8
const poolBytesMax = 256 * 1024 ** 3
const poolBytesMin = 1024 ** 3
/** After this many removed subvolumes the quota groups that they left are removed too. */
const removalsPerSweep = 32
/** Timeout to make or mount the pool: that waits for others' writes to the same disk, and recovers what a power loss has left. */
const openTimeoutMs = 300_000
const mkfsAttempts = 5
const quotaTimeoutMs = 120_000
const flushTimeoutMs = 300_000
/** Timeout to cancel a balance, which ends only with the chunk that it moves. */
const cancelTimeoutMs = 120_000
/** How long the kernel may take to end a mount that nobody uses any more. */
const abandonTimeoutMs = 60_000
const abandonPollMs = 50
/** Ends with the format number of pools. Each change that an older or a newer server would misread raises it. */
export const poolLabel = 'atoll 1'

export interface DiskPoolOptions {
  hostd: HostTool
  imageFile: string
  mountDir: string
  /** Size of the file system. Default: 80 % of the free space, at most 256 GiB. An existing pool grows to it, never shrinks. */
  bytes?: number | undefined
  /** See `host/context.ts`. */
  changes?: Pick<Semaphore, 'use'>
}

/** Paths given to the methods are relative to the pool; those in results are absolute. */
export class DiskPool {
  readonly #options: DiskPoolOptions
  /** Limits that are known to be in force. */
  readonly #limits = new Map<string, number>()
  readonly #changes: Pick<Semaphore, 'use'>
  #removals = 0
  #quota: Quota | undefined

  constructor(options: DiskPoolOptions) {
    this.#options = options
    this.#changes = options.changes ?? new Semaphore({})
  }

  /** Makes the pool if there is none and mounts it. Throws `unavailable`. */
  async open(): Promise<void> {
    const { imageFile, mountDir, bytes } = this.#options
    try {
      if (!(await exists(imageFile))) await this.#format()
      const { uuid, label } = await readSuperblock(imageFile)
      assertLabel(imageFile, label)
      await mkdir(mountDir, { recursive: true, mode: 0o700 })
      if (!(await isMounted(mountDir))) {
        const fileBytes = (bytes ?? 0) + spareBytes
        if (bytes !== undefined && (await stat(imageFile)).size < fileBytes) await truncate(imageFile, fileBytes)
        // `metadata_ratio`: metadata gets a share in advance. btrfs keeps for data what it once gave to data, so a pool that was full once
        // could otherwise neither make nor remove a subvolume.
        // `nodiscard`: freed data keeps its blocks in the file, as part of the reserve (`reserve.ts`), which gives back whole chunks.
        const options = 'loop,nodev,nosuid,noatime,nodiscard,metadata_ratio=4'
        await this.#options.hostd.run(
          ['mount', '--make-private', '--types', 'btrfs', '--options', options, imageFile, mountDir],
          {
            timeoutMs: openTimeoutMs,
          },
        )
        // Always, as a server may have died after it grew the file. Where a namespace still has the pool of an earlier server mounted, this
        // is that device, whose size is that of the file then.
        const device = (await mountsBelow(mountDir)).find(({ target }) => target === mountDir)?.source
        if (device !== undefined) await this.#options.hostd.run(['losetup', '--set-capacity', device])
        // A balance that a loss of power cut off goes on with the mount, and prevents a change of the size.
        await this.#options.hostd
          .run(['btrfs', 'balance', 'cancel', mountDir], { timeoutMs: cancelTimeoutMs })
          .catch(() => undefined)
        // A compaction that was cut off in a full pool may have left no room to shrink into. Then all of the file stays in use.
        await shrinkToSpare(imageFile, mountDir, this.#options.hostd.run).catch(() =>
          this.#options.hostd.run(['btrfs', 'filesystem', 'resize', 'max', mountDir]),
        )
      }
      await this.#options.hostd.run(['btrfs', 'quota', 'enable', mountDir], { timeoutMs: quotaTimeoutMs })
      this.#quota = new Quota(mountDir, uuid, this.#options.hostd.run)
      await this.#quota.keepCounting()
      const others = [importsFolder, templatesFolder, backupsFolder, cachesFolder, scratchFolder]
      for (const folder of ['sandboxes', 'layers', 'volumes', ...others])
        await mkdir(this.path(folder), { recursive: true, mode: 0o700 })
      await this.#openMemory()
      await this.#quota.removeStale()
    } catch (error) {
      if (error instanceof ServiceError) throw error
      const hint = 'it needs btrfs and loop devices in the kernel and the Debian package btrfs-progs'
      throw new ServiceError('unavailable', `the disk pool cannot be opened (${hint}): ${String(error)}`, {
        cause: error,
      })
    }
  }

  /**
   * Makes the subvolume of saved memory. All memory is in plain folders of it, so that files can be linked from one to another. Images are
   * written once in full, so they need no copy on write and no checksums.
   */
  async #openMemory(): Promise<void> {
    const folder = this.path(memoryFolder)
    if (!(await exists(folder))) {
      await this.createSubvolume(memoryFolder)
      await chmod(folder, 0o711)
      await this.#options.hostd.run(['chattr', '+C', folder]).catch(() => undefined)
    }
    for (const name of ['checkpoints', 'saved', 'runs', 'resumed'])
      await mkdir(`${folder}/${name}`, { recursive: true, mode: 0o711 })
  }

  /** Unmounts the pool; its loop device goes with it. */
  async close(): Promise<void> {
    await unmountBelow(this.#options.mountDir)
  }

  /** Whether an earlier server left the pool mounted and it has become read-only: then only a new mount can be written. */
  async hasFailed(): Promise<boolean> {
    const { mountDir } = this.#options
    return (await isMounted(mountDir)) && (await isReadOnly(mountDir))
  }

  /**
   * Unmounts the pool and waits until the kernel has released the disk: an earlier mount would give the same, failed file system. Throws
   * `unavailable` when something keeps the disk.
   */
  async abandon(): Promise<void> {
    await this.close()
    const deadline = performance.now() + abandonTimeoutMs
    while ((await this.#options.hostd.run(['losetup', '--associated', this.#options.imageFile])) !== '') {
      if (performance.now() > deadline)
        throw new ServiceError('unavailable', `${readOnlyReason}, and a process keeps it mounted: restart the machine`)
      await sleep(abandonPollMs)
    }
  }

  /**
   * `major:minor` of the device to which the kernel charges reads and writes of the open pool. It is the loop device, not that of the file
   * below, to which workers of the kernel write. Undefined where the kernel does not tell.
   */
  async device(): Promise<string | undefined> {
    return await deviceOf(this.#options.mountDir)
  }

  /** The folder in `/sys/fs/btrfs` of the file system. The pool must be open. */
  get fileSystem(): string {
    return this.#quota?.fileSystem ?? ''
  }

  path(relative: string): string {
    return `${this.#options.mountDir}/${relative}`
  }

  async has(relative: string): Promise<boolean> {
    return exists(this.path(relative))
  }

  async list(relative: string): Promise<string[]> {
    return readdir(this.path(relative))
  }

  /** Makes an empty subvolume, or a writable snapshot of the one at the absolute path `seed`, without its limit. Throws `no_capacity`. */
  async createSubvolume(relative: string, seed?: string): Promise<void> {
    const path = this.path(relative)
    if (seed === undefined) await this.#change({ op: 'create-subvolume', path })
    else await this.#change({ op: 'snapshot-subvolume', from: seed, path, writable: true })
  }

  /** An inode number above those of all files of the subvolume, which no later file gets. Undefined when it takes no file. */
  async nextInode(relative: string): Promise<number | undefined> {
    const file = `${this.path(relative)}/inode`
    try {
      await rm(file, { force: true })
      await writeFile(file, '')
      return (await stat(file)).ino
    } catch {
      // It may be full.
      return undefined
    } finally {
      await rm(file, { force: true }).catch(() => undefined)
    }
  }

  /** Sets what the subvolume may hold, snapshots not counted. */
  async limit(relative: string, limitBytes: number): Promise<void> {
    // Skip a limit in force: to set it waits for a flush of saved memory.
    if (this.#limits.get(relative) === limitBytes) return
    this.#limits.delete(relative)
    await this.#hostd({ op: 'limit-subvolume', path: this.path(relative), bytes: limitBytes })
    this.#limits.set(relative, limitBytes)
  }

  /** Sets the limit unless the kernel has it in force, whatever was set last. Returns the other limit that was in force, if it is known. */
  async alignLimit(relative: string, limitBytes: number): Promise<number | undefined> {
    const has = await this.#quota?.limitOf(relative).catch(() => undefined)
    if (has === limitBytes) this.#limits.set(relative, limitBytes)
    else if (has !== undefined) this.#limits.delete(relative)
    await this.limit(relative, limitBytes)
    return has === limitBytes ? undefined : has
  }

  /** Freezes a subvolume as it is now, writes that have not reached the disk included. Throws `no_capacity`. */
  async snapshot(from: string, to: string): Promise<void> {
    await this.#changes.use(() => this.snapshotWithin(from, to))
  }

  /** Like `snapshot`, for a caller that holds all permits for changes. */
  async snapshotWithin(from: string, to: string): Promise<void> {
    await this.#hostd({ op: 'snapshot-subvolume', from: this.path(from), path: this.path(to), writable: false })
  }

  /** Removes a subvolume; harmless when there is none. Its space comes back a little later. */
  async remove(relative: string): Promise<void> {
    this.#limits.delete(relative)
    this.#quota?.forget(relative)
    if (!(await this.has(relative))) return
    try {
      await this.#change({ op: 'delete-subvolume', path: this.path(relative) })
    } catch (error) {
      // Ignore the error when somebody else has removed it meanwhile.
      if (await this.has(relative)) throw error
    }
    this.#removals += 1
    // The next sweep retries.
    if (this.#removals % removalsPerSweep === 0) await this.#quota?.removeStale().catch(() => undefined)
  }

  /** Has the kernel count again if it has lost count, without which limits do not hold. Cheap, to be called often. */
  async tend(): Promise<void> {
    await this.#quota?.recount()
  }

  /** Waits until the names in a subvolume's first folder are on the disk, with the folders among them. */
  async settle(relative: string): Promise<void> {
    await syncFolder(this.path(relative))
  }

  /** Waits until everything that was written is on the disk. */
  async flush(): Promise<void> {
    await this.#options.hostd.run(['btrfs', 'filesystem', 'sync', this.#options.mountDir], {
      timeoutMs: flushTimeoutMs,
    })
  }

  /** Bytes that count for a subvolume's limit; cheap. Undefined while unknown, which may be its first minute. */
  async countedBytes(relative: string): Promise<number | undefined> {
    return await this.#quota?.countedBytes(relative).catch(() => undefined)
  }

  /** Likewise, also of a new subvolume, for which a program is started. */
  async countedBytesNow(relative: string): Promise<number | undefined> {
    return await this.#quota?.countedBytesNow(relative).catch(() => undefined)
  }

  /**
   * Bytes of a subvolume, shared or not. Data that has not reached the disk does not count, unless `flush` writes it in time.
   */
  async referencedBytes(relative: string, flush = false): Promise<number> {
    const path = this.path(relative)
    if (flush) await this.#options.hostd.run(['btrfs', 'filesystem', 'sync', path]).catch(() => undefined)
    const table = await this.#options.hostd.run(['btrfs', 'qgroup', 'show', '--raw', '-f', path])
    const row = table.split('\n').find((line) => line.startsWith('0/'))
    return Number(row?.trim().split(/\s+/)[1] ?? 0)
  }

  /**
   * Bytes that each subvolume has alone, by its path in the pool: what its removal would give back. Data that has not reached the disk does not
   * count. Absent for what is no subvolume.
   */
  async exclusiveBytes(): Promise<ReadonlyMap<string, number>> {
    return (await this.#quota?.exclusiveBytes()) ?? new Map()
  }

  /** When a subvolume was made, to the second before. */
  async createdAtMs(relative: string): Promise<number> {
    const shown = await this.#options.hostd.run(['btrfs', 'subvolume', 'show', this.path(relative)])
    const [, day, time, zone] = /^\s*Creation time:\s*(\S+) (\S+) ([+-]\d{4})/m.exec(shown) ?? []
    const at = Date.parse(`${day}T${time}${zone?.slice(0, 3)}:${zone?.slice(3)}`)
    // One of unknown age may have been made at any time.
    return Number.isNaN(at) ? 0 : at
  }

  /** The generation of a subvolume, which grows with the changes that reach the disk. */
  async generation(relative: string): Promise<number> {
    const shown = await this.#options.hostd.run(['btrfs', 'subvolume', 'show', this.path(relative)])
    return Number(/^\s*Generation:\s*(\d+)/m.exec(shown)?.[1] ?? 0)
  }

  async #change(request: HostToolRequest): Promise<void> {
    await this.#changes.use(() => this.#hostd(request))
  }

  /** Throws `no_capacity` when the pool is full or read-only. */
  async #hostd(request: HostToolRequest): Promise<void> {
    await this.#options.hostd.runTool(request).catch(asPoolError)
  }

  async #format(): Promise<void> {
    const { imageFile } = this.#options
    const free = await statfs(dirname(imageFile))
    const bytes =
      this.#options.bytes ?? Math.min(poolBytesMax, Math.floor(free.bavail * free.bsize * poolShareOfFreeSpace))
    if (bytes < poolBytesMin)
      throw new ServiceError('unavailable', `the disk pool needs at least 1 GiB free in ${dirname(imageFile)}`)
    const draft = `${imageFile}.new`
    await writeFile(draft, '', { mode: 0o600 })
    await truncate(draft, bytes)
    // Without copy on write, where a btrfs is below, the file keeps the blocks that it has.
    await this.#options.hostd.run(['chattr', '+C', draft]).catch(() => undefined)
    await makeFileSystem(this.#options.hostd.run, draft)
    await truncate(draft, bytes + spareBytes)
    // Flush before the rename: a name without its content would be a pool that no start can mount.
    await using file = await open(draft)
    await file.sync()
    await rename(draft, imageFile)
    await syncFolder(dirname(imageFile))
  }
}

/** Throws `unavailable` for a pool of another format. A file that is no pool passes, as the mount says more about it. */
function assertLabel(imageFile: string, found: string): void {
  if (found === poolLabel || !found.startsWith('atoll')) return
  const whose = found === 'atoll' ? 'a version of Atoll before 0.1.0' : 'another version of Atoll'
  const what = `the disk pool ${imageFile} has the format '${found}' of ${whose}, and this version reads '${poolLabel}'`
  throw new ServiceError('unavailable', `${what}: move the data directory away and begin with a new one`)
}

/** Makes the file system. mkfs looks at all loop devices of the machine and fails when one of another program ends meanwhile: retry. */
async function makeFileSystem(run: Run, file: string): Promise<void> {
  const argv = ['mkfs.btrfs', '--quiet', '--force', '--metadata', 'single', '--label', poolLabel, file] as const
  for (let attempt = 1; ; attempt += 1) {
    try {
      await run(argv, { timeoutMs: openTimeoutMs })
      return
    } catch (error) {
      const isRace = error instanceof CommandError && error.stderr.includes('cannot check mount status')
      if (!isRace || attempt === mkfsAttempts) throw error
    }
  }
}

function asPoolError(error: unknown): never {
  const code = error instanceof HostdError ? error.code : undefined
  if (code === 'read_only') {
    throw new ServiceError('no_capacity', readOnlyReason, { cause: error, details: { retryAfterSeconds: 60 } })
  }
  throw code === 'no_space' ? poolIsFull(error) : error
}

/** Converts an error for the client: a disk that filled up in the middle of work is `no_capacity`. */
export function asReported(error: unknown): unknown {
  const code = error instanceof Error && 'code' in error ? error.code : undefined
  return code === 'ENOSPC' || code === 'EDQUOT' ? poolIsFull(error) : error
}

export function poolIsFull(cause: unknown): ServiceError {
  return new ServiceError('no_capacity', 'the disk pool is full', { cause, details: { retryAfterSeconds: 60 } })
}
