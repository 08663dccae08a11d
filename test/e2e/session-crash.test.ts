/** What a session lives through when something is killed with SIGKILL: see docs/sessions.md § When something breaks. */
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

const isToolCall = ({ data }: StreamedEvent) => JSON.stringify(data).includes('"tool_use"')
const lastId = (events: readonly StreamedEvent[]): number => events.at(-1)?.id ?? 0

async function send(id: string, message: string): Promise<void> {
  await server.json('POST', `/v1/sessions/${id}/messages`, { message, user_id: 'ada' })
}

async function killIn(sandboxId: string, kind: 'agent' | 'sandbox'): Promise<void> {
  const all = kind === 'agent' ? await host.agents() : await host.guests()
  const [victim, ...others] = all.filter((process) => process.sandboxId === sandboxId)
  assert.ok(victim !== undefined && others.length === 0, JSON.stringify(all))
  process.kill(victim.pid, 'SIGKILL')
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

function errors(events: readonly StreamedEvent[]): unknown[] {
  return events.filter(({ data }) => data.type === 'error').map(({ data }) => [data['code'], data['fatal']])
}

/** Its stream from the first event, which has no gap. */
async function wholeStream(id: string, turns: number): Promise<StreamedEvent[]> {
  const all = await readEvents(server, id, (_event, seen) => seen.filter(isTurnComplete).length === turns)
  assert.deepEqual(
    all.map((event) => event.id),
    all.map((_event, index) => index + 1),
  )
  return all
}

test('an agent that is killed in a turn is started again: the turn is marked and ends once, the conversation is known', async () => {
  const created = await createSession(server, 'A page about tide pools')
  const first = await readEvents(server, created.id, isTurnComplete)
  await send(created.id, 'run: sleep 61.75')
  const begun = await readEvents(server, created.id, isToolCall, lastId(first))
  await killIn(created.sandboxId, 'agent')
  const rest = await readEvents(server, created.id, isTurnComplete, lastId(begun))
  assert.deepEqual(errors(rest), [['agent_exited', false]])
  assert.deepEqual(ends(rest), ['success', 'turn_complete'])
  assert.deepEqual(
    rest.slice(0, 3).map(({ data }) => data.type),
    ['error', 'ready', 'configured'],
  )
  // The command is not run again: the model is told that nobody knows what became of it.
  assert.match(JSON.stringify(rest), /outcome is unknown/)
  assert.equal(rest.at(-1)?.data['session_id'], first.at(-1)?.data['session_id'])
  await send(created.id, 'Add a section about sea stars')
  const next = await readEvents(server, created.id, isTurnComplete, lastId(rest))
  assert.deepEqual(ends(next), ['success', 'turn_complete'])
  assert.match(await page(created), /tide pools[^]*sea stars/i)
  await wholeStream(created.id, 3)
  await server.json('DELETE', `/v1/sessions/${created.id}`)
})

test('what an agent said while the server was dead arrives afterwards, once', async () => {
  const created = await createSession(server, 'A page about dunes')
  const first = await readEvents(server, created.id, isTurnComplete)
  await send(created.id, 'run: sleep 0.5; echo said to nobody')
  const begun = await readEvents(server, created.id, isToolCall, lastId(first))
  await server.kill()
  // The command ends meanwhile, and the agent says so to a server that is not there.
  await sleep(1500)
  await server.restart()
  const rest = await readEvents(server, created.id, isTurnComplete, lastId(begun))
  assert.deepEqual(errors(rest), [])
  assert.deepEqual(ends(rest), ['success', 'turn_complete'])
  assert.equal(rest.filter(({ data }) => data.type === 'tool_use_summary').length, 1)
  assert.match(String(rest.find(({ data }) => data.type === 'result')?.data['result']), /said to nobody\n?$/)
  await wholeStream(created.id, 2)
  await server.json('DELETE', `/v1/sessions/${created.id}`)
})

test('a sandbox that is killed in a turn fails its session, which says why and goes on from its last checkpoint', async () => {
  const created = await createSession(server, 'A page about glaciers')
  const first = await readEvents(server, created.id, isTurnComplete)
  const path = `/api/sandboxes/${created.sandboxId}/checkpoints`
  const { id: checkpointId } = (await server.json('POST', path, { name: 'a', kind: 'full' })) as { id: string }
  const status = async () => ((await server.json('GET', path)) as { status: string }[])[0]?.status
  while ((await status()) === 'processing') await sleep(20)
  await send(created.id, 'run: sleep 61')
  const begun = await readEvents(server, created.id, isToolCall, lastId(first))
  await send(created.id, 'Add a section about icebergs')
  await killIn(created.sandboxId, 'sandbox')
  const lost = await readEvents(server, created.id, isTurnComplete, lastId(begun))
  assert.deepEqual(errors(lost), [['runtime_failed', false]])
  assert.deepEqual(ends(lost), ['error_during_execution', 'turn_complete'])
  const failed = await getSession(server, created.id)
  assert.deepEqual([failed.status, failed.activity], ['running', 'failed'])
  assert.match(failed.events.find(({ type }) => type === 'session_failed')?.message ?? '', /sandbox.*lost/)
  assert.deepEqual(
    failed.messages.flatMap(({ state }) => state ?? []),
    ['consumed', 'consumed', 'queued'],
  )
  const sandbox = (await server.json('GET', `/api/sandboxes/${created.sandboxId}`)) as Record<string, unknown>
  assert.deepEqual([sandbox['status'], sandbox['reason']], ['error', 'runtime_failed'])
  const refused = await server.fetch(`/v1/sessions/${created.id}/messages`, {
    method: 'POST',
    body: JSON.stringify({ message: 'hello?', user_id: 'ada' }),
  })
  assert.equal(refused.status, 409)

  const body = { user_id: 'ada', checkpoint_id: checkpointId }
  const restarted = (await server.json('POST', `/v1/sessions/${created.id}/restart`, body)) as Session
  const next = await readEvents(server, created.id, isTurnComplete, lastId(lost))
  assert.deepEqual(ends(next), ['success', 'turn_complete'])
  assert.match(await page(restarted), /glaciers[^]*icebergs/i)
  assert.deepEqual(await host.sandboxes(), [restarted.sandboxId])
  await wholeStream(created.id, 3)
  await server.json('DELETE', `/v1/sessions/${created.id}`)
})

test('a sandbox that is killed while the server is dead goes on from its disk, turn and conversation included', async () => {
  const created = await createSession(server, 'A page about volcanoes')
  const first = await readEvents(server, created.id, isTurnComplete)
  await send(created.id, 'run: sleep 61')
  const begun = await readEvents(server, created.id, isToolCall, lastId(first))
  await send(created.id, 'Add a section about geysers')
  await server.kill()
  await killIn(created.sandboxId, 'sandbox')
  await server.restart()
  const rest = await readEvents(
    server,
    created.id,
    (_event, seen) => seen.filter(isTurnComplete).length === 2,
    lastId(begun),
  )
  assert.deepEqual(errors(rest), [['agent_exited', false]])
  assert.deepEqual(ends(rest), ['success', 'turn_complete', 'success', 'turn_complete'])
  const now = await getSession(server, created.id)
  assert.equal(now.sandboxId, created.sandboxId)
  assert.match(await page(now), /volcanoes[^]*geysers/i)
  await wholeStream(created.id, 3)
  await server.json('DELETE', `/v1/sessions/${created.id}`)
})
