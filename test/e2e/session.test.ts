import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { chromium } from 'playwright-core'
import { isTurnComplete, readEvents } from './event-stream.ts'
import { askPreview } from './preview.ts'
import { AtollServer } from './server.ts'
import { createSession, getSession, type Session } from './session-client.ts'

let server: AtollServer

before(async () => {
  server = await AtollServer.start()
})

after(() => server[Symbol.asyncDispose]())

const create = (prompt: string, more?: Record<string, unknown>): Promise<Session> => createSession(server, prompt, more)
const get = (id: string): Promise<Session> => getSession(server, id)

test('a prompt becomes a live page, a follow-up changes it, and a deletion ends all of it', async () => {
  const created = await create('A page about coral reefs')
  assert.deepEqual([created.status, created.activity], ['running', 'starting'])
  assert.deepEqual(
    created.messages.map(({ role, content }) => [role, content]),
    [['user', 'A page about coral reefs']],
  )
  assert.deepEqual(
    created.events.map((event) => event.type),
    ['session_started'],
  )
  assert.equal(created.previewUrl, `http://${created.sandboxId}-p3000.preview.localhost:${server.port}`)

  const first = await readEvents(server, created.id, isTurnComplete)
  assert.deepEqual(
    first.map((event) => event.id),
    first.map((_, index) => index + 1),
  )
  const types = first.map((event) => event.data.type)
  assert.deepEqual(types.slice(0, 2), ['ready', 'configured'])
  assert.deepEqual(types.slice(-2), ['result', 'turn_complete'])
  const tools = first.flatMap((event) => {
    const message = event.data['message'] as { content?: { type: string; name?: string }[] } | undefined
    return event.data.type === 'assistant' ? (message?.content ?? []) : []
  })
  assert.ok(tools.some((block) => block.type === 'tool_use' && block.name === 'write'))
  assert.ok(types.includes('tool_use_summary'))
  assert.equal(first.find((event) => event.data.type === 'configured')?.data['model'], 'demo')

  const host = new URL(created.previewUrl).host
  const page = await askPreview(server, host)
  assert.equal(page.status, 200)
  assert.match(page.body, /coral reefs/i)

  const updated = (await server.json('POST', `/v1/sessions/${created.id}/messages`, {
    message: 'Add a section about sea turtles',
    user_id: 'ada',
  })) as Session
  assert.equal(updated.messages.at(-1)?.content, 'Add a section about sea turtles')
  const lastId = first.at(-1)?.id ?? 0
  const second = await readEvents(server, created.id, isTurnComplete, lastId)
  assert.equal(second[0]?.id, lastId + 1)
  assert.match((await askPreview(server, host)).body, /sea turtles/i)

  const session = await get(created.id)
  assert.deepEqual(
    session.messages.map((message) => message.role),
    ['user', 'assistant', 'user', 'assistant'],
  )
  assert.equal(session.activity, 'idle')
  assert.equal(session.project.title, 'A page about coral reefs')
  assert.equal(session.project.framework, 'static')
  assert.ok(session.project.artifacts.some((artifact) => artifact.path.endsWith('index.html')))
  assert.ok(session.events.some((event) => event.type === 'preview_ready'))

  const ended = await server.json('DELETE', `/v1/sessions/${created.id}?user_id=ada`)
  assert.deepEqual(ended, { id: created.id, status: 'ended' })
  const sandbox = (await server.json('GET', `/api/sandboxes/${created.sandboxId}`)) as { status: string }
  assert.equal(sandbox.status, 'stopped')
  const endId = second.at(-1)?.id ?? 0
  const reconnect = await server.fetch(`/v1/sessions/${created.id}/events`, {
    headers: { 'Last-Event-ID': String(endId) },
  })
  assert.equal(reconnect.status, 204)
  const replay = await readEvents(server, created.id, () => false)
  assert.deepEqual(replay, [...first, ...second])
  assert.equal((await askPreview(server, host)).status, 410)
})

test('the page is seen in a real browser', async () => {
  const created = await create('A page about lighthouses')
  await readEvents(server, created.id, isTurnComplete)
  const browser = await chromium.launch({
    executablePath: '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--no-first-run'],
  })
  try {
    const page = await browser.newPage()
    await page.goto(created.previewUrl)
    assert.match(await page.innerText('body'), /lighthouses/i)
    assert.match(await page.title(), /lighthouses/i)
  } finally {
    await browser.close()
  }
  await server.json('DELETE', `/v1/sessions/${created.id}`)
})

test('skills are written before the agent starts', async () => {
  const created = await create('run: env; cat /workspace/agent/notes/SKILL.md', {
    agent_config: {
      skills: { 'notes/SKILL.md': '---\nname: notes\ndescription: how to take notes\n---\nWrite plainly.' },
    },
  })
  const events = await readEvents(server, created.id, isTurnComplete)
  const said = JSON.stringify(events)
  assert.match(said, /tool_use/)
  const path = `/api/sandboxes/${created.sandboxId}`
  const shown = (await server.json('POST', `${path}/exec/run`, { cmd: 'cat /workspace/agent/notes/SKILL.md' })) as {
    stdout: string
  }
  assert.match(shown.stdout, /Write plainly/)
  await server.json('DELETE', `/v1/sessions/${created.id}`)
})

test('a crash of the server in the middle of a turn loses and repeats no event', async () => {
  const created = await create('run: sleep 3; echo slept')
  const early = await readEvents(server, created.id, (event) => event.data.type === 'assistant')
  await server.kill()
  await server.restart()
  const rest = await readEvents(server, created.id, isTurnComplete, early.at(-1)?.id ?? 0)
  const all = await readEvents(server, created.id, isTurnComplete)
  assert.deepEqual(all, [...early, ...rest])
  assert.deepEqual(
    all.map((event) => event.id),
    all.map((_, index) => index + 1),
  )
  assert.equal(all.filter((event) => event.data.type === 'result').length, 1)
  const session = await get(created.id)
  assert.equal(session.messages[0]?.state, 'consumed')
  await server.json('DELETE', `/v1/sessions/${created.id}`)
})

test('messages sent while the agent works wait their turn, in order', async () => {
  const created = await create('run: sleep 1')
  for (const word of ['one', 'two', 'three']) {
    await server.json('POST', `/v1/sessions/${created.id}/messages`, { message: `run: echo ${word}`, user_id: 'ada' })
  }
  const events = await readEvents(server, created.id, (_event, all) => all.filter(isTurnComplete).length === 4)
  const completed = events.filter(isTurnComplete).map((event) => event.data['message_id'])
  const session = (await server.json('GET', `/v1/sessions/${created.id}`)) as Session
  const asked = session.messages.filter((message) => message.role === 'user').map((message) => message.id)
  assert.deepEqual(completed, asked)
  await server.json('DELETE', `/v1/sessions/${created.id}`)
})
