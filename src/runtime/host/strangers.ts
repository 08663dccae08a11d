import { ServiceError } from '../../errors.ts'
import type { KnownResources, Quarantined } from '../../sandbox/ports/runtime-driver.ts'
import type { DiskPool } from '../disk/index.ts'
import { exists } from '../exists.ts'
import type { Inventory } from './inventory.ts'
import { sandboxOfDisk } from './quarantine.ts'
import { recordedIds } from './records.ts'

/** `open` refuses to move more than this share of all sandboxes and checkpoints to quarantine. */
const movedShareMax = 0.1
const namedMax = 5

/** Throws `unavailable` where a new pool would be made although records name disks in one. */
export async function assertPoolIsThere(dataDir: string): Promise<void> {
  if (await exists(`${dataDir}/pool.img`)) return
  const kinds = await Promise.all(['sandboxes', 'checkpoints'].map((kind) => recordedIds(`${dataDir}/${kind}`)))
  const count = kinds.flat().length
  if (count === 0) return
  throw new ServiceError(
    'unavailable',
    `${dataDir}/pool.img is gone, in which the files of ${count} sandboxes and checkpoints are: put it back. ` +
      'ATOLL_ALLOW_QUARANTINE=1 makes an empty one and keeps the records in quarantine',
  )
}

/** Ids of sandboxes and checkpoints that should exist, and of those that must not. */
export type Ids = Record<'known' | 'abandoned', Record<Quarantined['kind'], ReadonlySet<string>>>

export function idsOf(given: Omit<KnownResources, 'abandoned'>): Ids['known'] {
  return { sandbox: new Set(given.sandboxIds), checkpoint: new Set(given.checkpointIds) }
}

/** Finds items for quarantine, without a database row or a readable record, and counts all items. Changes nothing. */
export async function findStrangers(
  { inventory, pool, known, abandoned }: Ids & { inventory: Inventory; pool: Pick<DiskPool, 'list'> },
  unreadable: readonly Quarantined[],
) {
  const isKept = ({ kind, id }: Quarantined) => !abandoned[kind].has(id)
  const recorded = [
    ...inventory.sandboxes.all().map(({ id }) => ({ kind: 'sandbox', id, reason: 'unknown' }) as const),
    ...inventory.checkpoints.all().map(({ id }) => ({ kind: 'checkpoint', id, reason: 'unknown' }) as const),
  ].filter(isKept)
  const unknown = recorded.filter(({ kind, id }) => !known[kind].has(id))
  const illegible = unreadable.filter(isKept)
  const hasFile = (what: Quarantined['kind'], id: string) =>
    inventory.recordsOf(what).get(id) !== undefined || unreadable.some((item) => item.kind === what && item.id === id)

  const unrecorded: Quarantined[] = []
  const disks = (await pool.list('sandboxes')).filter((name) => !inventory.keepsDisk(name))
  for (const id of new Set(disks.map(sandboxOfDisk))) {
    if (hasFile('sandbox', id) || abandoned.sandbox.has(id)) continue
    unrecorded.push({ kind: 'sandbox', id, reason: 'unrecorded' })
  }
  const layers = new Set(await pool.list('layers'))
  for (const id of known.checkpoint) {
    if (!layers.has(id) || hasFile('checkpoint', id) || inventory.isReferenced(id)) continue
    if (!inventory.quarantine.has('checkpoint', id)) unrecorded.push({ kind: 'checkpoint', id, reason: 'unrecorded' })
  }
  const strangers: Quarantined[] = [...unknown, ...illegible, ...unrecorded]
  return { strangers, count: recorded.length + illegible.length + unrecorded.length }
}

/** Throws `unavailable` when so many are strangers that the database is more likely to be the wrong one. */
export function assertFewStrangers(found: Awaited<ReturnType<typeof findStrangers>>, dataDir: string): void {
  const { strangers, count } = found
  if (strangers.length <= count * movedShareMax) return
  const words = {
    unknown: 'that the database does not know',
    unreadable: 'whose record cannot be read',
    unrecorded: 'without a record',
  }
  const fault = strangers.find((stranger) => stranger.fault !== undefined)?.fault
  const faults = Object.entries(words).flatMap(([reason, what]) => {
    const number = strangers.filter((stranger) => stranger.reason === reason).length
    return number > 0 ? `${number} ${what}${reason === 'unreadable' && fault !== undefined ? ` (${fault})` : ''}` : []
  })
  const named = strangers.slice(0, namedMax).map(({ id }) => id)
  const more = strangers.length > namedMax ? `, and ${strangers.length - namedMax} more` : ''
  throw new ServiceError(
    'unavailable',
    `of ${count} sandboxes and checkpoints in ${dataDir} there are ${faults.join(', ')} (${named.join(', ')}${more}). ` +
      'Nothing was stopped or removed. If this is the wrong database or an old copy of it, start with the right one. ' +
      'ATOLL_ALLOW_QUARANTINE=1 starts in spite of it and moves them to quarantine, from where they can be restored',
  )
}
