/** What an idle session costs, and what it remembers. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { isTurnComplete, readEvents } from './event-stream.ts'
import { processesOf } from './sandbox-insides.ts'
import { AtollServer } from './server.ts'
import { createSession, getSession } from './session-client.ts'

test('an idle session sleeps with its agent and the next message wakes both; a turn never falls asleep', async () => {
  await using server = await AtollServer.start()
  const { id, sandboxId } = await createSession(server, 'A page about tide pools')
  const first = await readEvents(server, id, isTurnComplete)
  const send = (message: string) => server.json('POST', `/v1/sessions/${id}/messages`, { message, user_id: 'ada' })
  const told = async () => (await getSession(server, id)).events.map(({ type }) => type)
  const asleep = async () => {
    while ((await told()).at(-1) !== 'sandbox_hibernated') await sleep(50)
  }

  await send('run: sleep 4; echo slept')
  await server.json('POST', `/api/sandboxes/${sandboxId}/timeout`, { timeout: 1 })
  const second = await readEvents(server, id, isTurnComplete, first.at(-1)?.id)
  assert.match(JSON.stringify(second), /slept/)
  await asleep()
  const types = await told()
  assert.ok(types.indexOf('sandbox_hibernated') > types.lastIndexOf('turn_completed'))
  assert.deepEqual(await processesOf(sandboxId), [])
  assert.equal((await getSession(server, id)).activity, 'idle')

  await send('Add a section about sea stars')
  const third = await readEvents(server, id, isTurnComplete, second.at(-1)?.id)
  assert.equal(third.find(({ data }) => data.type === 'result')?.data['subtype'], 'success')
  // The demo model edits the page of its conversation instead of building a new one.
  const shown = (await server.json('POST', `/api/sandboxes/${sandboxId}/exec/run`, {
    cmd: 'cat /workspace/app/index.html',
  })) as { stdout: string }
  assert.match(shown.stdout, /tide pools[\s\S]*sea stars/i)
  await asleep()
  const all = await readEvents(server, id, (_event, seen) => seen.filter(isTurnComplete).length === 3)
  assert.equal(all.filter(({ data }) => data.type === 'ready').length, 1, 'it is the same agent process all the time')
  assert.deepEqual(
    all.map((event) => event.id),
    all.map((_, index) => index + 1),
  )
  assert.ok((await told()).includes('sandbox_resumed'))
})
