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
    const items = all.slice(0, itemsMax).map((item): QuarantineReport['items'][number] => {
      const { id, kind, since } = item
      const removedAt = quarantineKeptMs === undefined ? null : new Date(since.getTime() + quarantineKeptMs)
      return { id, kind, why: whyOf(item), sizeBytes: sizeOf(item), since, removedAt }
    })
    return { count: all.length, items }
  }
}

/** Why an item is in quarantine, in words. */
export function whyOf({ reason, fault }: QuarantineItem): string {
  return fault === undefined ? quarantineReasons[reason] : `its record cannot be read: ${fault}`
}

/** Bytes of a checkpoint; `null` where they are not known. */
export function sizeOf({ record }: QuarantineItem): number | null {
  return record !== undefined && 'sizeBytes' in record ? record.sizeBytes : null
}
