/** Sessions that begin from a checkpoint: forks, prepared machines, and restarts after a loss. */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { isTurnComplete, readEvents, type StreamedEvent } from './event-stream.ts'
import { askPreview } from './preview.ts'
import { sh, takeCheckpoint } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'
import { createSession, getSession, type Session } from './session-client.ts'

let server: AtollServer

before(async () => {
  server = await AtollServer.start()
})

after(() => server[Symbol.asyncDispose]())

const create = (prompt: string, more?: Record<string, unknown>): Promise<Session> => createSession(server, prompt, more)
const get = (id: string): Promise<Session> => getSession(server, id)

async function send(id: string, message: string, lastId: number): Promise<StreamedEvent[]> {
  await server.json('POST', `/v1/sessions/${id}/messages`, { message, user_id: 'ada' })
  return await readEvents(server, id, isTurnComplete, lastId)
}

async function page({ previewUrl }: Session): Promise<string> {
  const { status, body } = await askPreview(server, new URL(previewUrl).host)
  assert.equal(status, 200, body)
  return body
}

const run = (sandboxId: string, script: string) => sh(server, sandboxId, script)
const checkpoint = (sandboxId: string, kind: 'full' | 'disk_only') =>
  takeCheckpoint(server, sandboxId, `prepared ${kind}`, kind)

const lastId = (events: readonly StreamedEvent[]): number => events.at(-1)?.id ?? 0
/** Tokens of the agents that live in the sandbox, one a line, as a hash. */
const agentTokens =
  'for p in $(pgrep -f "[a]gent/start.mjs"); do tr "\\0" "\\n" </proc/$p/environ | grep ATOLL_GATEWAY_TOKEN= | md5sum; done'

test('a fork has the conversation and the page of this moment, and each goes its own way', async () => {
  const source = await create('A page about coral reefs')
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
    (await get(source.id)).messages.map(({ role, content, state }) => [role, content, state]),
  )
  const begun = await readEvents(server, fork.id, ({ data }) => data.type === 'configured')
  assert.deepEqual(
    begun.map(({ id, data }) => [id, data.type]),
    [
      [1, 'ready'],
      [2, 'configured'],
    ],
  )
  assert.match(await page(fork), /coral reefs/i)
  const tokens = [await run(source.sandboxId, agentTokens), await run(fork.sandboxId, agentTokens)]
  for (const one of tokens) assert.equal(one.split('\n').length, 1, one)
  assert.notEqual(tokens[0], tokens[1])

  const inFork = await send(fork.id, 'Add a section about sea turtles', lastId(begun))
  assert.equal(inFork.find(({ data }) => data.type === 'result')?.data['subtype'], 'success')
  assert.match(await page(fork), /coral reefs[^]*sea turtles/i)
  assert.doesNotMatch(await page(source), /sea turtles/i)
  await send(source.id, 'Add a section about blue whales', lastId(first))
  assert.match(await page(source), /blue whales/i)
  assert.doesNotMatch(await page(fork), /blue whales/i)
  assert.deepEqual(await server.json('GET', `/api/sandboxes/${source.sandboxId}/checkpoints`), [])

  // It stands on its own: without its checkpoint and its source, and through a hibernation.
  await server.json('DELETE', `/v1/sessions/${source.id}`)
  await server.json('POST', `/api/sandboxes/${fork.sandboxId}/hibernate`)
  assert.match(await page(fork), /sea turtles/i)
  await send(fork.id, 'Add a section about manta rays', lastId(inFork))
  assert.match(await page(fork), /sea turtles[^]*manta rays/i)
  await server.json('DELETE', `/v1/sessions/${fork.id}`)
})

test('a server that is killed while it forks leaves no checkpoint to the next one', async () => {
  const source = await create('A page about marshes')
  await readEvents(server, source.id, isTurnComplete)
  const path = `/api/sandboxes/${source.sandboxId}/checkpoints`
  const list = async () => (await server.json('GET', path)) as { status: string }[]
  const forking = server
    .fetch(`/v1/sessions/${source.id}/fork`, { method: 'POST', body: JSON.stringify({ user_id: 'ada' }) })
    .catch(() => undefined)
  while ((await list()).length === 0) await sleep(1)
  await server.kill()
  assert.equal(await forking, undefined)
  await server.restart()
  while ((await list()).length > 0) await sleep(20)
  const { data } = (await server.json('GET', '/v1/sessions')) as { data: Session[] }
  const others = data.filter(({ id, status }) => id !== source.id && status === 'running')
  for (const { id } of others) await server.json('DELETE', `/v1/sessions/${id}`)
  await server.json('DELETE', `/v1/sessions/${source.id}`)
})

test('a session that works is not forked', async () => {
  const created = await create('run: sleep 3')
  await readEvents(server, created.id, ({ data }) => data.type === 'assistant')
  const refused = await server.fetch(`/v1/sessions/${created.id}/fork`, {
    method: 'POST',
    body: JSON.stringify({ user_id: 'ada' }),
  })
  assert.equal(refused.status, 409)
  await readEvents(server, created.id, isTurnComplete)
  await server.json('DELETE', `/v1/sessions/${created.id}`)
})

test('a session may begin on a prepared machine, with its files and with its memory', async () => {
  const { sandboxID } = (await server.json('POST', '/api/sandboxes', { timeout: 0 })) as { sandboxID: string }
  await run(sandboxID, 'mkdir -p /workspace/app && echo prepared >/workspace/app/notes.txt')
  const onDisk = await checkpoint(sandboxID, 'disk_only')
  const counter = `let n = 0; require("http").createServer((_q, s) => s.end(String(++n))).listen(8123)`
  await run(sandboxID, `setsid node -e '${counter}' >/dev/null 2>&1 </dev/null & sleep 0.1`)
  const ask = 'for i in $(seq 100); do curl -sf localhost:8123 && break; sleep 0.05; done'
  assert.equal(await run(sandboxID, ask), '1')
  const inMemory = await checkpoint(sandboxID, 'full')
  for (const [checkpoint_id, counted] of [
    [onDisk, undefined],
    [inMemory, '2'],
  ] as const) {
    const created = await create('A page about lighthouses', { checkpoint_id })
    const events = await readEvents(server, created.id, isTurnComplete)
    assert.equal(events.find(({ data }) => data.type === 'result')?.data['subtype'], 'success')
    assert.equal(await run(created.sandboxId, 'cat /workspace/app/notes.txt'), 'prepared')
    if (counted !== undefined) assert.equal(await run(created.sandboxId, ask), counted)
    assert.match(await page(created), /lighthouses/i)
    await server.json('DELETE', `/v1/sessions/${created.id}`)
  }
  await server.json('DELETE', `/api/sandboxes/${sandboxID}`)
})

test('a session whose sandbox is gone goes on from its last checkpoint, conversation and page included', async () => {
  const created = await create('A page about glaciers')
  const first = await readEvents(server, created.id, isTurnComplete)
  const kept = await checkpoint(created.sandboxId, 'full')
  await send(created.id, 'Add a section about fjords', lastId(first))
  await server.json('DELETE', `/api/sandboxes/${created.sandboxId}`)
  while ((await get(created.id)).activity !== 'failed') await sleep(20)
  assert.ok((await get(created.id)).events.some(({ type }) => type === 'session_failed'))
  const until = lastId(await readEvents(server, created.id, (_event, all) => all.filter(isTurnComplete).length === 2))
  const body = { user_id: 'ada', checkpoint_id: kept }
  const restarted = (await server.json('POST', `/v1/sessions/${created.id}/restart`, body)) as Session
  assert.notEqual(restarted.sandboxId, created.sandboxId)
  const next = await send(created.id, 'Add a section about icebergs', until)
  assert.equal(next.find(({ data }) => data.type === 'result')?.data['subtype'], 'success')
  const now = await page(restarted)
  assert.match(now, /glaciers[^]*icebergs/i)
  assert.doesNotMatch(now, /fjords/i)
  assert.equal((await run(restarted.sandboxId, agentTokens)).split('\n').length, 1)
  const all = await readEvents(server, created.id, (_event, seen) => seen.filter(isTurnComplete).length === 3)
  assert.deepEqual(
    all.map(({ id }) => id),
    all.map((_, index) => index + 1),
  )
  await server.json('DELETE', `/v1/sessions/${created.id}`)
})
