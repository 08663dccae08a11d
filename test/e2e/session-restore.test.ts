/** Sessions whose sandbox a client puts back to a checkpoint in place, with the agent of then in its memory. */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { isTurnComplete, readEvents, type StreamedEvent } from './event-stream.ts'
import { askPreview } from './preview.ts'
import { AtollServer } from './server.ts'
import { createSession, getSession, type Session } from './session-client.ts'
import { Host } from './host.ts'

let server: AtollServer
let host: Host

before(async () => {
  server = await AtollServer.start()
  host = await Host.of(server)
})

after(() => server[Symbol.asyncDispose]())

const lastId = (events: readonly StreamedEvent[]): number => events.at(-1)?.id ?? 0
const isToolCall = ({ data }: StreamedEvent) => JSON.stringify(data).includes('"tool_use"')

async function send(id: string, message: string): Promise<void> {
  await server.json('POST', `/v1/sessions/${id}/messages`, { message, user_id: 'ada' })
}

async function checkpoint(sandboxId: string, kind: 'full' | 'disk_only'): Promise<string> {
  const path = `/api/sandboxes/${sandboxId}/checkpoints`
  const { id } = (await server.json('POST', path, { name: kind, kind })) as { id: string }
  for (;;) {
    const list = (await server.json('GET', path)) as { id: string; status: string; error?: string }[]
    const found = list.find((item) => item.id === id)
    if (found?.status === 'ready') return id
    assert.notEqual(found?.status, 'failed', found?.error)
    await sleep(50)
  }
}

async function restore(sandboxId: string, checkpointId: string): Promise<void> {
  await server.json('POST', `/api/sandboxes/${sandboxId}/checkpoints/${checkpointId}/restore`, {})
}

async function page({ previewUrl }: Session): Promise<string> {
  const { status, body } = await askPreview(server, new URL(previewUrl).host)
  assert.equal(status, 200, body)
  return body
}

function ends(events: readonly StreamedEvent[]): unknown[] {
  return events
    .filter(({ data }) => data.type === 'result' || data.type === 'turn_complete')
    .map(({ data }) => data['subtype'] ?? data.type)
}

for (const kind of ['full', 'disk_only'] as const) {
  test(`a sandbox that is restored (${kind}) to the middle of a turn, in another turn, has a fresh agent that knows what was said by then`, async () => {
    const created = await createSession(server, 'A page about tundra')
    const first = await readEvents(server, created.id, isTurnComplete)
    // Half a turn: in the memory of this moment an agent waits for its command, and goes on with its turn when that ends.
    await send(created.id, 'run: sleep 4; echo said in the past')
    const begun = await readEvents(server, created.id, isToolCall, lastId(first))
    const then = await checkpoint(created.sandboxId, kind)
    await server.json('POST', `/v1/sessions/${created.id}/interrupt`, { user_id: 'ada' })
    const interrupted = await readEvents(server, created.id, isTurnComplete, lastId(begun))
    await send(created.id, 'Add a section about lichens')
    const lichens = await readEvents(server, created.id, isTurnComplete, lastId(interrupted))
    assert.match(await page(created), /lichens/i)
    await send(created.id, 'run: sleep 60')
    const under = await readEvents(server, created.id, isToolCall, lastId(lichens))
    const [agent] = (await host.agents()).filter(({ sandboxId }) => sandboxId === created.sandboxId)

    await restore(created.sandboxId, then)
    const lost = await readEvents(server, created.id, isTurnComplete, lastId(under))
    assert.deepEqual(ends(lost), ['error_during_execution', 'turn_complete'])
    assert.deepEqual(
      lost.filter(({ data }) => data.type === 'error').map(({ data }) => [data['code'], data['fatal']]),
      [['sandbox_restored', false]],
    )
    const fresh = await readEvents(server, created.id, ({ data }) => data.type === 'configured', lastId(lost))
    const [now, ...others] = (await host.agents()).filter(({ sandboxId }) => sandboxId === created.sandboxId)
    assert.ok(now !== undefined && others.length === 0 && now.pid !== agent?.pid)
    // As long as the turn of the past would have gone on.
    await sleep(4500)
    await send(created.id, 'Add a section about reindeer')
    const next = await readEvents(server, created.id, isTurnComplete, lastId(fresh))
    assert.deepEqual(ends(next), ['success', 'turn_complete'])
    const body = await page(created)
    assert.match(body, /tundra[^]*reindeer/i)
    assert.doesNotMatch(body, /lichens/i)
    assert.equal(next.at(-1)?.data['session_id'], first.at(-1)?.data['session_id'])

    const session = await getSession(server, created.id)
    assert.deepEqual(
      session.messages.flatMap(({ state }) => state ?? []),
      Array.from({ length: 5 }, () => 'consumed'),
    )
    const all = await readEvents(server, created.id, (_event, seen) => seen.filter(isTurnComplete).length === 5)
    assert.deepEqual(
      all.map(({ id }) => id),
      all.map((_event, index) => index + 1),
    )
    assert.deepEqual(ends(all), [
      ...['success', 'turn_complete', 'interrupted', 'turn_complete', 'success', 'turn_complete'],
      ...['error_during_execution', 'turn_complete', 'success', 'turn_complete'],
    ])
    assert.doesNotMatch(JSON.stringify(all.slice(lastId(under))), /said in the past/)
    await server.json('DELETE', `/v1/sessions/${created.id}`)
  })
}

test('an idle session whose sandbox is restored goes on with the conversation of then', async () => {
  const created = await createSession(server, 'A page about deserts')
  const first = await readEvents(server, created.id, isTurnComplete)
  const then = await checkpoint(created.sandboxId, 'full')
  await send(created.id, 'Add a section about cacti')
  const second = await readEvents(server, created.id, isTurnComplete, lastId(first))
  await restore(created.sandboxId, then)
  await restore(created.sandboxId, then)
  await send(created.id, 'Add a section about oases')
  const rest = await readEvents(server, created.id, isTurnComplete, lastId(second))
  assert.deepEqual(ends(rest), ['success', 'turn_complete'])
  const body = await page(created)
  assert.match(body, /deserts[^]*oases/i)
  assert.doesNotMatch(body, /cacti/i)
  assert.equal((await host.agents()).filter(({ sandboxId }) => sandboxId === created.sandboxId).length, 1)
  await server.json('DELETE', `/v1/sessions/${created.id}`)
})
