import type { CheckpointRecord, SandboxRecord, SavedMemory } from '../records.ts'

/** The record of a sandbox in slot `number`, without layers and memory unless `more` has some. */
export function sandboxRecord(id: string, number: number, more: Partial<SandboxRecord> = {}): SandboxRecord {
  const rangeStart = 1_000_000_000 + number * 65_536
  return { id, rangeStart, slot: number, base: '/', guest: '/', layers: [], generation: '0'.repeat(32), ...more }
}

/** The record of a checkpoint whose layer is its own. */
export function checkpointRecord(id: string, more: Partial<CheckpointRecord> = {}): CheckpointRecord {
  const layers = [{ checkpointId: id, rangeStart: 1_000_000_000 }]
  return { id, kind: 'disk_only', base: '/', layers, sizeBytes: 1, ...more }
}

/** Five bytes of memory, in a folder of its own in the pool. */
export function memoryOf(id: string, more: Partial<SavedMemory> = {}): SavedMemory & { bytes: number } {
  return { folder: `memory/saved/${id}`, address: '', bytes: 5, keepConnections: true, ...more }
}
