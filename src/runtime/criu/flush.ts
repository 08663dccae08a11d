import type { Inventory } from '../host/inventory.ts'
import type { DriverContext } from '../host/context.ts'
import type { CheckpointRecord, SandboxRecord, SavedMemory } from '../host/records.ts'
import { allDone } from '../host/cleanup.ts'

/**
 * Returns when all saved memory is on the disk of the host with the disks that it belongs to, what is saved meanwhile included,
 * and records say so. Until then a loss of power costs the memory (`resumed.ts`, `whole.ts`). No work on a sandbox is
 * waited for: should it write down what it read before, that is flushed once more.
 */
export async function flushMemory({ pool, inventory }: FlushContext): Promise<void> {
  for (;;) {
    const { sandboxes, checkpoints } = inventory
    const saved = { sandboxes: sandboxes.all().filter(isSaved), checkpoints: checkpoints.all().filter(isSaved) }
    if (saved.sandboxes.length === 0 && saved.checkpoints.length === 0) return
    await pool.flush()
    await allDone([
      ...saved.sandboxes.map(({ id, memory }) => sandboxes.update(id, (record) => onDisk(record, memory))),
      ...saved.checkpoints.map(({ id, memory }) => checkpoints.update(id, (record) => onDisk(record, memory))),
    ])
  }
}

interface FlushContext {
  pool: Pick<DriverContext['pool'], 'flush'>
  inventory: Pick<Inventory, 'sandboxes' | 'checkpoints'>
}

/** Written in full, and neither on the disk nor about to be used up. */
function isSaved({ memory }: SandboxRecord | CheckpointRecord): boolean {
  return memory?.unflushed !== undefined && memory.bytes !== undefined && memory.resuming === undefined
}

function onDisk<T extends { memory?: SavedMemory }>(record: T, flushed: SavedMemory | undefined): T | undefined {
  if (record.memory?.unflushed === undefined || record.memory.folder !== flushed?.folder) return undefined
  const { unflushed: _, ...memory } = record.memory
  return { ...record, memory }
}
