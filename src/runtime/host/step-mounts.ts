import { randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { chmod, chown, mkdir, rename, rm, stat, utimes, writeFile } from 'node:fs/promises'
import { ServiceError } from '../../errors.ts'
import { KeyedMutex } from '../../lib/async/mutex.ts'
import { defined } from '../../lib/defined.ts'
import type { HostToolRequest } from '../../protocol/hostd.ts'
import type {
  AttachedMount,
  CacheState,
  MountOwner,
  MountSource,
  StepMounts,
} from '../../sandbox/ports/runtime-driver.ts'
import type { Cgroups } from '../cgroups/index.ts'
import { withinRun } from '../cleanup.ts'
import { cachesFolder, scratchFolder, type DiskPool } from '../disk/index.ts'
import type { SpaceWatch } from '../disk/space-watch.ts'
import { checkId, type HostNames } from '../host-names.ts'
import { HostdError, type HostTool } from '../hostd/index.ts'
import { idsPerSandbox } from '../oci/container-config.ts'
import { isAlive, type ProcessIdentity } from '../process.ts'
import type { Inventory } from './inventory.ts'
import type { RunningSandboxes } from './running.ts'

const draftPrefix = 'new.'
/** The folder that is mounted, in the subvolume of a cache or a scratch folder. What is beside it no sandbox sees. */
const dataName = 'data'

interface StepMountsOptions {
  names: HostNames
  cgroups: Pick<Cgroups, 'killAllBut'>
  hostd: HostTool
  pool: DiskPool
  space: Pick<SpaceWatch, 'assertTakesData'>
  inventory: Pick<Inventory, 'sandbox'>
  running: Pick<RunningSandboxes, 'runs'>
  /** Of the driver, by sandbox. */
  locks: KeyedMutex
}

/** A mount in one run of a sandbox; without a number, hostd has ended while it made the mount. */
interface Entry {
  sandboxId: string
  process: ProcessIdentity
  owner: number
  target: string
  mount?: number
  made?: number
  /** The subvolume of a scratch folder. */
  scratch?: string
  cacheId?: string
}

/**
 * See `StepMounts`. The mounts are in the namespace of the sandbox alone and end with it. What a crash of the server leaves, `open` removes:
 * scratch folders, and caches that were not whole (`removeMountRemains`).
 */
export class HostStepMounts implements StepMounts {
  readonly #options: StepMountsOptions
  /** By sandbox, in the order of their attachment. */
  readonly #entries = new Map<string, Entry[]>()
  readonly #handles = new WeakMap<AttachedMount, Entry>()
  readonly #making = new KeyedMutex()

  constructor(options: StepMountsOptions) {
    this.#options = options
  }

  attach(sandboxId: string, target: string, source: MountSource): Promise<AttachedMount> {
    return this.#options.locks.run(sandboxId, async () => {
      const { inventory, running } = this.#options
      const process = running.runs.get(sandboxId)
      if (process === undefined || !isAlive(process)) throw notRunning(sandboxId)
      const owner = inventory.sandbox(sandboxId).rangeStart
      const entry: Entry = { sandboxId, process, owner, target }
      await this.#mark(sandboxId)
      try {
        await this.#mount(entry, source)
      } catch (error) {
        // It may be mounted.
        if (!(error instanceof HostdError || error instanceof ServiceError)) this.#add(entry)
        else await this.#unmarkUnlessMounted(sandboxId)
        if (entry.scratch !== undefined) await this.#options.pool.remove(entry.scratch)
        if (error instanceof ServiceError) throw error
        if (!isAlive(process)) throw notRunning(sandboxId, error)
        throw asMountError(target, error)
      }
      this.#add(entry)
      const handle: AttachedMount = {
        setReadOnly: () => this.#locked(entry, () => this.#seal(entry)),
        detach: () => this.#locked(entry, () => this.#detach(entry)),
      }
      this.#handles.set(handle, entry)
      return handle
    })
  }

  endProcesses(sandboxId: string): Promise<void> {
    return this.#options.locks.run(sandboxId, async () => {
      const process = this.#options.running.runs.get(sandboxId)
      if (process === undefined || !isAlive(process)) throw notRunning(sandboxId)
      const { cgroups, names } = this.#options
      if (await cgroups.killAllBut(names.cgroup(sandboxId), process.pid)) return
      throw new ServiceError('unavailable', `processes of a step do not end in sandbox ${sandboxId}`)
    })
  }

  /** Throws `conflict` while something is mounted in this run of a sandbox, also by a server that was killed; for the holder of its lock. */
  assertNone(sandboxId: string): void {
    if (!existsSync(this.#markOf(sandboxId))) return
    const what = this.#present(sandboxId)[0]?.target ?? 'something'
    throw new ServiceError('conflict', `a step of a build has ${what} mounted in sandbox ${sandboxId}`)
  }

  /** To be called when a sandbox has been removed; for the holder of its lock. */
  async forget(sandboxId: string): Promise<void> {
    const entries = this.#entries.get(sandboxId) ?? []
    for (const entry of entries.toReversed()) await this.#detach(entry)
    this.#entries.delete(sandboxId)
  }

  async makeCache(id: string, { mode, uid, gid }: MountOwner): Promise<void> {
    const { pool, space } = this.#options
    const cache = cacheOf(id)
    await this.#making.run(id, async () => {
      if (await pool.has(cache)) return
      space.assertTakesData()
      const draft = `${cachesFolder}/${draftPrefix}${id}`
      await pool.remove(draft)
      await makeFolder(pool, draft, { mode, uid, gid })
      await rename(pool.path(draft), pool.path(cache))
      await pool.settle(cachesFolder)
    })
  }

  async limitCache(id: string, bytes: number): Promise<void> {
    await this.#options.pool.limit(cacheOf(id), bytes)
  }

  async listCaches(prefix: string): Promise<CacheState[]> {
    const { pool } = this.#options
    const names = (await pool.list(cachesFolder)).filter(
      (name) => name.startsWith(prefix) && !name.startsWith(draftPrefix),
    )
    const found: CacheState[] = []
    for (const id of names) {
      const cache = cacheOf(id)
      const lastUsedAt = await stat(pool.path(cache)).then(
        ({ mtime }) => mtime,
        () => undefined,
      )
      // It may have been removed meanwhile.
      if (lastUsedAt === undefined) continue
      const usedBytes = (await pool.countedBytesNow(cache)) ?? (await pool.referencedBytes(cache).catch(() => 0))
      found.push({ id, usedBytes, lastUsedAt })
    }
    return found
  }

  async removeCache(id: string): Promise<void> {
    const isUsed = [...this.#entries.keys()].some((sandboxId) =>
      this.#present(sandboxId).some(({ cacheId }) => cacheId === id),
    )
    if (isUsed) throw new ServiceError('conflict', `cache ${id} is in use`)
    await this.#making.run(id, () => this.#options.pool.remove(cacheOf(id)))
  }

  #locked(entry: Entry, work: () => Promise<void>): Promise<void> {
    return this.#options.locks.run(entry.sandboxId, work)
  }

  /** Written before anything is mounted in a run of a sandbox. It goes with the last mount, or with the bundle. */
  #markOf(sandboxId: string): string {
    return `${this.#options.names.sandboxDir(sandboxId)}/mounted`
  }

  async #mark(sandboxId: string): Promise<void> {
    await withinRun(writeFile(this.#markOf(sandboxId), ''))
  }

  async #unmarkUnlessMounted(sandboxId: string): Promise<void> {
    if (this.#present(sandboxId).length === 0) await rm(this.#markOf(sandboxId), { force: true })
  }

  /** Those of the present run, the latest last. */
  #present(sandboxId: string): Entry[] {
    const run = this.#options.running.runs.get(sandboxId)
    return (this.#entries.get(sandboxId) ?? []).filter(({ process }) => process === run)
  }

  #add(entry: Entry): void {
    const entries = this.#entries.get(entry.sandboxId)
    if (entries === undefined) this.#entries.set(entry.sandboxId, [entry])
    else entries.push(entry)
  }

  async #mount(entry: Entry, source: MountSource): Promise<void> {
    const { names, hostd, pool, space } = this.#options
    const { process, owner, target } = entry
    const { pid, startTicks } = process
    const place = { process: { pid, startTicks }, owner, target }
    const hide = names.sandboxesDir
    const range = { start: owner, count: idsPerSandbox }
    const folder = (path: string, readOnly: boolean, part?: string): HostToolRequest => {
      const from = { source: pool.path(`${path}/${dataName}`), ...defined({ part }) }
      return { op: 'attach-folder', ...place, ...from, range, readOnly }
    }
    const attached = async (request: HostToolRequest) => {
      const [mount, made] = (await hostd.runTool(request)).trim().split(' ').map(Number)
      Object.assign(entry, { mount, made })
    }
    switch (source.type) {
      case 'tmpfs':
        return await attached({ op: 'attach-tmpfs', ...place, hide, bytes: source.bytes })
      case 'secret': {
        const { content, mode, uid, gid } = source
        const digits = Buffer.from(content).toString('hex')
        const ids = { uid: owner + uid, gid: owner + gid }
        return await attached({ op: 'attach-secret', ...place, hide, content: digits, mode, ...ids })
      }
      case 'cache':
        space.assertTakesData()
        entry.cacheId = source.id
        if (!(await pool.has(cacheOf(source.id)))) throw new ServiceError('conflict', 'the cache is gone')
        await touch(pool, source.id)
        return await attached(folder(cacheOf(source.id), source.readOnly))
      case 'scratch':
        space.assertTakesData()
        entry.scratch = `${scratchFolder}/${checkId(entry.sandboxId)}.${randomBytes(8).toString('hex')}`
        await makeFolder(pool, entry.scratch, { mode: 0o755, uid: 0, gid: 0 })
        await pool.limit(entry.scratch, source.bytes)
        return await attached(folder(entry.scratch, false))
      case 'part': {
        const scratch = this.#handles.get(source.of)?.scratch
        if (scratch === undefined || !(await pool.has(scratch))) {
          throw new ServiceError('conflict', 'the scratch folder is gone')
        }
        return await attached(folder(scratch, source.readOnly, source.path))
      }
    }
  }

  async #seal({ sandboxId, process, target, mount = -1 }: Entry): Promise<void> {
    const { pid, startTicks } = process
    await this.#options.hostd
      .runTool({ op: 'seal-mount', process: { pid, startTicks }, mount })
      .catch((error: unknown) => {
        if (!isAlive(process)) throw notRunning(sandboxId, error)
        throw asMountError(target, error)
      })
  }

  /** For the holder of the lock of the sandbox. */
  async #detach(entry: Entry): Promise<void> {
    const { sandboxId, process, owner, target, mount, made = 0, scratch, cacheId } = entry
    const { hostd, pool, running } = this.#options
    const entries = this.#entries.get(sandboxId) ?? []
    if (!entries.includes(entry)) return
    if (running.runs.get(sandboxId) === process && isAlive(process) && mount !== undefined) {
      const { pid, startTicks } = process
      await hostd
        .runTool({ op: 'detach-mount', process: { pid, startTicks }, owner, mount, made })
        .catch((error: unknown) => {
          if (isAlive(process)) throw asMountError(target, error)
        })
    }
    if (scratch !== undefined) await pool.remove(scratch)
    if (cacheId !== undefined) await touch(pool, cacheId).catch(() => undefined)
    entries.splice(entries.indexOf(entry), 1)
    if (running.runs.get(sandboxId) === process) await this.#unmarkUnlessMounted(sandboxId)
    if (entries.length === 0) this.#entries.delete(sandboxId)
  }
}

/** Removes what a crash of the server has left of mounts. A sandbox that still has a scratch folder mounted keeps it. */
export async function removeMountRemains(pool: Pick<DiskPool, 'list' | 'remove'>): Promise<void> {
  for (const name of await pool.list(scratchFolder)) await pool.remove(`${scratchFolder}/${name}`)
  const caches = await pool.list(cachesFolder)
  for (const name of caches.filter((found) => found.startsWith(draftPrefix))) {
    await pool.remove(`${cachesFolder}/${name}`)
  }
}

function cacheOf(id: string): string {
  return `${cachesFolder}/${checkId(id)}`
}

/** A subvolume with the folder that is mounted. A failure leaves nothing. */
async function makeFolder(pool: DiskPool, path: string, { mode, uid, gid }: MountOwner): Promise<void> {
  try {
    await pool.createSubvolume(path)
    const data = pool.path(`${path}/${dataName}`)
    await mkdir(data)
    await chown(data, uid, gid)
    await chmod(data, mode)
  } catch (error) {
    await pool.remove(path).catch(() => undefined)
    throw error
  }
}

/** Says when a cache was used, in the time of a folder that no sandbox can change. */
async function touch(pool: DiskPool, id: string): Promise<void> {
  const now = new Date()
  await utimes(pool.path(cacheOf(id)), now, now)
}

function notRunning(sandboxId: string, cause?: unknown): ServiceError {
  return new ServiceError('unavailable', `sandbox ${sandboxId} does not run`, { cause })
}

function asMountError(target: string, error: unknown): unknown {
  if (!(error instanceof HostdError)) return error
  if (error.code === 'target') return new ServiceError('invalid_request', error.stderr, { cause: error })
  if (error.code === 'busy')
    return new ServiceError('conflict', `${target} is in use: ${error.stderr}`, { cause: error })
  if (error.code === 'no_space')
    return new ServiceError('no_capacity', `${target} cannot be made: the disk is full`, { cause: error })
  return new ServiceError('unavailable', `${target} cannot be mounted or unmounted`, { cause: error })
}
