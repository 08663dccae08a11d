import assert from 'node:assert/strict'
import { afterEach, beforeEach, test } from 'node:test'
import type { ExportRecord } from './history.ts'
import { orgId, simple, World } from './testing/world.ts'

let world: World
beforeEach(() => {
  world = new World()
})
afterEach(() => world.close())

test('an export of many pages has each message, event and stream event once, in order', async () => {
  const service = world.serve()
  const { session } = await service.create(orgId, simple)
  await world.until(session.id, 'idle')
  for (let turn = 0; turn < 60; turn++) {
    await service.sendMessage(orgId, session.id, { message: `m${turn}`, userId: 'u1' })
    await world.until(session.id, 'idle')
  }
  const { view, records } = await service.export(orgId, session.id, 'u1')
  assert.deepEqual([view.session.id, view.messages, view.events], [session.id, [], []])
  const all: ExportRecord[] = []
  for await (const record of records) all.push(record)
  const [messages, events, stream] = [
    await world.store.messages(session.id),
    await world.store.events(session.id),
    await world.streamed(session.id),
  ]
  assert.ok(messages.length > 100 && events.length > 100 && stream.length > 100)
  assert.deepEqual(all, [
    ...messages.map((message) => ({ type: 'message', message })),
    ...events.map((event) => ({ type: 'event', event })),
    ...stream.map((event) => ({ type: 'stream', event })),
  ])
})
