import type { Parts } from './parts.ts'

const expiryIntervalMs = 3_600_000
/** The key of the turn that looks; no id of a sandbox looks like it. */
const expiryTurn = 'the quarantine'

/** Removes for good what has lain in quarantine for as long as it is kept. Never throws: what cannot be removed is tried again. */
export async function removeExpired({ inventory, quarantineKeptMs, log }: Parts): Promise<void> {
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

/** Looks every hour, as a turn like other work of the driver, which waits for it when it closes. */
export function expireHourly(parts: Parts): NodeJS.Timeout {
  const look = () => void parts.turns.run(expiryTurn, () => removeExpired(parts))
  return setInterval(look, expiryIntervalMs).unref()
}
