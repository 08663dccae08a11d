import { z } from 'zod'
import { entrySchema, frameKind, type GuestEntry, type GuestStat, okSchema } from '../../protocol/guest.ts'
import type { DirectoryEntry, FileStat } from '../../sandbox/ports/guest.ts'
import { check, type GuestConnection, nonsense, parseAnswer, parseValue, type Patience } from './connection.ts'
import { ServiceError } from '../../errors.ts'
import { BodyBudget } from '../../lib/body-budget.ts'
import { isoSeconds } from './time.ts'
import { guestYield } from './guest-yield.ts'

const entriesMax = 100_000
/** As many entries with paths and names of some 250 bytes together; the guest refuses what is longer with `too_large`. */
const listBytesMax = 32 * 1024 * 1024
const listSchema = z.array(z.unknown())
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

/** What the items of a list are: `schema` checks one, `convert` makes ours of it, and there are at most `countMax`. */
export interface Items<G, T> {
  schema: z.ZodType<G>
  convert: (item: G) => T
  countMax: number
}

/**
 * Collects the frames of a listing, checked item by item and frame by frame in turns with everything else, as far as the
 * bounds allow. Throws `unavailable` beyond them.
 */
export async function readEntries<G, T>(
  connection: GuestConnection,
  { schema, convert, countMax }: Items<G, T>,
  { timeouts, listings, sandboxId }: Collection,
): Promise<T[]> {
  using share = listings.open(sandboxId)
  const entries: T[] = []
  const patience = collecting(timeouts)
  let bytes = 0
  for (;;) {
    const frame = await connection.readFrame(patience())
    if (frame.kind === frameKind.end) return entries
    if (frame.kind === frameKind.result) parseAnswer(frame.payload, z.never())
    if (frame.kind !== frameKind.entries) throw nonsense('a frame of another operation')
    bytes += frame.payload.length
    if (bytes > listBytesMax) throw nonsense('a listing is too long')
    if (!share.take(frame.payload.length)) throw new ServiceError('unavailable', 'too many long lists at the moment')
    await guestYield.next()
    const found = parseValue(frame.payload, listSchema)
    if (found.length === 0) throw nonsense('an empty list')
    if (entries.length + found.length > countMax) throw nonsense('a listing is too long')
    // One by one, so that the first that is wrong ends it: a check of all would collect what is wrong with each.
    for (const item of found) entries.push(convert(check(item, schema)))
  }
}

const entryItems: Items<GuestEntry, DirectoryEntry> = {
  schema: entrySchema,
  convert: (entry) => ({ ...fileStat(entry), name: entry.name }),
  countMax: entriesMax,
}

export async function listFolder(
  connection: GuestConnection,
  path: string,
  collection: Collection,
): Promise<DirectoryEntry[]> {
  await connection.ask({ op: 'list', path }, okSchema, { timeoutMs: collection.timeouts.answerMs })
  const entries = await readEntries(connection, entryItems, collection)
  return entries.toSorted((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0))
}
