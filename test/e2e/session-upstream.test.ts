/** Model APIs of both wires that refuse, die and come back, behind the gateway of a real server. */
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { isTurnComplete, readEvents, type StreamedEvent } from './event-stream.ts'
import { ModelServer } from './model-server.ts'
import { sh } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'
import {
  createSession,
  endSession,
  getSession,
  isConfigured,
  isToolCall,
  lastId,
  resultOf,
  sendAndRead,
  sessionPage,
} from './session-client.ts'

/** How turns ended, with the codes of errors. */
function endsAndErrors(events: readonly StreamedEvent[]): unknown[] {
  return events
    .filter(({ data }) => ['error', 'result', 'turn_complete'].includes(data.type))
    .map(({ data }) => data['code'] ?? data['subtype'] ?? data.type)
}

const anthropic = await ModelServer.start('429', '529', '500', '502', '503')
const openai = await ModelServer.start('503', '429')
const server = await AtollServer.startForFile({
  env: {
    ANTHROPIC_BASE_URL: anthropic.baseUrl,
    OPENAI_BASE_URL: `${openai.baseUrl}/v1`,
    ATOLL_MODEL: 'anthropic/some-model',
    ATOLL_MODELS: 'openai/some-model',
  },
})
after(() => Promise.all([anthropic.kill(), openai.kill()]))

test('model API: one that refuses with 429, 529 and 5xx, or dies in a turn, is asked again until it answers', async () => {
  const first = await createSession(server, 'run: echo one')
  const second = await createSession(server, 'run: until [ -e /tmp/go ]; do sleep 0.05; done; echo two', {
    agent_config: { model: 'openai/some-model' },
  })
  assert.deepEqual(endsAndErrors(await readEvents(server, first.id, isTurnComplete)), ['success', 'turn_complete'])
  assert.deepEqual(anthropic.answers, [429, 529, 500, 502, 503, 200, 200])

  const begun = await readEvents(server, second.id, isToolCall)
  await openai.kill()
  // The command ends, and the agent asks a model API that is not there.
  await sh(server, second.sandboxId, 'touch /tmp/go')
  while (!server.output.includes('"reason":"ECONNREFUSED"')) await sleep(50)
  await openai.restart()
  const rest = await readEvents(server, second.id, isTurnComplete, lastId(begun))
  assert.deepEqual(endsAndErrors(rest), ['success', 'turn_complete'])
  assert.match(String(resultOf(rest)?.['result']), /two/)
  assert.deepEqual(openai.answers, [503, 429, 200, 200])
  for (const { id } of [first, second]) await endSession(server, id)
})

test('model API: one that stays away ends the turn with an error, and the session builds a page with the next message', async () => {
  await server.stop()
  await server.restart({ ATOLL_MODEL_RETRY_SECONDS: '8' })
  await Promise.all([anthropic.kill(), openai.kill()])
  await openai.restart('529…')
  const answered = openai.answers.length
  const dead = await createSession(server, 'run: echo one')
  const busy = await createSession(server, 'run: echo one', { agent_config: { model: 'openai/some-model' } })
  // Both for as long as a failure may take to pass.
  const turns = await Promise.all([dead, busy].map(({ id }) => readEvents(server, id, isTurnComplete)))
  for (const turn of turns)
    assert.deepEqual(endsAndErrors(turn), ['model_error', 'error_during_execution', 'turn_complete'])
  // Pauses that did not grow would have made more of it.
  const asked = openai.answers.length - answered
  assert.ok(asked > 2 && asked < 12, String(asked))
  for (const { id } of [dead, busy]) {
    const session = await getSession(server, id)
    assert.deepEqual([session.activity, session.messages[0]?.state], ['idle', 'consumed'])
  }
  await anthropic.restart()
  await openai.kill()
  await openai.restart()
  for (const [index, session] of [dead, busy].entries()) {
    const turn = turns[index] ?? []
    assert.match(String(turn.find(isConfigured)?.data['model']), /some-model/)
    const next = await sendAndRead(server, session.id, 'A page about tides', turn)
    assert.deepEqual(endsAndErrors(next), ['success', 'turn_complete'])
    assert.match(await sessionPage(server, session), /tides/i)
    await endSession(server, session.id)
  }
})
