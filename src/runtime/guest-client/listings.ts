import { z } from 'zod'
import { entrySchema, frameKind, type GuestEntry, okSchema } from '../../protocol/guest.ts'
import type { DirectoryEntry } from '../../sandbox/ports/guest.ts'
import {
  check,
  guestYield,
  type GuestConnection,
  nonsense,
  parseAnswer,
  parseValue,
  type Timeouts,
  type WaitOptions,
} from './connection.ts'
import { ServiceError } from '../../errors.ts'
import { TimeSlice } from '../../lib/async/time-slice.ts'
import { BodyBudget } from '../../lib/body-budget.ts'
import type { JsonBounds } from '../../lib/json-values.ts'
import { sortedInSlices } from '../../lib/sorted.ts'
import { fileStat } from './port-values.ts'

const entriesMax = 100_000
/** Room for the most entries with names of some 250 bytes; the guest refuses longer lists with `too_large`. */
const listBytesMax = 32 * 1024 * 1024
const listSchema = z.array(z.unknown())
/** Bounds of one frame, whose entries have some hundred bytes each. */
const frameBounds: JsonBounds = { valuesMax: 32_768, depthMax: 8, fieldsMax: 64 }
/** Bound of the JSON that is being collected for all owners together; its parsed values take a few times as much. */
const listingsBytesMax = 192 * 1024 * 1024
/** Small listings always pass. */
const listingFreeBytes = 64 * 1024

/** One budget for the process: root in a sandbox can answer many calls at once with the longest lists, and take minutes for each. */
export const processListings = new BodyBudget(listingsBytesMax, {
  ownerBytesMax: listBytesMax,
  freeBytes: listingFreeBytes,
})

/** The bounds of a collected listing. */
export interface Collection {
  timeouts: Timeouts
  listings: BodyBudget
  /** Whose share of `listings` is charged. */
  owner: string
}

/** Returns the wait for the next frame of an answer whose collection begins now. */
export function collecting({ idleMs, collectMs }: Timeouts): () => WaitOptions {
  const until = performance.now() + collectMs
  return () => ({ timeoutMs: Math.max(0, Math.min(idleMs, until - performance.now())) })
}

/** The items of a list: `schema` checks one, `convert` makes a value of the port, `countMax` bounds their number. */
export interface Items<G, T> {
  schema: z.ZodType<G>
  convert: (item: G) => T
  countMax: number
}

/**
 * Collects the frames of a listing and checks each item; yields to other work between frames. Throws `unavailable` beyond the
 * bounds.
 */
export async function readEntries<G, T>(
  connection: GuestConnection,
  { schema, convert, countMax }: Items<G, T>,
  { timeouts, listings, owner }: Collection,
): Promise<T[]> {
  using share = listings.open(owner)
  const entries: T[] = []
  const wait = collecting(timeouts)
  const slice = new TimeSlice()
  let bytes = 0
  for (;;) {
    const frame = await connection.readFrame(wait())
    if (frame.kind === frameKind.end) return entries
    if (frame.kind === frameKind.result) await parseAnswer(frame.payload, z.never())
    if (frame.kind !== frameKind.entries) throw nonsense('a frame of another operation')
    bytes += frame.payload.length
    if (bytes > listBytesMax) throw nonsense('a listing is too long')
    if (!share.take(frame.payload.length)) throw new ServiceError('unavailable', 'too many long lists at the moment')
    await guestYield.next()
    const found = await parseValue(frame.payload, listSchema, frameBounds)
    if (found.length === 0) throw nonsense('an empty list')
    if (entries.length + found.length > countMax) throw nonsense('a listing is too long')
    // One by one, so that the first wrong item ends the check: a check of the whole list would collect the faults of each.
    for (const item of found) {
      await slice.next()
      entries.push(convert(check(item, schema)))
    }
  }
}

const entryItems: Items<GuestEntry, DirectoryEntry> = { schema: entrySchema, convert: fileStat, countMax: entriesMax }

export async function listFolder(
  connection: GuestConnection,
  folder: object,
  collection: Collection,
): Promise<DirectoryEntry[]> {
  await connection.ask({ op: 'list', ...folder }, okSchema, { timeoutMs: collection.timeouts.answerMs })
  const entries = await readEntries(connection, entryItems, collection)
  return await sortedInSlices(entries, (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0))
}
