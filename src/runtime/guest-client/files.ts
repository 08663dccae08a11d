import { z } from 'zod'
import { entrySchema, frameKind, type GuestStat, okSchema } from '../../protocol/guest.ts'
import type { DirectoryEntry, FileStat } from '../../sandbox/guest.ts'
import { type GuestConnection, nonsense, parseAnswer, parseValue, type Patience } from './connection.ts'
import { ServiceError } from '../../errors.ts'
import { BodyBudget } from '../../lib/held-body.ts'
import { isoSeconds } from './time.ts'

const entriesMax = 100_000
const listBytesMax = 64 * 1024 * 1024
/** Of JSON that is being collected, all sandboxes together; what is made of it takes a few times as much. */
const listingsBytesMax = 192 * 1024 * 1024
/** So that small listings always pass. */
const listingFreeBytes = 64 * 1024

/** One for the whole process: whoever is root in a sandbox may send longest lists to many calls at once, and never end them. */
export const processListings = new BodyBudget(listingsBytesMax, {
  ownerBytesMax: listBytesMax,
  freeBytes: listingFreeBytes,
})

/** Opens a connection for what may be asked again after a freeze. */
export type Reopen = <T>(use: (connection: GuestConnection) => Promise<T>) => Promise<T>

export interface Timeouts {
  /** For the answer line. */
  answerMs: number
  /** For one frame of a stream, while we are ready to take or give it. */
  idleMs: number
  /** For all frames of an answer that is collected here. */
  wholeMs: number
}

/** How a listing is collected. */
export interface Collection {
  timeouts: Timeouts
  listings: BodyBudget
  /** Whose share of `listings` it is. */
  sandboxId: string
}

/** The patience for each next frame of an answer that is collected from now on. */
export function collecting({ idleMs, wholeMs }: Timeouts): () => Patience {
  const until = performance.now() + wholeMs
  return () => ({ timeoutMs: Math.max(0, Math.min(idleMs, until - performance.now())) })
}

export function fileStat(stat: GuestStat): FileStat {
  return {
    path: stat.path,
    isDir: stat.isDir,
    size: stat.size,
    mode: stat.mode,
    modifiedAt: isoSeconds(stat.modifiedSeconds),
  }
}

/** Collects the frames of a listing, checked item by item, as far as the bounds allow. Throws `unavailable` beyond them. */
export async function readEntries<T>(
  connection: GuestConnection,
  item: z.ZodType<T>,
  { timeouts, listings, sandboxId }: Collection,
): Promise<T[]> {
  using share = listings.open(sandboxId)
  const batch = z.array(item)
  const entries: T[] = []
  const patience = collecting(timeouts)
  let bytes = 0
  for (;;) {
    const frame = await connection.readFrame(patience())
    if (frame.kind === frameKind.end) return entries
    if (frame.kind === frameKind.result) parseAnswer(frame.payload, z.never())
    if (frame.kind !== frameKind.entries) throw nonsense('a frame of another operation')
    bytes += frame.payload.length
    if (!share.take(frame.payload.length)) throw new ServiceError('unavailable', 'too many long lists at the moment')
    const found = parseValue(frame.payload, batch)
    if (found.length === 0) throw nonsense('an empty list')
    for (const entry of found) entries.push(entry)
    if (entries.length > entriesMax || bytes > listBytesMax) throw nonsense('a listing is too long')
  }
}

export async function listFolder(
  connection: GuestConnection,
  path: string,
  collection: Collection,
): Promise<DirectoryEntry[]> {
  await connection.ask({ op: 'list', path }, okSchema, { timeoutMs: collection.timeouts.answerMs })
  const entries = await readEntries(connection, entrySchema, collection)
  return entries
    .map((entry) => ({ ...fileStat(entry), name: entry.name }))
    .toSorted((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0))
}
