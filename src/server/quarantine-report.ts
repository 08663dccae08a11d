import type { HttpDeps, QuarantineReport } from '../http/server/server.ts'
import { quarantinedIn, quarantineReasons, type QuarantineItem } from '../runtime/index.ts'

/** Of a longer list the newest are left off. */
const itemsMax = 1000

/** Reports on the quarantine of a data directory. `quarantineKeptMs`: after which items are removed; without it never. */
export function createQuarantineReporter({
  dataDir,
  quarantineKeptMs,
}: {
  dataDir: string
  quarantineKeptMs?: number | undefined
}): HttpDeps['quarantine'] {
  return async () => {
    const all = await quarantinedIn(dataDir)
    const items = all.slice(0, itemsMax).map((item) => reported(item, quarantineKeptMs))
    return { count: all.length, items }
  }
}

/** What is told of an item. */
export function reported(
  { id, kind, since, reason, fault, record }: QuarantineItem,
  keptMs: number | undefined,
): QuarantineReport['items'][number] {
  return {
    ...{ id, kind, since },
    why: fault === undefined ? quarantineReasons[reason] : `its record cannot be read: ${fault}`,
    sizeBytes: record !== undefined && 'sizeBytes' in record ? record.sizeBytes : null,
    removedAt: keptMs === undefined ? null : new Date(since.getTime() + keptMs),
  }
}
