/** Sessions whose sandboxes exceed the quota for the moment. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { isTurnComplete, readEvents, type StreamedEvent } from './event-stream.ts'
import { startSandbox } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'
import { createSession, endSession, getSession, lastId, resultOf, sendMessage, type Session } from './session-client.ts'

const server = await AtollServer.startForFile({ env: { ATOLL_RUNNING_SANDBOXES_MAX: '1' } })

async function warnings(id: string): Promise<Session['events']> {
  const { events } = await getSession(server, id)
  return events.filter(({ level }) => level === 'warning')
}

async function waits(id: string): Promise<void> {
  while ((await warnings(id)).length === 0) await sleep(20)
}

const isShort = ({ data }: StreamedEvent) => data.type === 'error' && data['code'] === 'rate_limited'

test('session: one without quota waits for it, through a crash of the server, and warns once', async () => {
  const sandboxId = await startSandbox(server)
  const first = await createSession(server, 'A page about storks')
  const second = await createSession(server, 'A page about herons')
  for (const { id } of [first, second]) {
    await readEvents(server, id, isShort)
    await waits(id)
  }
  await server.kill()
  await server.restart()
  const { status, activity } = await getSession(server, first.id)
  assert.deepEqual([status, activity], ['running', 'starting'])
  // One ends while it waits, and not when it would ask again.
  const startedAt = performance.now()
  await endSession(server, second.id)
  assert.ok(performance.now() - startedAt < 15_000)
  await server.json('DELETE', `/api/sandboxes/${sandboxId}`)
  const events = await readEvents(server, first.id, isTurnComplete)
  assert.equal(resultOf(events)?.['subtype'], 'success')
  assert.equal(events.filter(isShort).length, 1)
  const [told, ...others] = await warnings(first.id)
  assert.deepEqual(others, [])
  assert.equal(told?.type, 'session_started')
  assert.match(told.message, /^The sandbox could not be started yet: the organisation has 1 running sandboxes/)

  // The same for a sandbox that sleeps: its message stays queued.
  await server.json('POST', `/api/sandboxes/${first.sandboxId}/hibernate`)
  const otherId = await startSandbox(server)
  await sendMessage(server, first.id, 'Add cranes')
  const short = await readEvents(server, first.id, isShort, lastId(events))
  const asleep = await getSession(server, first.id)
  assert.deepEqual([asleep.activity, asleep.messages.at(-1)?.state], ['working', 'queued'])
  assert.deepEqual(
    (await warnings(first.id)).map(({ type }) => type),
    ['session_started', 'sandbox_hibernated'],
  )
  await server.json('DELETE', `/api/sandboxes/${otherId}`)
  const rest = await readEvents(server, first.id, isTurnComplete, lastId(short))
  assert.equal(resultOf(rest)?.['subtype'], 'success')
  await endSession(server, first.id)
})
