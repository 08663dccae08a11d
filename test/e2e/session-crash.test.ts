/** Sessions whose agent, sandbox or server is killed (docs/use/sessions.md § When something breaks), and agents that are interrupted. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { isTurnComplete, readEvents, type StreamedEvent } from './event-stream.ts'
import { Host } from './host.ts'
import { sh, takeCheckpoint } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'
import {
  createSession,
  endSession,
  ends,
  errors,
  getSession,
  isToolCall,
  lastId,
  resultOf,
  sendAndRead,
  sendMessage,
  type Session,
  sessionPage,
  turnsComplete,
  wholeStream,
} from './session-client.ts'

const server = await AtollServer.startForFile()
const host = await Host.of(server)

async function killIn(sandboxId: string, kind: 'agent' | 'sandbox'): Promise<void> {
  const all = kind === 'agent' ? await host.agents() : await host.guests()
  const [victim, ...others] = all.filter((process) => process.sandboxId === sandboxId)
  assert.ok(victim !== undefined && others.length === 0, JSON.stringify(all))
  process.kill(victim.pid, 'SIGKILL')
}

test('crash: an agent killed in a turn is started again, the turn is marked and ends once, the conversation goes on', async () => {
  const created = await createSession(server, 'A page about tide pools')
  const first = await readEvents(server, created.id, isTurnComplete)
  await sendMessage(server, created.id, 'run: sleep 61.75')
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
  const next = await sendAndRead(server, created.id, 'Add a section about sea stars', rest)
  assert.deepEqual(ends(next), ['success', 'turn_complete'])
  assert.match(await sessionPage(server, created), /tide pools[^]*sea stars/i)
  await wholeStream(server, created.id, 3)
  await endSession(server, created.id)
})

test('crash: what an agent said while the server was dead arrives afterwards, once', async () => {
  const created = await createSession(server, 'A page about dunes')
  const first = await readEvents(server, created.id, isTurnComplete)
  await sendMessage(server, created.id, 'run: sleep 0.5; echo said to nobody')
  const begun = await readEvents(server, created.id, isToolCall, lastId(first))
  await server.kill()
  // The command ends meanwhile, and the agent says so to a server that is not there.
  await sleep(1000)
  await server.restart()
  const rest = await readEvents(server, created.id, isTurnComplete, lastId(begun))
  assert.deepEqual(errors(rest), [])
  assert.deepEqual(ends(rest), ['success', 'turn_complete'])
  assert.equal(rest.filter(({ data }) => data.type === 'tool_use_summary').length, 1)
  assert.match(String(resultOf(rest)?.['result']), /said to nobody\n?$/)
  assert.deepEqual(await wholeStream(server, created.id, 2), [...first, ...begun, ...rest])
  assert.equal((await getSession(server, created.id)).messages.at(-2)?.state, 'consumed')
  await endSession(server, created.id)
})

test('crash: a sandbox killed in a turn fails its session, which says why and goes on from its last checkpoint', async () => {
  const created = await createSession(server, 'A page about glaciers')
  const first = await readEvents(server, created.id, isTurnComplete)
  const checkpointId = await takeCheckpoint(server, created.sandboxId, 'a')
  await sendMessage(server, created.id, 'run: sleep 61')
  const begun = await readEvents(server, created.id, isToolCall, lastId(first))
  await sendMessage(server, created.id, 'Add a section about icebergs')
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
  assert.match(await sessionPage(server, restarted), /glaciers[^]*icebergs/i)
  assert.deepEqual(await host.sandboxes(), [restarted.sandboxId])
  await wholeStream(server, created.id, 3)
  await endSession(server, created.id)
})

test('crash: a sandbox killed while the server is dead goes on from its disk, turn and conversation included', async () => {
  const created = await createSession(server, 'A page about volcanoes')
  const first = await readEvents(server, created.id, isTurnComplete)
  await sendMessage(server, created.id, 'run: sleep 61')
  const begun = await readEvents(server, created.id, isToolCall, lastId(first))
  await sendMessage(server, created.id, 'Add a section about geysers')
  await server.kill()
  await killIn(created.sandboxId, 'sandbox')
  await server.restart()
  const rest = await readEvents(server, created.id, turnsComplete(2), lastId(begun))
  assert.deepEqual(errors(rest), [['agent_exited', false]])
  assert.deepEqual(ends(rest), ['success', 'turn_complete', 'success', 'turn_complete'])
  const now = await getSession(server, created.id)
  assert.equal(now.sandboxId, created.sandboxId)
  assert.match(await sessionPage(server, now), /volcanoes[^]*geysers/i)
  await wholeStream(server, created.id, 3)
  await endSession(server, created.id)
})

test('interrupt: one in the middle of a tool call ends the turn, its command with it, and the conversation goes on', async () => {
  const created = await createSession(server, 'run: sleep 61.25')
  const begun = await readEvents(server, created.id, isToolCall)
  const running = 'until pgrep -f "^sleep 61.25" >/dev/null; do sleep 0.05; done; pgrep -xf "sleep 61.25" | wc -l'
  assert.equal(await sh(server, created.sandboxId, running), '1')
  await server.json('POST', `/v1/sessions/${created.id}/interrupt`, { user_id: 'ada' })
  const rest = await readEvents(server, created.id, isTurnComplete, lastId(begun))
  assert.deepEqual(ends(rest), ['interrupted', 'turn_complete'])
  assert.deepEqual(errors(rest), [])
  // An agent that was too late is killed, and then the next one ends its command.
  const gone = 'while pgrep -xf "sleep 61.25" >/dev/null; do sleep 0.05; done; echo gone'
  assert.equal(await sh(server, created.sandboxId, gone), 'gone')
  const next = await sendAndRead(server, created.id, 'run: echo still here', rest)
  assert.deepEqual(ends(next), ['success', 'turn_complete'])
  assert.match(JSON.stringify(next), /still here/)
  await endSession(server, created.id)
})

test('interrupt: a stopped agent is killed, and the next one knows the conversation', async () => {
  const created = await createSession(server, 'A page about tide pools')
  const first = await readEvents(server, created.id, isTurnComplete)
  await sendMessage(server, created.id, 'run: sleep 61.5')
  const begun = await readEvents(server, created.id, isToolCall, lastId(first))
  await sh(server, created.sandboxId, 'pkill -STOP -f agent/start.mjs')
  await server.json('POST', `/v1/sessions/${created.id}/interrupt`, { user_id: 'ada' })
  const rest = await readEvents(server, created.id, isTurnComplete, lastId(begun))
  assert.deepEqual(ends(rest), ['interrupted', 'turn_complete'])
  const next = await sendAndRead(server, created.id, 'Add a section about sea stars', rest)
  assert.deepEqual(ends(next), ['success', 'turn_complete'])
  assert.equal(next.filter(({ data }) => data.type === 'ready').length, 1)
  const agentSession = (events: StreamedEvent[]) => events.at(-1)?.data['session_id']
  assert.equal(agentSession(next), agentSession(first))
  // The demo model edits the page that its conversation knows instead of building a new one.
  assert.match(await sh(server, created.sandboxId, 'cat /workspace/app/index.html'), /tide pools[\s\S]*sea stars/i)
  await wholeStream(server, created.id, 3)
  await endSession(server, created.id)
})
