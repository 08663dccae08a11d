import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { launchBrowser, visit } from './browser.ts'
import { isTurnComplete, readEvents } from './event-stream.ts'
import { askPreview } from './preview.ts'
import { sh } from './sandbox-calls.ts'
import { processesOf } from './sandbox-insides.ts'
import { AtollServer } from './server.ts'
import {
  assertNumbered,
  createSession,
  endSession,
  getSession,
  lastId,
  resultOf,
  sendAndRead,
  sendMessage,
  sessionPage,
  turnsComplete,
  wholeStream,
} from './session-client.ts'

const server = await AtollServer.startForFile()

test('session: a prompt becomes a live page, a follow-up changes it, and a deletion ends all of it', async () => {
  const created = await createSession(server, 'A page about coral reefs')
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
  assertNumbered(first)
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

  assert.match(await sessionPage(server, created), /coral reefs/i)
  const browser = await launchBrowser()
  try {
    const page = await browser.newPage()
    await visit(page, created.previewUrl)
    assert.match(await page.innerText('body'), /coral reefs/i)
    assert.match(await page.title(), /coral reefs/i)
  } finally {
    await browser.close()
  }

  const updated = await sendMessage(server, created.id, 'Add a section about sea turtles')
  assert.equal(updated.messages.at(-1)?.content, 'Add a section about sea turtles')
  const second = await readEvents(server, created.id, isTurnComplete, lastId(first))
  assert.equal(second[0]?.id, lastId(first) + 1)
  assert.match(await sessionPage(server, created), /sea turtles/i)

  const session = await getSession(server, created.id)
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
  const reconnect = await server.fetch(`/v1/sessions/${created.id}/events`, {
    headers: { 'Last-Event-ID': String(lastId(second)) },
  })
  assert.equal(reconnect.status, 204)
  assert.deepEqual(await readEvents(server, created.id, () => false), [...first, ...second])
  assert.equal((await askPreview(server, new URL(created.previewUrl).host)).status, 410)
})

test('session: skills are written before the agent starts', async () => {
  const skill = '---\nname: notes\ndescription: how to take notes\n---\nWrite plainly.'
  const created = await createSession(server, 'run: env; cat /workspace/agent/notes/SKILL.md', {
    agent_config: { skills: { 'notes/SKILL.md': skill } },
  })
  assert.match(JSON.stringify(await readEvents(server, created.id, isTurnComplete)), /tool_use/)
  assert.match(await sh(server, created.sandboxId, 'cat /workspace/agent/notes/SKILL.md'), /Write plainly/)
  await endSession(server, created.id)
})

test('session: messages sent while the agent works are dealt with in order', async () => {
  const { id } = await createSession(server, 'run: sleep 1')
  for (const word of ['one', 'two', 'three']) await sendMessage(server, id, `run: echo ${word}`)
  const events = await readEvents(server, id, turnsComplete(4))
  const completed = events.filter(isTurnComplete).map((event) => event.data['message_id'])
  const { messages } = await getSession(server, id)
  assert.deepEqual(
    completed,
    messages.flatMap((message) => (message.role === 'user' ? [message.id] : [])),
  )
  await endSession(server, id)
})

test('session: an idle one hibernates with its agent, the next message wakes both, and no turn is hibernated', async () => {
  const { id, sandboxId } = await createSession(server, 'A page about tide pools')
  const first = await readEvents(server, id, isTurnComplete)
  const eventTypes = async () => (await getSession(server, id)).events.map(({ type }) => type)
  const hibernated = async () => {
    while ((await eventTypes()).at(-1) !== 'sandbox_hibernated') await sleep(50)
  }

  await sendMessage(server, id, 'run: sleep 3; echo slept')
  await server.json('POST', `/api/sandboxes/${sandboxId}/timeout`, { timeout: 1 })
  const second = await readEvents(server, id, isTurnComplete, lastId(first))
  assert.match(JSON.stringify(second), /slept/)
  await hibernated()
  const types = await eventTypes()
  assert.ok(types.indexOf('sandbox_hibernated') > types.lastIndexOf('turn_completed'))
  assert.deepEqual(await processesOf(sandboxId), [])
  assert.equal((await getSession(server, id)).activity, 'idle')

  const third = await sendAndRead(server, id, 'Add a section about sea stars', second)
  assert.equal(resultOf(third)?.['subtype'], 'success')
  // The demo model edits the page of its conversation instead of building a new one.
  assert.match(await sh(server, sandboxId, 'cat /workspace/app/index.html'), /tide pools[\s\S]*sea stars/i)
  await hibernated()
  const all = await wholeStream(server, id, 3)
  assert.equal(all.filter(({ data }) => data.type === 'ready').length, 1, 'it is the same agent process all the time')
  assert.ok((await eventTypes()).includes('sandbox_resumed'))
  await endSession(server, id)
})
