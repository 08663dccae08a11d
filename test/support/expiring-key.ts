import assert from 'node:assert/strict'
import type { ApiClient } from './api-client.ts'

const leftMsFirst = 1500
const leftMsMax = 200_000

/**
 * Calls `use` with a key that expires soon, and with one that expires later when it answers that it came too late, as it does on a busy
 * machine.
 */
export async function withExpiringKey(
  api: ApiClient,
  use: (key: string, ends: Date) => Promise<boolean>,
): Promise<void> {
  for (let leftMs = leftMsFirst; leftMs < leftMsMax; leftMs *= 2) {
    const ends = new Date(Date.now() + leftMs)
    const made = await api.post('/api/keys', { expiresAt: ends.toISOString() })
    if (made.status === 201 && (await use(made.body.key, ends))) return
  }
  assert.fail('every key had expired before it was used')
}
