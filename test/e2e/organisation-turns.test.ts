/** Turns of an organisation that is suspended while its agent asks the model again and again. */
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { answerEvents, fakeAnthropic, sendEvents } from '../agent/fake-anthropic.ts'
import { Host } from './host.ts'
import { AtollServer } from './server.ts'
import type { Session } from './session-client.ts'
import { operatorKey, Tenant } from './tenant.ts'

const command = [
  ...answerEvents.slice(0, 1),
  { type: 'content_block_start', index: 0, content_block: { type: 'tool_use', id: 'call', name: 'bash', input: {} } },
  { type: 'content_block_delta', index: 0, delta: { type: 'input_json_delta', partial_json: '{"command":"true"}' } },
  { type: 'content_block_stop', index: 0 },
  { type: 'message_delta', delta: { stop_reason: 'tool_use' }, usage: { output_tokens: 5 } },
  { type: 'message_stop' },
]
let calls = 0
let isLast = false
const api = await fakeAnthropic((_body, response) => {
  calls += 1
  if (isLast) return false
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  sendEvents(response, command)
  response.end()
  return true
})
const server = await AtollServer.startForFile({
  env: {
    ANTHROPIC_BASE_URL: api.url,
    ATOLL_MODEL: 'anthropic/some-model',
    ATOLL_OPERATOR_KEY: operatorKey,
    ATOLL_SESSION_CHECKPOINTS: 'none',
  },
})
after(() => api[Symbol.asyncDispose]())

for (const [how, between] of [
  ['resumed', async () => undefined],
  [
    'resumed after a crash of the server',
    async () => {
      await server.kill()
      await server.restart()
    },
  ],
] as const) {
  test(`organisation: one that is ${how} has no turn that the suspension has ended`, async () => {
    const host = await Host.of(server)
    for (let round = 0; round < 3; round += 1) {
      await using tenant = await Tenant.make(server, 'busy')
      isLast = false
      const begin = { prompt: 'Go on', user_id: 'ada' }
      const { id } = (await tenant.json('POST', '/v1/sessions', begin)) as Session
      const before = calls
      await eventually(() => calls > before + 5 + round)
      await tenant.suspend()
      await eventually(async () => (await host.sandboxes()).length === 0, { what: 'it sleeps' })
      isLast = true
      await between()
      await tenant.resume()
      const ended = await eventually(async () => {
        const { activity, events } = (await tenant.json('GET', `/v1/sessions/${id}`)) as Session
        assert.ok(activity === 'idle' || activity === 'failed')
        return events
      })
      assert.equal(ended.at(-1)?.level, 'info', JSON.stringify(ended))
      assert.equal(ended.at(-1)?.type, 'turn_completed', JSON.stringify(ended))
    }
  })
}
