/** Moments of sessions that are shared, with real processes, disks and secrets (docs/use/sharing.md). */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type StreamedEvent, readEvents } from './event-stream.ts'
import { sh } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'
import { endSession, lastId, type Session } from './session-client.ts'

const server = await AtollServer.startForFile({ env: { ATOLL_SESSION_CHECKPOINTS: 'turn' } })
/** Too long to be a part of a random id. */
const owner = 'who-shares-it'
const isSaved = ({ data }: StreamedEvent) => data.type === 'checkpoint_created'

test('capsule: a stranger reads a moment, and another person goes on from its disk without memory and secrets', async () => {
  const body = {
    prompt: 'run: echo one >page.txt; setsid sleep 4321 >/dev/null 2>&1 </dev/null &',
    user_id: owner,
    agent_config: { envs: { PUBLIC: 'p', HIDDEN: 'h1dden-value' }, secret_envs: ['HIDDEN'] },
  }
  const session = (await server.json('POST', '/v1/sessions', body)) as Session
  const first = await readEvents(server, session.id, isSaved)
  const shared = (await server.json('POST', `/v1/sessions/${session.id}/capsules`, {
    user_id: owner,
    scope: 'fork',
  })) as { url: string; token: string; exact: boolean; event: number }
  await sendMessageAs(owner, session.id, 'run: echo two >page.txt')
  await readEvents(server, session.id, isSaved, lastId(first))
  assert.equal(shared.event, lastId(first))
  assert.equal(shared.exact, true)
  assert.equal(await sh(server, session.sandboxId, 'echo $HIDDEN; cat /workspace/app/page.txt'), 'h1dden-value\ntwo')

  const answer = await fetch(shared.url)
  const read = await answer.text()
  assert.equal(answer.status, 200, read)
  const { messages } = JSON.parse(read) as { messages: { content: string }[] }
  assert.equal(messages[0]?.content, body.prompt)
  assert.ok(!read.includes('echo two') && !read.includes(owner) && !read.includes(session.sandboxId), read)

  const path = `/v1/capsules/${shared.token}/fork`
  const fork = (await server.json('POST', path, { user_id: 'bob' })) as Session
  await sendMessageAs('bob', fork.id, 'run: cat page.txt')
  await readEvents(server, fork.id, ({ data }) => data.type === 'turn_complete')
  const look =
    'cat /workspace/app/page.txt; echo "$PUBLIC,$HIDDEN"; pgrep -f "[s]leep 4321" || echo none; cat /proc/*/environ /proc/*/cmdline | grep -ac "h1[d]den"'
  assert.equal(await sh(server, fork.sandboxId, `${look} || true`), 'one\np,\nnone\n0')
  assert.equal(await sh(server, session.sandboxId, 'pgrep -fc "[s]leep 4321"'), '1')
  await endSession(server, fork.id)
  await endSession(server, session.id)
  assert.equal((await fetch(shared.url)).status, 200)
})

async function sendMessageAs(userId: string, id: string, message: string): Promise<void> {
  await server.json('POST', `/v1/sessions/${id}/messages`, { user_id: userId, message })
}
