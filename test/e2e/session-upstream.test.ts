/** Model APIs that refuse, die and come back, behind the gateway of a real server. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { isTurnComplete, readEvents, type StreamedEvent } from './event-stream.ts'
import { ModelServer } from './model-server.ts'
import { AtollServer } from './server.ts'
import { createSession, getSession, type Session } from './session-client.ts'

const lastId = (events: readonly StreamedEvent[]): number => events.at(-1)?.id ?? 0
const isToolCall = ({ data }: StreamedEvent) => JSON.stringify(data).includes('"tool_use"')

function ends(events: readonly StreamedEvent[]): unknown[] {
  return events
    .filter(({ data }) => ['error', 'result', 'turn_complete'].includes(data.type))
    .map(({ data }) => data['code'] ?? data['subtype'] ?? data.type)
}

/** A server whose models are those two, each reached over its own wire. */
async function serve(anthropic: ModelServer, openai: ModelServer, retrySeconds = 60): Promise<AtollServer> {
  return await AtollServer.start({
    env: {
      ATOLL_MODEL_RETRY_SECONDS: String(retrySeconds),
      ANTHROPIC_BASE_URL: anthropic.baseUrl,
      OPENAI_BASE_URL: `${openai.baseUrl}/v1`,
      ATOLL_MODEL: 'anthropic/some-model',
      ATOLL_MODELS: 'openai/some-model',
    },
  })
}

async function send(server: AtollServer, { id }: Session, message: string): Promise<void> {
  await server.json('POST', `/v1/sessions/${id}/messages`, { message, user_id: 'ada' })
}

test('a model API that refuses with 429, 529 and 5xx, or dies in a turn, is asked again until it answers', async () => {
  await using anthropic = await ModelServer.start('429', '529', '500', '502', '503')
  await using openai = await ModelServer.start('503', '429')
  await using server = await serve(anthropic, openai)
  const first = await createSession(server, 'run: echo one')
  const second = await createSession(server, 'run: until [ -e /tmp/go ]; do sleep 0.05; done; echo two', {
    agent_config: { model: 'openai/some-model' },
  })
  assert.deepEqual(ends(await readEvents(server, first.id, isTurnComplete)), ['success', 'turn_complete'])
  assert.deepEqual(anthropic.answers, [429, 529, 500, 502, 503, 200, 200])

  const begun = await readEvents(server, second.id, isToolCall)
  await openai.kill()
  // The command ends, and the agent asks a model API that is not there.
  await server.json('POST', `/api/sandboxes/${second.sandboxId}/exec/run`, { cmd: 'touch', args: ['/tmp/go'] })
  while (!server.output.includes('"reason":"ECONNREFUSED"')) await sleep(50)
  await openai.restart()
  const rest = await readEvents(server, second.id, isTurnComplete, lastId(begun))
  assert.deepEqual(ends(rest), ['success', 'turn_complete'])
  assert.match(String(rest.find(({ data }) => data.type === 'result')?.data['result']), /two/)
  assert.deepEqual(openai.answers, [503, 429, 200, 200])
  for (const { id } of [first, second]) await server.json('DELETE', `/v1/sessions/${id}`)
})

test('a model API that stays away ends the turn with an error; the session is idle and takes the next message', async () => {
  await using anthropic = await ModelServer.start()
  await using openai = await ModelServer.start('529…')
  await using server = await serve(anthropic, openai, 8)
  await anthropic.kill()
  const dead = await createSession(server, 'run: echo one')
  const busy = await createSession(server, 'run: echo one', { agent_config: { model: 'openai/some-model' } })
  // Both for as long as a failure may take to pass.
  const turns = await Promise.all([dead, busy].map(({ id }) => readEvents(server, id, isTurnComplete)))
  for (const turn of turns) assert.deepEqual(ends(turn), ['model_error', 'error_during_execution', 'turn_complete'])
  // Pauses that did not grow would have made more of it.
  assert.ok(openai.answers.length > 2 && openai.answers.length < 12, String(openai.answers.length))
  for (const { id } of [dead, busy]) {
    const session = await getSession(server, id)
    assert.deepEqual([session.activity, session.messages[0]?.state], ['idle', 'consumed'])
  }
  await anthropic.restart()
  await openai.kill()
  await openai.restart()
  for (const [index, session] of [dead, busy].entries()) {
    await send(server, session, 'run: echo two')
    const next = await readEvents(server, session.id, isTurnComplete, lastId(turns[index] ?? []))
    assert.deepEqual(ends(next), ['success', 'turn_complete'])
    await server.json('DELETE', `/v1/sessions/${session.id}`)
  }
})
