import { mountsBelow } from '../disk/mounts.ts'
import { copyFile, mkdir, stat } from 'node:fs/promises'
import { exists } from '../exists.ts'
import { type DiskPool, diskOf, layerOf, noteOf, type Layer } from '../disk/index.ts'
import type { HostTool } from '../hostd/index.ts'
import type { Inventory } from './inventory.ts'
import type { Machine } from './machine.ts'
import type { CheckpointRecord, SandboxRecord } from './records.ts'

/** Timeout of a copy. A few hundred thousand files take a minute. */
const copyTimeoutMs = 600_000
/** Where copies are made. A read-only subvolume can only be renamed within its folder. */
const drafts = { readOnly: 'layers/.renumbered', writable: 'renumbered' }

export interface RenumberOptions extends Pick<Machine, 'pool' | 'templates' | 'hostd' | 'names' | 'log'> {
  inventory: Pick<Inventory, 'sandboxes' | 'checkpoints'>
}

/**
 * Replaces layers and disks whose inode numbers collide with those of layers below (see `InodeTemplates`), because they were copied into
 * the pool (`btrfs receive`, `cp`). The `upper` folder of such a copy has a lower number than the record says of the layer below. Each is
 * replaced by a copy with higher numbers, from the lowest layer up; if that fails it stays. Must be called while nothing starts.
 */
export async function renumberCopies(options: RenumberOptions): Promise<void> {
  const { pool, inventory, names, log } = options
  // Remove drafts of a dead server.
  for (const draft of Object.values(drafts)) await pool.remove(draft)
  const sandboxes = inventory.sandboxes.all()
  const records = [...sandboxes, ...inventory.checkpoints.all()]
  const ends = endsOf(records)
  const mounts = await mountsBelow(names.sandboxesDir)
  const mounted = new Set(mounts.map(({ target }) => target.slice(names.sandboxesDir.length + 1).split('/', 1)[0]))
  const isMounted = ({ id }: SandboxRecord) => mounted.has(id)
  const inUse = new Set(sandboxes.filter(isMounted).flatMap(({ layers }) => layers.map((layer) => layer.checkpointId)))
  for (const { id, below } of layersOf(records)) {
    const isLow = await numbersMeet(pool, layerOf(id), below === undefined ? undefined : ends.get(below))
    if (!isLow) continue
    if (inUse.has(id)) {
      log(`layer ${id} numbers its files as layers below it do; a start while no sandbox runs on it mends that`)
      continue
    }
    await replace(options, { path: layerOf(id), above: isLow, readOnly: true }, async (inodeEnd) => {
      ends.set(id, Math.max(inodeEnd, ends.get(id) ?? 0))
      await writeEnds(options, ends)
    })
  }
  await writeEnds(options, ends)
  for (const record of sandboxes.filter((sandbox) => !isMounted(sandbox))) {
    const [top] = record.layers
    const isLow = await numbersMeet(pool, diskOf(record), top === undefined ? undefined : ends.get(top.checkpointId))
    if (!isLow) continue
    await replace(options, { path: diskOf(record), above: isLow, readOnly: false }, async () => undefined)
  }
}

/** The lowest number that files of a subvolume should have; undefined when they have no lower ones. */
async function numbersMeet(pool: DiskPool, path: string, end: number | undefined): Promise<number | undefined> {
  if (end === undefined) return undefined
  const first = await stat(pool.path(`${path}/upper`)).catch(() => undefined)
  return first !== undefined && first.ino < end ? end : undefined
}

async function replace(
  { pool, templates, hostd, log }: RenumberOptions,
  { path, above, readOnly }: { path: string; above: number; readOnly: boolean },
  known: (inodeEnd: number) => Promise<void>,
): Promise<void> {
  try {
    const seed = await templates.above(above)
    // No template is so high, so the subvolume was made without one too.
    if (seed === undefined) return
    await renumber(pool, hostd, { path, seed, readOnly }, known)
    log(`${path} was copied into the pool: its files have numbers of their own now`)
  } catch (error) {
    log(`files of ${path} may have the inode numbers of others: ${String(error)}`)
  }
}

/** For each layer a number above all of its inode numbers: the highest that records have, as copies of records may differ. */
function endsOf(records: readonly (SandboxRecord | CheckpointRecord)[]): Map<string, number> {
  const ends = new Map<string, number>()
  for (const { checkpointId, inodeEnd } of records.flatMap(({ layers }) => layers)) {
    if (inodeEnd !== undefined) ends.set(checkpointId, Math.max(inodeEnd, ends.get(checkpointId) ?? 0))
  }
  return ends
}

/** All layers that records name, each after those that it stands on. */
function layersOf(records: readonly (SandboxRecord | CheckpointRecord)[]): { id: string; below: string | undefined }[] {
  const found = new Map<string, { id: string; below: string | undefined; depth: number }>()
  for (const { layers } of records) {
    for (const [index, { checkpointId: id }] of layers.entries()) {
      found.set(id, { id, below: layers[index + 1]?.checkpointId, depth: layers.length - index })
    }
  }
  return [...found.values()].toSorted((one, other) => one.depth - other.depth)
}

/** Writes the ends to records, before the exchange: a number that is too high does no harm. */
async function writeEnds(
  { inventory: { sandboxes, checkpoints } }: RenumberOptions,
  ends: ReadonlyMap<string, number>,
): Promise<void> {
  const corrected = (layers: readonly Layer[]): Layer[] | undefined => {
    if (layers.every(({ checkpointId, inodeEnd }) => inodeEnd === ends.get(checkpointId))) return undefined
    return layers.map((layer) => ({ ...layer, inodeEnd: ends.get(layer.checkpointId) }) as Layer)
  }
  for (const record of sandboxes.all()) {
    const layers = corrected(record.layers)
    if (layers !== undefined) await sandboxes.put({ ...record, layers })
  }
  for (const record of checkpoints.all()) {
    const layers = corrected(record.layers)
    if (layers !== undefined) await checkpoints.put({ ...record, layers })
  }
}

/**
 * Replaces an unused subvolume with an `upper` folder by a copy (a writable one gets a new `work`): the same files, with shared
 * bytes and the higher inode numbers of the template `seed`. `known` gets a number above all of them before the exchange.
 */
async function renumber(
  pool: DiskPool,
  hostd: HostTool,
  { path, seed, readOnly }: { path: string; seed: string; readOnly: boolean },
  known: (inodeEnd: number) => Promise<void>,
): Promise<void> {
  const draft = readOnly ? drafts.readOnly : drafts.writable
  try {
    await pool.createSubvolume(draft, seed)
    // Like `cp --archive`, which would not report a lost attribute. Bytes are copied where files cannot share them, as when one
    // has no copy on write.
    const preserved = '--preserve=mode,ownership,timestamps,links,xattr'
    const copy = ['cp', '--recursive', '--no-dereference', preserved, '--reflink=auto', '--'] as const
    await hostd.run([...copy, pool.path(`${path}/upper`), pool.path(draft)], { timeoutMs: copyTimeoutMs })
    const note = noteOf(pool.path(path))
    if (await exists(note)) await copyFile(note, noteOf(pool.path(draft)))
    const inodeEnd = await pool.nextInode(draft)
    if (inodeEnd === undefined) throw new Error('no file can be made in the copy')
    if (readOnly) await hostd.run(['btrfs', 'property', 'set', '-t', 'subvol', pool.path(draft), 'ro', 'true'])
    else await mkdir(pool.path(`${draft}/work`), { mode: 0o700 })
    // The exchange could reach the disk before copied bytes, and the original is removed.
    await pool.flush()
    await known(inodeEnd)
    await hostd.runTool({ op: 'exchange-paths', one: pool.path(path), other: pool.path(draft) })
  } finally {
    await pool.remove(draft)
  }
}
