import { readFile, writeFile } from 'node:fs/promises'
import type { Run } from '../command.ts'
import { singleFlight } from '../../lib/async/single-flight.ts'
import { exists } from '../exists.ts'
import { readNow } from '../read-now.ts'

/** Above the height of any tree of btrfs. */
const noTreeIsHigher = '8'
const rootVolume = '5'
/** `BTRFS_QGROUP_LIMIT_MAX_RFER` (linux/btrfs_tree.h). */
const limitsReferenced = 1
/** Numbers of new subvolumes are looked up together, at most once in this time. */
const listIntervalMs = 60_000

/** The counting of btrfs behind the limits of subvolumes (qgroups, btrfs-quota(8)). */
export class Quota {
  readonly #run: Run
  readonly #mountDir: string
  /** The folder of the file system in `/sys/fs/btrfs`. */
  readonly fileSystem: string
  /** The folder of its counts, from Linux 5.9 on. */
  readonly #folder: string
  /** Numbers of subvolumes, by their paths in the pool. */
  #ids = new Map<string, string>()
  #listedAt = -Infinity

  /** `uuid` is that of the file system. */
  constructor(mountDir: string, uuid: string, run: Run) {
    this.#run = run
    this.#mountDir = mountDir
    this.fileSystem = `/sys/fs/btrfs/${uuid}`
    this.#folder = `${this.fileSystem}/qgroups`
  }

  /**
   * Newer kernels stop counting when a subvolume with a high tree is removed, and then no limit holds; a sandbox can make such a tree with
   * millions of files. With this setting they go on counting, and the removal takes longer.
   */
  async keepCounting(): Promise<void> {
    const file = `${this.#folder}/drop_subtree_threshold`
    if (await exists(file)) await writeFile(file, noTreeIsHigher)
    await this.recount()
  }

  /** Counts again, in the kernel's background, if the kernel says that it has lost count. */
  async recount(): Promise<void> {
    const lost = await readFile(`${this.#folder}/inconsistent`, 'utf8').catch(() => '0')
    // A rescan fails when another is under way, which is as good.
    if (lost.trim() === '1') await this.#run(['btrfs', 'quota', 'rescan', this.#mountDir]).catch(() => undefined)
  }

  /**
   * Bytes that count for a subvolume's limit, with data that has not reached the disk. Undefined until the subvolume's number is known: one
   * program looks up those of all new subvolumes, at most once a minute. Later calls read two files.
   */
  async countedBytes(path: string): Promise<number | undefined> {
    if (!this.#ids.has(path)) await this.#list()
    return this.#counted(path)
  }

  /** Likewise, also of a new subvolume: a program looks up its number. */
  async countedBytesNow(path: string): Promise<number | undefined> {
    if (!this.#ids.has(path)) {
      const id = await this.#run(['btrfs', 'inspect-internal', 'rootid', `${this.#mountDir}/${path}`])
      this.#ids.set(path, id.trim())
    }
    return this.#counted(path)
  }

  /** Bytes that no other subvolume shares, by path; of data that has reached the disk. Starts two programs. */
  async exclusiveBytes(): Promise<ReadonlyMap<string, number>> {
    const subvolumes = await this.#run(['btrfs', 'subvolume', 'list', this.#mountDir])
    const groups = await this.#run(['btrfs', 'qgroup', 'show', '--raw', this.#mountDir])
    const bytes = new Map(
      [...groups.matchAll(/^0\/(\d+)\s+\d+\s+(\d+)/gm)].map(([, id = '', own]) => [id, Number(own)]),
    )
    const found = new Map<string, number>()
    for (const [, id = '', path = ''] of subvolumes.matchAll(/^ID (\d+) .* path (.+)$/gm)) {
      const own = bytes.get(id)
      if (own !== undefined) found.set(path, own)
    }
    return found
  }

  #counted(path: string): number | undefined {
    const id = this.#ids.get(path)
    if (id === undefined) return undefined
    const referenced = readNow(`${this.#folder}/0_${id}/referenced`)
    const reserved = readNow(`${this.#folder}/0_${id}/rsv_data`)
    return referenced === undefined ? undefined : Number(referenced) + Number(reserved ?? 0)
  }

  /** The limit that is in force, in bytes; `Infinity` for none. Undefined where `countedBytes` is. */
  async limitOf(path: string): Promise<number | undefined> {
    if (!this.#ids.has(path)) await this.#list()
    const folder = `${this.#folder}/0_${this.#ids.get(path)}`
    const [flags, bytes] = [readNow(`${folder}/limit_flags`), readNow(`${folder}/max_referenced`)]
    if (flags === undefined || bytes === undefined) return undefined
    return (Number(flags) & limitsReferenced) === 0 ? Infinity : Number(bytes)
  }

  /** Forgets the number of a removed subvolume: another one may get its path. */
  forget(path: string): void {
    this.#ids.delete(path)
  }

  readonly #list = singleFlight(async () => {
    const now = performance.now()
    if (now - this.#listedAt < listIntervalMs) return
    this.#listedAt = now
    const subvolumes = await this.#run(['btrfs', 'subvolume', 'list', this.#mountDir])
    this.#ids = new Map(
      [...subvolumes.matchAll(/^ID (\d+) .* path (.+)$/gm)].map(([, id = '', path = '']) => [path, id]),
    )
  })

  /** Removes quota groups, which outlive their subvolumes. A group with a count is still being emptied; its removal would lose count. */
  async removeStale(): Promise<void> {
    const subvolumes = await this.#run(['btrfs', 'subvolume', 'list', this.#mountDir])
    const living = new Set([...subvolumes.matchAll(/^ID (\d+) /gm)].map((match) => match[1]))
    const groups = await this.#run(['btrfs', 'qgroup', 'show', '--raw', this.#mountDir])
    for (const [, id = rootVolume, referenced, exclusive] of groups.matchAll(/^0\/(\d+)\s+(\d+)\s+(\d+)/gm)) {
      if (id === rootVolume || living.has(id) || referenced !== '0' || exclusive !== '0') continue
      await this.#run(['btrfs', 'qgroup', 'destroy', `0/${id}`, this.#mountDir]).catch(() => undefined)
    }
  }
}
