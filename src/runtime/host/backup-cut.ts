import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { readdir, readFile, rename } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { backOffMs } from '../../lib/async/retry.ts'
import { Semaphore } from '../../lib/async/semaphore.ts'
import { allDone } from '../cleanup.ts'
import { backupsFolder, memoryFolder, templatesFolder, type DiskPool } from '../disk/index.ts'
import type { HostNames } from '../host-names.ts'
import type { HostTool } from '../hostd/index.ts'
import { changesMax } from './context.ts'

/** In parallel, as the kernel commits snapshots that are made at the same time together. */
const snapshotsAtOnce = 16
const listTimeoutMs = 120_000
const removalAttempts = 20
const removalDelay = { firstMs: 50, maxMs: 1_000 }
const draftPrefix = 'draft.'
const recordFolders = ['sandboxes', 'checkpoints', 'quarantine'] as const
/** Paths of what a backup copies. */
export const copiedPattern = /^(?:(?:sandboxes|layers|volumes)\/[^/.][^/]*|memory)$/

/** A subvolume of a cut, and the snapshot that holds it as it was then. */
export interface CutSubvolume {
  /** Relative to the pool: `sandboxes/<disk>`, `layers/<checkpoint>`, `volumes/<id>` or `memory`. */
  path: string
  isReadOnly: boolean
  uuid: string
  /** The subvolume that it was a snapshot of, unless that is an inode-offset template. */
  parentUuid?: string | undefined
  /** The number of the commit that made it. */
  createdIn: number
  /** The number of the commit that made the snapshot. The subvolume has changed since if its last change has a higher one. */
  generation: number
  /** Names the snapshot and its stream. */
  id: string
  /** The limit of a volume. */
  limitBytes?: number | undefined
  /** Whether the snapshot was made for this cut. If not, the last backup has it. */
  isNew: boolean
}

/** All that a driver has on its host, at one moment. */
export interface Cut {
  subvolumes: CutSubvolume[]
  /** Record files, in force and in quarantine, by paths relative to the data directory. */
  records: { path: string; text: string }[]
  /** Ids of snapshots of the last backup that are in the pool. */
  kept: string[]
  /** The folder of the snapshots, absolute; new ones have {@link draftPrefix} before their id. */
  folder: string
}

/** What the last backup has of a subvolume. */
export type Copied = Pick<CutSubvolume, 'id' | 'uuid' | 'generation'>

/** As btrfs lists it. */
interface Listed {
  path: string
  number: string
  uuid: string
  parentUuid: string
  generation: number
  createdIn: number
}

interface BackupOptions {
  names: HostNames
  hostd: HostTool
  pool: DiskPool
  /** See `createContext`. */
  changes: Semaphore
}

/**
 * The snapshots from which backups copy. States of one:
 *
 *     cut ──► draft.<id> ── keep ──► <id> ── removeAllBut ──► removed
 *                  └── removeDrafts ──► removed
 *
 * A cut is what `kill -9` of the server would leave at that moment, from which a start recovers. It takes all permits for changes, so it has
 * each write of a record, each made or removed subvolume and each transaction of the database whole or not at all. Sandboxes run on. The
 * memory is snapshot before the disks: if it has all images of a dump, the processes had stopped before the snapshot of their disk.
 */
export class PoolBackups {
  readonly #options: BackupOptions

  constructor(options: BackupOptions) {
    this.#options = options
  }

  /**
   * Makes a cut and calls `during` at its moment. `last` is what the last backup has, by path; `heldMs` says how long changes waited. Throws
   * `no_capacity` when the pool is full, and `conflict`.
   */
  async cut<Result>(
    last: Readonly<Record<string, Copied>>,
    during: () => Promise<Result>,
  ): Promise<{ cut: Cut; result: Result; heldMs: number }> {
    const { pool, changes } = this.#options
    // Flush first, so that the flush below, during which changes wait, is short.
    await pool.flush()
    const take = async () => {
      const from = performance.now()
      const isChanged = ({ path, uuid, generation }: Listed) =>
        last[path]?.uuid !== uuid || generation > last[path].generation
      const ids = new Map<string, string>()
      // The kernel tells changes only once they are committed.
      await pool.flush()
      const isMemory = ({ path }: Listed) => path === memoryFolder
      const memory = (await this.#list()).find(isMemory)
      assert(memory !== undefined, 'the pool has saved memory in a subvolume')
      if (isChanged(memory)) ids.set(memoryFolder, await this.#freeze(memoryFolder))
      const result = await during()
      await pool.flush()
      const found = (await this.#list()).filter(({ path }) => copiedPattern.test(path))
      const changed = found.filter((listed) => !isMemory(listed) && isChanged(listed))
      const semaphore = new Semaphore({ permits: snapshotsAtOnce })
      const frozen = changed.map(({ path }) => semaphore.use(async () => void ids.set(path, await this.#freeze(path))))
      await allDone(frozen)
      const cut = await this.#cutOf(found, ids, last)
      return { cut, result, heldMs: Math.round(performance.now() - from) }
    }
    return await changes.use(take, { weight: changesMax })
  }

  /** Names the snapshots of the last cut as those of a backup. */
  async keep(): Promise<void> {
    for (const name of await this.#drafts()) {
      const id = name.slice(draftPrefix.length)
      await rename(this.#path(name), this.#path(id))
    }
  }

  /**
   * Removes the snapshots of a cut that were not kept. The kernel refuses to remove one that is being sent, and a send ends a little after its
   * reader, so this retries for a while. Throws the last error.
   */
  async removeDrafts(): Promise<void> {
    for (let attempt = 1; ; attempt += 1) {
      const removals = (await this.#drafts()).map((name) => this.#options.pool.remove(`${backupsFolder}/${name}`))
      const failed = (await Promise.allSettled(removals)).find((result) => result.status === 'rejected')
      if (failed === undefined) return
      if (attempt === removalAttempts) throw failed.reason
      await sleep(backOffMs(attempt, removalDelay))
    }
  }

  /** Removes snapshots of backups before the last one. */
  async removeAllBut(ids: readonly string[]): Promise<void> {
    const { pool } = this.#options
    const wanted = new Set(ids)
    const others = (await pool.list(backupsFolder)).filter((name) => !wanted.has(name))
    const semaphore = new Semaphore({ permits: snapshotsAtOnce })
    await allDone(others.map((name) => semaphore.use(() => pool.remove(`${backupsFolder}/${name}`))))
  }

  async #cutOf(
    found: readonly Listed[],
    ids: ReadonlyMap<string, string>,
    last: Readonly<Record<string, Copied>>,
  ): Promise<Cut> {
    const listed = await this.#list()
    const readOnly = new Set((await this.#list(['-r'])).map(({ path }) => path))
    const byPath = new Map(listed.map((subvolume) => [subvolume.path, subvolume]))
    const limits = await this.#limits()
    const templates = new Set(
      listed.filter(({ path }) => path.startsWith(`${templatesFolder}/`)).map(({ uuid }) => uuid),
    )
    const subvolumes = found.flatMap(({ path, number, uuid, parentUuid, createdIn }): CutSubvolume[] => {
      const id = ids.get(path)
      const isSnapshot = parentUuid !== '-' && !templates.has(parentUuid)
      const facts = {
        path,
        uuid,
        createdIn,
        isReadOnly: readOnly.has(path),
        parentUuid: isSnapshot ? parentUuid : undefined,
        // Limits of sandboxes are set at each start.
        limitBytes: path.startsWith('volumes/') ? limits.get(number) : undefined,
      }
      const copied = last[path]
      if (id === undefined) return copied === undefined ? [] : [{ ...facts, ...copied, isNew: false }]
      const generation = byPath.get(`${backupsFolder}/${draftOf(id)}`)?.createdIn ?? 0
      return [{ ...facts, generation, id, isNew: true }]
    })
    const kept = (await this.#options.pool.list(backupsFolder)).filter((name) => !name.startsWith(draftPrefix))
    return { subvolumes, records: await this.#records(), kept, folder: this.#options.pool.path(backupsFolder) }
  }

  /** Returns the id of a new snapshot. */
  async #freeze(path: string): Promise<string> {
    const id = randomBytes(8).toString('hex')
    await this.#options.pool.snapshotWithin(path, `${backupsFolder}/${draftOf(id)}`)
    return id
  }

  async #list(options: readonly string[] = []): Promise<Listed[]> {
    const columns = ['-c', '-g', '-q', '-u']
    const argv = ['btrfs', 'subvolume', 'list', ...columns, ...options, this.#options.pool.path('')] as const
    const table = await this.#options.hostd.run(argv, { timeoutMs: listTimeoutMs })
    const rows = table.matchAll(/^ID (\d+) gen (\d+) cgen (\d+) .*?parent_uuid (\S+) +uuid (\S+) path (.+)$/gm)
    return [...rows].map(([, number = '', generation, createdIn, parentUuid = '-', uuid = '', path = '']) => ({
      path,
      number,
      uuid,
      parentUuid,
      generation: Number(generation),
      createdIn: Number(createdIn),
    }))
  }

  /** In bytes, by the number of the subvolume. */
  async #limits(): Promise<Map<string, number>> {
    const table = await this.#options.hostd.run(
      ['btrfs', 'qgroup', 'show', '-r', '--raw', this.#options.pool.path('')],
      {
        timeoutMs: listTimeoutMs,
      },
    )
    const rows = table.matchAll(/^0\/(\d+)\s+\d+\s+\d+\s+(\d+)/gm)
    return new Map([...rows].map(([, number = '', bytes]) => [number, Number(bytes)]))
  }

  async #records(): Promise<Cut['records']> {
    const { dataDir } = this.#options.names
    const records: Cut['records'] = []
    for (const folder of recordFolders) {
      const names = await readdir(`${dataDir}/${folder}`).catch(() => [])
      for (const name of names.filter((each) => !each.endsWith('.new'))) {
        records.push({ path: `${folder}/${name}`, text: await readFile(`${dataDir}/${folder}/${name}`, 'utf8') })
      }
    }
    return records
  }

  async #drafts(): Promise<string[]> {
    return (await this.#options.pool.list(backupsFolder)).filter((name) => name.startsWith(draftPrefix))
  }

  #path(name: string): string {
    return this.#options.pool.path(`${backupsFolder}/${name}`)
  }
}

/** The name of a snapshot that is not kept yet, and of what is received of its stream. */
export function draftOf(id: string): string {
  return `${draftPrefix}${id}`
}
