import type { DriverContext } from './context.ts'

const expiryIntervalMs = 3_600_000
/** The key of the lock under which items expire; no id of a sandbox looks like it. */
const expiryKey = 'the quarantine'

/** Removes for good what has lain in quarantine for as long as it is kept. Never throws: what cannot be removed is tried again. */
export async function removeExpired({ inventory, quarantineKeptMs, log }: DriverContext): Promise<void> {
  if (quarantineKeptMs === undefined) return
  const until = Date.now() - quarantineKeptMs
  const expired = inventory.quarantine.items.filter(({ since }) => since.getTime() <= until)
  for (const item of expired) {
    const { kind, id, since } = item
    try {
      await inventory.removeFromQuarantine(item)
      log(`${kind} ${id}, in quarantine since ${since.toISOString()}, is removed`)
    } catch (error) {
      log(`${kind} ${id} cannot be removed from quarantine now: ${String(error)}`)
    }
  }
  if (expired.length > 0) await inventory.removeUnused()
}

/** Looks every hour, under a lock of the driver, whose close waits for it. */
export function expireHourly(context: DriverContext): NodeJS.Timeout {
  const look = () => void context.locks.run(expiryKey, () => removeExpired(context))
  return setInterval(look, expiryIntervalMs).unref()
}
