/** Sessions and checkpoints: forks, prepared machines, restarts after a loss, and restores in place. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { isTurnComplete, readEvents } from './event-stream.ts'
import { Host, type HostProcess } from './host.ts'
import { sh, startSandbox, takeCheckpoint } from './sandbox-calls.ts'
import { gatewayTokenHash, tokenInMemory } from './sandbox-insides.ts'
import { AtollServer } from './server.ts'
import {
  createSession,
  endSession,
  ends,
  errors,
  getSession,
  isConfigured,
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

/** The agents that live in the sandbox, one a line. */
const agents = 'pgrep -f "[a]gent/start.mjs"'

test('fork: it has the conversation and the page of its source at this moment, and both go on independently', async () => {
  const source = await createSession(server, 'A page about coral reefs')
  const first = await readEvents(server, source.id, isTurnComplete)
  const answer = await server.fetch(`/v1/sessions/${source.id}/fork`, {
    method: 'POST',
    body: JSON.stringify({ user_id: 'ada' }),
  })
  assert.equal(answer.status, 201)
  const fork = (await answer.json()) as Session
  assert.notEqual(fork.sandboxId, source.sandboxId)
  assert.deepEqual(
    fork.messages.map(({ role, content, state }) => [role, content, state]),
    (await getSession(server, source.id)).messages.map(({ role, content, state }) => [role, content, state]),
  )
  const begun = await readEvents(server, fork.id, isConfigured)
  assert.deepEqual(
    begun.map(({ id, data }) => [id, data.type]),
    [
      [1, 'ready'],
      [2, 'configured'],
    ],
  )
  assert.match(await sessionPage(server, fork), /coral reefs/i)
  for (const { sandboxId } of [source, fork]) assert.match(await sh(server, sandboxId, agents), /^\d+$/)
  const hashes = [await gatewayTokenHash(server.dataDir, source.id), await gatewayTokenHash(server.dataDir, fork.id)]
  assert.notEqual(hashes[0], hashes[1])
  // Each agent has its own token and not the other's.
  await tokenInMemory(fork.sandboxId, hashes[1] ?? '')
  await assert.rejects(tokenInMemory(fork.sandboxId, hashes[0] ?? ''), /no process holds/)

  const inFork = await sendAndRead(server, fork.id, 'Add a section about sea turtles', begun)
  assert.equal(resultOf(inFork)?.['subtype'], 'success')
  assert.match(await sessionPage(server, fork), /coral reefs[^]*sea turtles/i)
  assert.doesNotMatch(await sessionPage(server, source), /sea turtles/i)
  await sendAndRead(server, source.id, 'Add a section about blue whales', first)
  assert.match(await sessionPage(server, source), /blue whales/i)
  assert.doesNotMatch(await sessionPage(server, fork), /blue whales/i)
  assert.deepEqual(await server.json('GET', `/api/sandboxes/${source.sandboxId}/checkpoints`), [])

  // It stands on its own: without its checkpoint and its source, and through a hibernation.
  await endSession(server, source.id)
  await server.json('POST', `/api/sandboxes/${fork.sandboxId}/hibernate`)
  assert.match(await sessionPage(server, fork), /sea turtles/i)
  await sendAndRead(server, fork.id, 'Add a section about manta rays', inFork)
  assert.match(await sessionPage(server, fork), /sea turtles[^]*manta rays/i)
  await endSession(server, fork.id)
})

test('fork: a server killed while it forks leaves no checkpoint to the next one', async () => {
  const source = await createSession(server, 'A page about marshes')
  await readEvents(server, source.id, isTurnComplete)
  const path = `/api/sandboxes/${source.sandboxId}/checkpoints`
  const list = async () => (await server.json('GET', path)) as { status: string }[]
  const forking = server
    .fetch(`/v1/sessions/${source.id}/fork`, { method: 'POST', body: JSON.stringify({ user_id: 'ada' }) })
    .catch(() => undefined)
  while ((await list()).length === 0) await sleep(1)
  await server.kill()
  const answer = await forking
  // It may have been answered just before.
  assert.ok(answer === undefined || answer.status === 201, String(answer?.status))
  await server.restart()
  while ((await list()).length > 0) await sleep(20)
  const { data } = (await server.json('GET', '/v1/sessions')) as { data: Session[] }
  const others = data.filter(({ id, status }) => id !== source.id && status === 'running')
  for (const { id } of others) await endSession(server, id)
  await endSession(server, source.id)
})

test('session: it begins on a prepared machine, with its files and with its memory', async () => {
  const sandboxId = await startSandbox(server)
  await sh(server, sandboxId, 'mkdir -p /workspace/app && echo prepared >/workspace/app/notes.txt')
  const onDisk = await takeCheckpoint(server, sandboxId, 'on disk', 'disk_only')
  const counter = `let n = 0; require("http").createServer((_q, s) => s.end(String(++n))).listen(8123)`
  await sh(server, sandboxId, `setsid node -e '${counter}' >/dev/null 2>&1 </dev/null & sleep 0.1`)
  const ask = 'until curl -sf localhost:8123; do sleep 0.05; done'
  assert.equal(await sh(server, sandboxId, ask), '1')
  const inMemory = await takeCheckpoint(server, sandboxId, 'in memory')
  for (const [checkpoint_id, counted] of [
    [onDisk, undefined],
    [inMemory, '2'],
  ] as const) {
    const created = await createSession(server, 'A page about lighthouses', { checkpoint_id })
    const events = await readEvents(server, created.id, isTurnComplete)
    assert.equal(resultOf(events)?.['subtype'], 'success')
    assert.equal(await sh(server, created.sandboxId, 'cat /workspace/app/notes.txt'), 'prepared')
    if (counted !== undefined) assert.equal(await sh(server, created.sandboxId, ask), counted)
    assert.match(await sessionPage(server, created), /lighthouses/i)
    await endSession(server, created.id)
  }
  await server.json('DELETE', `/api/sandboxes/${sandboxId}`)
})

test('restart: a session whose sandbox is deleted goes on from its last checkpoint, conversation and page included', async () => {
  const created = await createSession(server, 'A page about glaciers')
  const first = await readEvents(server, created.id, isTurnComplete)
  const kept = await takeCheckpoint(server, created.sandboxId, 'before')
  await sendAndRead(server, created.id, 'Add a section about fjords', first)
  await server.json('DELETE', `/api/sandboxes/${created.sandboxId}`)
  while ((await getSession(server, created.id)).activity !== 'failed') await sleep(20)
  assert.ok((await getSession(server, created.id)).events.some(({ type }) => type === 'session_failed'))
  const read = await readEvents(server, created.id, turnsComplete(2))
  const body = { user_id: 'ada', checkpoint_id: kept }
  const restarted = (await server.json('POST', `/v1/sessions/${created.id}/restart`, body)) as Session
  assert.notEqual(restarted.sandboxId, created.sandboxId)
  const next = await sendAndRead(server, created.id, 'Add a section about icebergs', read)
  assert.equal(resultOf(next)?.['subtype'], 'success')
  const now = await sessionPage(server, restarted)
  assert.match(now, /glaciers[^]*icebergs/i)
  assert.doesNotMatch(now, /fjords/i)
  assert.match(await sh(server, restarted.sandboxId, agents), /^\d+$/)
  await wholeStream(server, created.id, 3)
  await endSession(server, created.id)
})

async function agentsOf(session: Session): Promise<HostProcess[]> {
  return (await host.agents()).filter(({ sandboxId }) => sandboxId === session.sandboxId)
}

async function restore(sandboxId: string, checkpointId: string): Promise<void> {
  await server.json('POST', `/api/sandboxes/${sandboxId}/checkpoints/${checkpointId}/restore`, {})
}

for (const kind of ['full', 'disk_only'] as const) {
  test(`restore: to the middle of a turn (${kind}), in another turn, starts a new agent that knows what was said by then`, async () => {
    const created = await createSession(server, 'A page about tundra')
    const first = await readEvents(server, created.id, isTurnComplete)
    // Half a turn: in the memory of this moment an agent waits for its command, and goes on with its turn when that ends.
    await sendMessage(server, created.id, 'run: until [ -e /tmp/go ]; do sleep 0.1; done; echo said in the past')
    const begun = await readEvents(server, created.id, isToolCall, lastId(first))
    const then = await takeCheckpoint(server, created.sandboxId, 'then', kind)
    await server.json('POST', `/v1/sessions/${created.id}/interrupt`, { user_id: 'ada' })
    const interrupted = await readEvents(server, created.id, isTurnComplete, lastId(begun))
    const lichens = await sendAndRead(server, created.id, 'Add a section about lichens', interrupted)
    assert.match(await sessionPage(server, created), /lichens/i)
    await sendMessage(server, created.id, 'run: sleep 600')
    const under = await readEvents(server, created.id, isToolCall, lastId(lichens))
    const [agent] = await agentsOf(created)

    await restore(created.sandboxId, then)
    const lost = await readEvents(server, created.id, isTurnComplete, lastId(under))
    assert.deepEqual(ends(lost), ['error_during_execution', 'turn_complete'])
    assert.deepEqual(errors(lost), [['sandbox_restored', false]])
    const fresh = await readEvents(server, created.id, isConfigured, lastId(lost))
    const [now, ...others] = await agentsOf(created)
    assert.ok(now !== undefined && others.length === 0 && now.pid !== agent?.pid)
    // What is left of the turn of the past would go on now.
    await sh(server, created.sandboxId, 'touch /tmp/go')
    await sleep(1000)
    const next = await sendAndRead(server, created.id, 'Add a section about reindeer', fresh)
    assert.deepEqual(ends(next), ['success', 'turn_complete'])
    const body = await sessionPage(server, created)
    assert.match(body, /tundra[^]*reindeer/i)
    assert.doesNotMatch(body, /lichens/i)
    assert.equal(next.at(-1)?.data['session_id'], first.at(-1)?.data['session_id'])

    const session = await getSession(server, created.id)
    assert.deepEqual(
      session.messages.flatMap(({ state }) => state ?? []),
      Array.from({ length: 5 }, () => 'consumed'),
    )
    const all = await wholeStream(server, created.id, 5)
    assert.deepEqual(ends(all), [
      ...['success', 'turn_complete', 'interrupted', 'turn_complete', 'success', 'turn_complete'],
      ...['error_during_execution', 'turn_complete', 'success', 'turn_complete'],
    ])
    assert.doesNotMatch(JSON.stringify(all.slice(lastId(under))), /said in the past/)
    await endSession(server, created.id)
  })
}

test('restore: an idle session goes on with the conversation of the checkpoint', async () => {
  const created = await createSession(server, 'A page about deserts')
  const first = await readEvents(server, created.id, isTurnComplete)
  const then = await takeCheckpoint(server, created.sandboxId, 'then')
  const second = await sendAndRead(server, created.id, 'Add a section about cacti', first)
  await restore(created.sandboxId, then)
  await restore(created.sandboxId, then)
  const rest = await sendAndRead(server, created.id, 'Add a section about oases', second)
  assert.deepEqual(ends(rest), ['success', 'turn_complete'])
  const body = await sessionPage(server, created)
  assert.match(body, /deserts[^]*oases/i)
  assert.doesNotMatch(body, /cacti/i)
  assert.equal((await agentsOf(created)).length, 1)
  await endSession(server, created.id)
})
