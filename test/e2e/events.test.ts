import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { Atoll, type EventInfo, Sandbox } from '../../sdk/src/index.ts'
import { roundsOf } from '../../src/lib/testing/thorough.ts'
import { AtollServer } from './server.ts'

const restarts = roundsOf(2, 20)

/** The state that an event leaves its sandbox in. */
const statusAfter: Partial<Record<EventInfo['type'], string>> = {
  'sandbox.created': 'running',
  'sandbox.resumed': 'running',
  'sandbox.hibernated': 'hibernated',
  'sandbox.failed': 'error',
  'sandbox.stopped': 'stopped',
}

/** Changes sandboxes one after another; a server that ends leaves some of it undone. */
async function use(client: Atoll, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    try {
      const sandbox = await Sandbox.create({ client })
      await sandbox.checkpoint({ name: 'then', kind: 'disk_only' })
      await sandbox.hibernate()
      await sandbox.wake()
      if (!signal.aborted) await sandbox.delete()
    } catch {
      await sleep(100, undefined, { signal }).catch(() => undefined)
    }
  }
}

async function statuses(client: Atoll): Promise<Map<string, string>> {
  const found = new Map<string, string>()
  for (const status of [undefined, 'stopped'] as const) {
    for await (const { sandboxID, status: now } of Sandbox.list({ client, status })) found.set(sandboxID, now)
  }
  return found
}

test('events: a reader that follows over restarts and crashes misses and repeats nothing, and no change is without its event', async () => {
  await using server = await AtollServer.start()
  const client = new Atoll({ url: server.url, apiKey: server.key, retries: 0 })
  const [working, following] = [new AbortController(), new AbortController()]
  const seen: EventInfo[] = []
  const reader = (async () => {
    for await (const event of client.events({ signal: following.signal })) seen.push(event)
  })()
  const users = [1, 2].map(() => use(client, working.signal))
  try {
    for (let life = 1; life <= restarts; life++) {
      const before = seen.length
      while (seen.length < before + 4) await sleep(20)
      if (life % 2 === 0) await server.stop()
      else await server.kill()
      await server.restart()
    }
  } finally {
    working.abort()
    await Promise.all(users)
  }
  const kept = await Array.fromAsync(client.events({ follow: false }))
  const last = kept.at(-1)?.number ?? 0
  while (seen.length < last) await sleep(20)
  following.abort()
  await assert.rejects(reader, { name: 'AbortError' })
  assert.deepEqual(seen, kept)
  assert.deepEqual(
    seen.map(({ number }) => number),
    Array.from({ length: last }, (_, index) => index + 1),
  )
  assert.equal(new Set(seen.map(({ id }) => id)).size, seen.length, 'each event has a name of its own')
  const told = new Map<string, string>()
  for (const { type, subject } of seen) {
    const status = statusAfter[type]
    if (status !== undefined) told.set(subject, status)
  }
  const found = await statuses(client)
  for (const [id, status] of found) {
    // A start that fails leaves a record that is stopped.
    const expected = told.get(id) === 'error' && status === 'stopped' ? 'error' : status
    assert.equal(told.get(id), expected, `the log and the record of ${id} disagree`)
  }
  for (const id of told.keys()) assert.ok(found.has(id), `${id} has no record`)
})
