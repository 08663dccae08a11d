import { randomBytes } from 'node:crypto'
import { constants } from 'node:fs'
import { chmod, chown, copyFile, mkdir, open, readFile, stat, writeFile } from 'node:fs/promises'
import { ServiceError } from '../../errors.ts'
import { defined } from '../../lib/defined.ts'
import { Semaphore } from '../../lib/async/semaphore.ts'
import {
  type CompareOptions,
  type DiskRef,
  type DiskTrees,
  type FolderBounds,
  type FolderFile,
  patchBytesMax,
  type TreeComparison,
} from '../../sandbox/ports/disk-trees.ts'
import { allDone, removeFolders } from '../cleanup.ts'
import { CommandError, reportable } from '../command.ts'
import { asReported, diskOf, type Layer, layerOf, scratchFolder } from '../disk/index.ts'
import type { HostNames } from '../host-names.ts'
import { parseChanges } from '../trees/changes.ts'
import { outputBytes, outputFiles, treeRange, treesConfig } from '../trees/container.ts'
import { parseFolder } from '../trees/folder-files.ts'
import type { Machine } from './machine.ts'
import { uniqueBytes } from './unique-bytes.ts'

type TreesHost = Pick<Machine, 'names' | 'hostd' | 'pool' | 'images' | 'inventory' | 'log'>

/** Comparisons of all tenants at a time. */
const atOnceMax = 2
/** Comparisons that run or wait. */
const callersMax = 32
/** Patches whose readers have not come to the end, each of up to `patchBytesMax` on the disk. */
const patchesMax = 16
const timeoutMs = 60_000
/** Linux: a file without a name, which no crash leaves behind (open(2), O_TMPFILE). */
const unnamedFile = constants.O_RDWR | constants.O_DIRECTORY | 0o20000000
const removeMs = 30_000
const faultBytesMax = 1000
const partBytes = 256 * 1024
/** The image in whose programs trees are read. */
const image = 'base'
const program = `${import.meta.dirname}/../trees/program.ts`

interface Asked {
  what: 'compare' | 'patch' | 'read'
  folder: string
  filesMax?: number
  bytesMax?: number
  /** See `sharedUntil`. */
  sharedUntilNs?: string
}

/** Layers of a disk, newest first, and what lets go of them. */
interface Held {
  base: string
  layers: { start: number; path: string }[]
  /** The sandbox whose disk it is, if that is known. */
  writer: string | undefined
  /** Checkpoints whose layers it has, newest first. */
  chain: string[]
  release: () => Promise<void>
}

/**
 * Reads disks in containers, each for one call: trees are mounted read-only in an id range of their own, and a program (`trees/program.ts`) of
 * the project, with node and git of the base image, writes what it finds to a file in memory:
 *
 *     disks held ──► mounted below `runDir/trees/ID` ──► container ran ──► result read ──► all removed
 *
 * The mounts are in the server's namespace, below a folder that only root of the host and of these containers can enter.
 * What a crash leaves the next `open` removes: the container with its control group, the folder, and snapshots in the pool's scratch folder.
 */
export class HostTrees implements DiskTrees {
  readonly #host: TreesHost
  readonly #semaphore = new Semaphore({ permits: atOnceMax })
  readonly #patches = new Semaphore({ permits: patchesMax })

  constructor(host: TreesHost) {
    this.#host = host
  }

  async compare(from: DiskRef | undefined, to: DiskRef, { folder, signal }: CompareOptions): Promise<TreeComparison> {
    const read = async (result: string) => parseChanges(await readResult(result))
    return await this.#run({ what: 'compare', folder }, [from, to], signal, read)
  }

  async *patch(from: DiskRef, to: DiskRef, { folder, signal }: CompareOptions): AsyncGenerator<Uint8Array> {
    const asked = { what: 'patch', folder, bytesMax: patchBytesMax } as const
    const release = this.#patches.tryAcquire() ?? noRoom()
    try {
      await using file = await this.#run(asked, [from, to], signal, (result) => this.#keep(result))
      for (let position = 0; ;) {
        signal?.throwIfAborted()
        const { buffer, bytesRead } = await file.read(Buffer.alloc(partBytes), 0, partBytes, position)
        if (bytesRead === 0) return
        position += bytesRead
        yield buffer.subarray(0, bytesRead)
      }
    } finally {
      release()
    }
  }

  async readFolder(disk: DiskRef, folder: string, { filesMax, bytesMax, signal }: FolderBounds): Promise<FolderFile[]> {
    const read = async (result: string) => parseFolder(await readResult(result))
    return await this.#run({ what: 'read', folder, filesMax, bytesMax }, [undefined, disk], signal, read)
  }

  uniqueBytes(checkpointIds: readonly string[]): Promise<ReadonlyMap<string, number>> {
    return uniqueBytes(this.#host, checkpointIds)
  }

  async #run<Result>(
    asked: Asked,
    disks: readonly [DiskRef | undefined, DiskRef],
    signal: AbortSignal | undefined,
    read: (result: string) => Promise<Result>,
  ): Promise<Result> {
    const { names, hostd } = this.#host
    if (this.#semaphore.users() >= callersMax) noRoom()
    return await this.#semaphore.use(
      async () => {
        const id = `tree-${randomBytes(8).toString('hex')}`
        const folder = `${treesDir(names)}/${id}`
        const held: (Held | undefined)[] = []
        let isGone = false
        try {
          for (const [index, disk] of disks.entries()) held.push(disk && (await this.#hold(disk, `${id}-${index}`)))
          const shared = this.#sharedUntil(held)
          await allDone([this.#mount(folder, held), shared])
          const sharedUntilNs = await shared
          signal?.throwIfAborted()
          const argument = JSON.stringify({ filesMax: 0, bytesMax: 0, ...asked, ...defined({ sharedUntilNs }) })
          const config = treesConfig({ folder, cgroup: `${names.workGroupRoot}/${id}`, argument })
          await writeFile(`${folder}/config.json`, JSON.stringify(config))
          const run = [...this.#runc, 'run', '--bundle', folder, id] as const
          await hostd.run(run, { timeoutMs, signal }).catch((error: unknown) => {
            signal?.throwIfAborted()
            return this.#fault(folder, error)
          })
          // runc removes what has ended by itself.
          isGone = true
          return await read(`${folder}/out/result`)
        } finally {
          await this.#remove(id, folder, held, isGone)
        }
      },
      { signal },
    )
  }

  get #runc(): ['runc', ...string[]] {
    return ['runc', '--root', `${treesDir(this.#host.names)}/runc`]
  }

  async #hold(disk: DiskRef, name: string): Promise<Held> {
    const { inventory, pool } = this.#host
    const layersOf = (layers: readonly Layer[]) =>
      layers.map(({ rangeStart, checkpointId }) => ({
        start: rangeStart,
        path: pool.path(`${layerOf(checkpointId)}/upper`),
      }))
    if ('checkpointId' in disk) {
      const record = inventory.checkpoints.get(disk.checkpointId)
      if (record === undefined) throw new ServiceError('not_found', `no data of checkpoint ${disk.checkpointId}`)
      const release = await inventory.holdLayers(record.layers)
      return {
        base: record.base,
        layers: layersOf(record.layers),
        writer: record.sandboxId,
        chain: record.layers.map((layer) => layer.checkpointId),
        release: async () => release(),
      }
    }
    const record = inventory.sandboxes.get(disk.sandboxId)
    if (record === undefined) throw new ServiceError('not_found', `sandbox ${disk.sandboxId} has no disk`)
    const release = inventory.hold(record)
    // What runs writes to its disk meanwhile.
    const snapshot = `${scratchFolder}/${name}`
    try {
      await pool.snapshot(diskOf(record), snapshot)
    } catch (error) {
      release()
      throw error
    }
    return {
      base: record.base,
      layers: [{ start: record.rangeStart, path: pool.path(`${snapshot}/upper`) }, ...layersOf(record.layers)],
      writer: record.id,
      chain: record.layers.map((layer) => layer.checkpointId),
      release: async () => {
        release()
        await pool.remove(snapshot)
      },
    }
  }

  /**
   * Until when (nanoseconds since 1970) what was written to one of the disks was written to the other too. Sandboxes that have a common
   * ancestor may write the same file at the same time since, so equal times say nothing then. Undefined where one sandbox has written
   * everything that only one of the disks has, as at no time it has two states.
   */
  async #sharedUntil([from, to]: readonly (Held | undefined)[]): Promise<string | undefined> {
    if (from === undefined || to === undefined) return '0'
    const { inventory, pool, images } = this.#host
    const [before, after] = [new Set(from.chain), new Set(to.chain)]
    const onlyIn = ({ chain, writer }: Held, other: ReadonlySet<string>) => {
      const own = chain.filter((id) => !other.has(id)).map((id) => inventory.checkpoints.get(id)?.sandboxId)
      return [writer, ...own]
    }
    const writers = new Set([...onlyIn(from, after), ...onlyIn(to, before)])
    if (writers.size === 1 && !writers.has(undefined)) return undefined
    const common = from.chain.find((id) => after.has(id))
    if (common !== undefined) return inNanoseconds(await pool.createdAtMs(layerOf(common)))
    // The base is older than what any sandbox has written, and was complete by then.
    return from.base === to.base ? inNanoseconds((await stat(images.pathOf(from.base, 'base'))).ctimeMs) : '0'
  }

  /** Copies a result to where it takes no memory of the host while it is read, which its reader can do as slowly as it likes. */
  async #keep(result: string) {
    await using file = await openResult(result)
    const kept = await open(this.#host.pool.path(scratchFolder), unnamedFile, 0o600)
    try {
      for (let position = 0; position <= patchBytesMax + partBytes;) {
        const { buffer, bytesRead } = await file.read(Buffer.alloc(partBytes), 0, partBytes, position)
        if (bytesRead === 0) break
        await kept.writeFile(buffer.subarray(0, bytesRead))
        position += bytesRead
      }
      return kept
    } catch (error) {
      await kept.close()
      throw asReported(error)
    }
  }

  /** The top layer of the root has the folders on which the others are mounted, and the program. Without a disk an empty folder stays. */
  async #mount(folder: string, held: readonly (Held | undefined)[]): Promise<void> {
    const { hostd, images, names } = this.#host
    const [from, to] = held
    const { base } = await images.current(image)
    const tops = ['from', 'to', 'out', 'proc', 'dev'].map((one) => `/top/${one}`)
    const folders = ['', '/empty', '/root', '/from', '/to', '/out', '/top', ...tops]
    await mkdir(treesDir(names), { recursive: true })
    await chmod(treesDir(names), 0o711)
    // Whatever the umask is: root of the container is nobody here, and has to get there; no other id of the host may.
    for (const name of folders) {
      await mkdir(`${folder}${name}`, { recursive: true })
      await chmod(`${folder}${name}`, name === '' ? 0o710 : 0o755)
    }
    await chown(folder, 0, treeRange.start)
    await copyFile(program, `${folder}/top/program.ts`)
    await chmod(`${folder}/top/program.ts`, 0o444)
    const mount = (target: string, layers: readonly { start: number; path: string }[]) =>
      hostd.runTool({
        op: 'mount-overlay',
        target: `${folder}/${target}`,
        range: treeRange,
        layers,
        hide: names.sandboxesDir,
      })
    const layersOf = ({ base: below, layers }: Held) => {
      const all = [...layers, { start: 0, path: images.pathOf(below, 'base') }]
      // An overlay that cannot be written has two layers at least.
      return all.length > 1 ? all : [{ start: 0, path: `${folder}/empty` }, ...all]
    }
    const top = { start: 0, path: `${folder}/top` }
    const output = { bytes: outputBytes, inodes: outputFiles, owner: treeRange.start }
    await allDone([
      mount('root', [top, { start: 0, path: images.pathOf(base, 'base') }]),
      ...(from === undefined ? [] : [mount('from', layersOf(from))]),
      ...(to === undefined ? [] : [mount('to', layersOf(to))]),
      hostd.runTool({ op: 'mount-tmpfs', target: `${folder}/out`, ...output }),
    ])
  }

  /** Throws why the program has failed. */
  async #fault(folder: string, error: unknown): Promise<never> {
    const { names, log } = this.#host
    if (!(error instanceof CommandError)) throw error
    const said = await readResult(`${folder}/out/fault`, faultBytesMax).then(String, () => '')
    if (said.startsWith('too_large '))
      throw new ServiceError('too_large', reportable(said.slice('too_large '.length), [names.runDir], faultBytesMax))
    log(
      `trees could not be read: ${reportable(`${said} ${error.stderr} ${error.outcome}`, [names.runDir], faultBytesMax)}`,
    )
    throw new ServiceError('unavailable', 'the disks could not be read: they may differ by too much', { cause: error })
  }

  async #remove(id: string, folder: string, held: readonly (Held | undefined)[], isGone: boolean): Promise<void> {
    const { hostd, log } = this.#host
    const steps = [
      ...(isGone ? [] : [() => hostd.run([...this.#runc, 'delete', '--force', id], { timeoutMs: removeMs })]),
      () => removeFolders(hostd, [folder]),
      ...held.flatMap((one) => one?.release ?? []),
    ]
    for (const step of steps) {
      await step().catch((error: unknown) => {
        if (!String(error).includes('does not exist')) log(`clearing up after ${id} failed: ${String(error)}`)
      })
    }
  }
}

function noRoom(): never {
  throw new ServiceError('no_capacity', 'too many disks are being compared', { details: { retryAfterSeconds: 5 } })
}

function inNanoseconds(ms: number): string {
  return String(BigInt(Math.floor(ms)) * 1_000_000n)
}

export function treesDir({ runDir }: Pick<HostNames, 'runDir'>): string {
  return `${runDir}/trees`
}

/** What the container has put there may be a link, or anything. */
async function openResult(path: string) {
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
  if ((await file.stat()).isFile()) return file
  await file.close()
  throw new Error(`${path} is no file`)
}

async function readResult(path: string, bytesMax = outputBytes): Promise<Buffer> {
  await using file = await openResult(path)
  if ((await file.stat()).size > bytesMax) throw new Error(`${path} is too long`)
  return await readFile(file)
}
