import { posix } from 'node:path'
import { ServiceError } from '../errors.ts'
import { withTimeout } from '../lib/async/timeout.ts'
import type { KeyReach } from '../lib/key-reach.ts'
import { isStorable } from '../lib/storable.ts'
import { type Checkpoints, assertReady } from './checkpoint.ts'
import type { Checkpoint } from './checkpoint-records.ts'
import { assertInput, assertPath } from './input.ts'
import type { Lifecycle, LifecycleContext } from './lifecycle.ts'
import type {
  CompareOptions,
  DiskRef,
  DiskTrees,
  FolderBounds,
  FolderFile,
  TreeComparison,
} from './ports/disk-trees.ts'
import { assertAlive, notUsable } from './sandbox.ts'
import { countTimeoutMs } from './sandbox-tree.ts'

/** Where sandboxes have the work that is compared. */
export const comparedFolderDefault = '/workspace'

/** Names two disks of a tree (`sandbox-tree.ts`). */
export interface CompareDisks {
  /** A checkpoint: its id, its name where it is of the sandbox, or `SANDBOX/NAME`. */
  from: string
  /** Likewise. Absent: the disk that the sandbox has now. */
  to?: string
  /** Absolute path inside. Default {@link comparedFolderDefault}. */
  folder?: string
  /** Of the key that asks. */
  reach?: KeyReach
  signal?: AbortSignal
}

/** The disks that were compared. */
export interface ComparedDisks {
  /** Id of the checkpoint. */
  from: string
  /** Likewise; null for the disk that the sandbox has now. */
  to: string | null
  folder: string
}

export type Comparison = ComparedDisks & TreeComparison

export type TreeService = Pick<
  Trees,
  'compare' | 'patch' | 'compareDisks' | 'patchDisks' | 'readFolder' | 'uniqueBytes'
>

interface TreesContext extends Pick<LifecycleContext, 'store'> {
  lifecycle: Lifecycle
  checkpoints: Checkpoints
  disks: DiskTrees
}

/**
 * Reads and compares disks: of checkpoints, and those that sandboxes have now. Nothing is woken, and no call is activity. All methods throw
 * what {@link DiskTrees} throws, `not_found` for a disk of another organisation, and `conflict` for a checkpoint that has failed; they wait for
 * one that is `processing`. A sandbox without a disk throws as every other operation on it does.
 */
export class Trees {
  readonly #context: TreesContext

  constructor(context: TreesContext) {
    this.#context = context
  }

  /** Of two disks in the tree of a sandbox. Throws `not_found` for a checkpoint that is not in it, `invalid_request` for a folder. */
  async compare(orgId: string, sandboxId: string, input: CompareDisks): Promise<Comparison> {
    const asked = await this.#find(orgId, sandboxId, input)
    const { from, to, named } = asked
    return { ...named, ...(await this.compareDisks(orgId, from, to, optionsOf(asked, input.signal))) }
  }

  /** The same as a unified diff. An error of the disks comes before the first bytes. */
  async *patch(orgId: string, sandboxId: string, input: CompareDisks): AsyncGenerator<Uint8Array> {
    const asked = await this.#find(orgId, sandboxId, input)
    yield* this.patchDisks(orgId, asked.from, asked.to, optionsOf(asked, input.signal))
  }

  /** The same of any two disks of the organisation. */
  async *patchDisks(orgId: string, from: DiskRef, to: DiskRef, options: CompareOptions): AsyncGenerator<Uint8Array> {
    const release = await this.#open(orgId, [from, to])
    try {
      yield* this.#context.disks.patch(from, to, options)
    } finally {
      release()
    }
  }

  /** Of any two disks of the organisation; without `from`, of an empty folder and a disk. */
  async compareDisks(
    orgId: string,
    from: DiskRef | undefined,
    to: DiskRef,
    options: CompareOptions,
  ): Promise<TreeComparison> {
    const release = await this.#open(orgId, from === undefined ? [to] : [from, to])
    try {
      return await this.#context.disks.compare(from, to, options)
    } finally {
      release()
    }
  }

  /** The files of a folder of any disk of the organisation. */
  async readFolder(orgId: string, disk: DiskRef, folder: string, bounds: FolderBounds): Promise<FolderFile[]> {
    const release = await this.#open(orgId, [disk])
    try {
      return await this.#context.disks.readFolder(disk, folder, bounds)
    } finally {
      release()
    }
  }

  /** Bytes that the deletion of a checkpoint would give back; undefined where they are not counted, or not within a few seconds. */
  async uniqueBytes(orgId: string, checkpointId: string): Promise<number | undefined> {
    assertReady(await this.#context.checkpoints.settled(orgId, checkpointId))
    const counted = this.#context.disks.uniqueBytes([checkpointId])
    return (await withTimeout(countTimeoutMs, counted))?.get(checkpointId)
  }

  async #find(orgId: string, sandboxId: string, { from, to, folder: given, reach }: CompareDisks) {
    const folder = checkedFolder(given ?? comparedFolderDefault)
    await this.#assertKnown(orgId, sandboxId)
    const query = { orgId, sandboxId, reach }
    const { id } = await this.#checkpoint(query, from)
    const toId = to === undefined ? undefined : (await this.#checkpoint(query, to)).id
    const toDisk = toId === undefined ? { sandboxId } : { checkpointId: toId }
    const named: ComparedDisks = { from: id, to: toId ?? null, folder }
    return { from: { checkpointId: id }, to: toDisk, named } satisfies {
      from: DiskRef
      to: DiskRef
      named: ComparedDisks
    }
  }

  /** Checkpoints outlive their sandbox. */
  async #assertKnown(orgId: string, sandboxId: string): Promise<void> {
    const { store, lifecycle } = this.#context
    if ((await store.listCheckpoints(sandboxId, orgId)).length === 0) await lifecycle.read(sandboxId, orgId)
  }

  /** What is named, if it is in the tree. An id goes before a name, and a name of the sandbox before that of another. */
  async #checkpoint(query: TreePlace, named: string): Promise<Checkpoint> {
    if (isStorable(named)) {
      for await (const id of this.#idsOf(query, named)) {
        const checkpoint = await this.#context.store.checkpoint(id, query.orgId)
        if (checkpoint !== undefined && (await this.#isInTree(query, checkpoint))) return checkpoint
      }
    }
    throw new ServiceError('not_found', `no checkpoint ${named.slice(0, 200)}`)
  }

  async *#idsOf({ orgId, sandboxId }: TreePlace, named: string): AsyncGenerator<string> {
    const { store } = this.#context
    yield named
    const own = await store.checkpointNamed(named, sandboxId, orgId)
    if (own !== undefined) yield own
    const slash = named.indexOf('/')
    if (slash === -1) return
    const sandbox = named.slice(0, slash)
    const other = (await store.sandboxNamed(sandbox, orgId)) ?? sandbox
    const id = await store.checkpointNamed(named.slice(slash + 1), other, orgId)
    if (id !== undefined) yield id
  }

  async #isInTree({ orgId, sandboxId, reach }: TreePlace, checkpoint: Checkpoint): Promise<boolean> {
    if (checkpoint.sandboxId === sandboxId) return true
    if (checkpoint.owner === 'image') return false
    const { store } = this.#context
    const root = await store.treeRoot(sandboxId, { orgId, reach })
    return root !== undefined && root === (await store.treeRoot(checkpoint.sandboxId, { orgId, reach }))
  }

  /** Returns once all can be read, in this order. Until the returned function is called none of the checkpoints expires. */
  async #open(orgId: string, disks: readonly DiskRef[]): Promise<() => void> {
    const releases: (() => void)[] = []
    const release = () => {
      for (const one of releases) one()
    }
    try {
      for (const disk of disks) {
        if ('sandboxId' in disk) await this.#assertHasDisk(orgId, disk.sandboxId)
        else {
          releases.push(await this.#hold(disk.checkpointId))
          assertReady(await this.#context.checkpoints.settled(orgId, disk.checkpointId))
        }
      }
      return release
    } catch (error) {
      release()
      throw error
    }
  }

  async #hold(checkpointId: string): Promise<() => void> {
    const [begun, ended] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    const held = this.#context.checkpoints.using(checkpointId, async () => {
      begun.resolve()
      await ended.promise
    })
    await Promise.race([begun.promise, held])
    return ended.resolve
  }

  async #assertHasDisk(orgId: string, sandboxId: string): Promise<void> {
    const sandbox = await this.#context.lifecycle.read(sandboxId, orgId)
    assertAlive(sandbox)
    if (sandbox.status === 'creating') throw notUsable(sandbox)
  }
}

interface TreePlace {
  orgId: string
  sandboxId: string
  reach: KeyReach | undefined
}

function optionsOf({ named: { folder } }: { named: ComparedDisks }, signal: AbortSignal | undefined): CompareOptions {
  return { folder, signal }
}

/** A folder without double slashes and one at its end. */
function checkedFolder(folder: string): string {
  assertPath(folder, 'folder')
  assertInput(folder.isWellFormed(), 'folder', 'must be well-formed text')
  assertInput(!folder.split('/').includes('..'), 'folder', 'must not contain ..')
  const normal = posix.normalize(folder).replace(/^\/+/, '/')
  return normal.length > 1 && normal.endsWith('/') ? normal.slice(0, -1) : normal
}
