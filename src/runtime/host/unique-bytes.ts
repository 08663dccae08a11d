import { layerOf } from '../disk/index.ts'
import type { Machine } from './machine.ts'

const timeoutMs = 30_000

/**
 * Bytes that deleting each of these checkpoints would give back: of its disk, unless something else is based on it, what no other subvolume
 * shares, and of its memory what no other file does. Unknown ones are left out.
 */
export async function uniqueBytes(
  { inventory, pool, hostd, log }: Pick<Machine, 'inventory' | 'pool' | 'hostd' | 'log'>,
  checkpointIds: readonly string[],
): Promise<ReadonlyMap<string, number>> {
  const based = new Set<string>()
  for (const { id, layers } of [...inventory.sandboxes.all(), ...inventory.checkpoints.all()])
    for (const { checkpointId } of layers) if (checkpointId !== id) based.add(checkpointId)
  const found = new Map<string, number>()
  const exclusive = await pool.exclusiveBytes()
  const folders = new Map<string, { id: string; bytes: number }>()
  for (const id of checkpointIds) {
    const record = inventory.checkpoints.get(id)
    if (record === undefined) continue
    found.set(id, based.has(id) ? 0 : (exclusive.get(layerOf(id)) ?? 0))
    if (record.memory !== undefined) folders.set(pool.path(record.memory.folder), { id, bytes: record.memory.bytes })
  }
  if (folders.size === 0) return found
  const argv = ['btrfs', 'filesystem', 'du', '--raw', '--summarize', ...folders.keys()] as const
  const table = await hostd.run(argv, { timeoutMs }).catch((error: unknown) => {
    log(`what checkpoints share is not known: ${String(error)}`)
    return ''
  })
  // `Total Exclusive Set-shared Filename`
  for (const line of table.split('\n')) {
    const [total, unshared, , path = ''] = line.trim().split(/\s+/)
    const memory = folders.get(path)
    if (memory === undefined) continue
    // What has not reached the disk has no extents yet, and shares none.
    const unwritten = Math.max(0, memory.bytes - Number(total))
    found.set(memory.id, (found.get(memory.id) ?? 0) + Number(unshared) + unwritten)
  }
  return found
}
