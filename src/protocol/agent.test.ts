import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { roundsDuring } from '../lib/testing/rounds.ts'
import {
  agentLineDepthMax,
  agentLineValuesMax,
  encodeAgentLine,
  parseAgentCommand,
  parseAgentEvent,
  readAgentEvent,
  type AgentEvent,
} from './agent.ts'

test('agent line: an encoded event is parsed to the same event', () => {
  const events: AgentEvent[] = [
    { type: 'ready', harness: 'pi', version: '1' },
    { type: 'configured', model: 'demo', tools: ['bash'], cwd: '/workspace/app' },
    {
      type: 'assistant',
      message: {
        role: 'assistant',
        content: [
          { type: 'text', text: 'a\n“b”' },
          { type: 'tool_use', id: 'c', name: 'bash', input: { command: 'ls', nested: [{ deep: [1, null] }] } },
        ],
        usage: { input_tokens: 1, cache_read_input_tokens: 0, cache_creation_input_tokens: 0, output_tokens: 2 },
      },
      session_id: 's',
    },
    { type: 'turn_complete', message_id: 'm', session_id: 's' },
    { type: 'turn_started', message_id: 'm' },
    { type: 'artifact', path: '/a', summary: 'Created' },
  ]
  for (const event of events) {
    const line = encodeAgentLine(event)
    assert.equal(line.indexOf('\n'), line.length - 1)
    assert.deepEqual(parseAgentEvent(line), { ok: true, value: event })
  }
})

test('agent line: a configure command has defaults and bounds', () => {
  const least = { type: 'configure', sessionId: 's', harness: 'pi', model: { provider: 'demo', id: 'demo' } }
  assert.deepEqual(parseAgentCommand(JSON.stringify(least)), {
    ok: true,
    value: { ...least, cwd: '/workspace/app', stateDir: '/workspace/agent/.atoll', skillsDir: '/workspace/agent' },
  })
  for (const wrong of [{ cwd: 'relative' }, { maxTurns: 0 }, { harness: '' }, { skillFiles: ['x'] }, { model: {} }]) {
    assert.equal(parseAgentCommand(JSON.stringify({ ...least, ...wrong })).ok, false)
  }
})

test('agent line: hostile lines are refused or sanitised, and never throw', () => {
  const text = (value: string) => `{"type":"artifact","path":"/a","summary":${JSON.stringify(value)}}`
  assert.deepEqual(parseAgentEvent(text('a\0b\u{d800}')), {
    ok: true,
    value: { type: 'artifact', path: '/a', summary: 'a\u{fffd}b\u{fffd}' },
  })
  const deep = '['.repeat(200_000) + ']'.repeat(200_000)
  const refused = [
    '',
    'null',
    '{}',
    '{"type":"unknown"}',
    '{"type":"artifact","path":"/a","summary":7}',
    text('x'.repeat(5000)),
    '{"type":"turn_complete","message_id":"m"}',
    '{"type":"result","subtype":"success","result":"","num_turns":-1,"duration_ms":1e999}',
    deep,
    `{"type":"assistant","message":{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"b","input":{"a":${'['.repeat(agentLineDepthMax)}${']'.repeat(agentLineDepthMax)}}}]},"session_id":"s"}`,
  ]
  for (const line of refused) assert.equal(parseAgentEvent(line).ok, false, line.slice(0, 100))
  const using = (values: number) =>
    `{"type":"assistant","message":{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"b","input":{"a":[${'{},'.repeat(values)}{}]}}]},"session_id":"s"}`
  assert.equal(parseAgentEvent(using(agentLineValuesMax / 2)).ok, true)
  assert.deepEqual(parseAgentEvent(using(agentLineValuesMax)), { ok: false, reason: 'more than 5000 values' })
  const polluted =
    '{"type":"assistant","message":{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"b","input":{"__proto__":{"x":1},"y":2}}]},"session_id":"s"}'
  const parsed = parseAgentEvent(polluted)
  assert.ok(parsed.ok)
  assert.equal(JSON.stringify(parsed.value).includes('__proto__'), false)
  fc.assert(fc.property(fc.string(), (line) => !parseAgentEvent(line).ok && !parseAgentCommand(line).ok))
  fc.assert(fc.property(fc.json(), (line) => typeof parseAgentEvent(line).ok === 'boolean'))
})

const using = (input: string) =>
  `{"type":"assistant","message":{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"b","input":${input}}]},"session_id":"s"}`

test('agent line: a long one is read as a short one is', async () => {
  await fc.assert(
    fc.asyncProperty(fc.dictionary(fc.string(), fc.jsonValue()), fc.string({ unit: 'binary' }), async (value, text) => {
      // Lone halves of characters may come as escapes.
      const long = [text, '\\ud83d', '\\u0000', '😀'].join('').repeat(100_000).slice(0, 300_000)
      const line = using(`{"value":${JSON.stringify(value)},"long":${JSON.stringify(long)}}`)
      const [read, parsed] = [await readAgentEvent(Buffer.from(line)), parseAgentEvent(Buffer.from(line).toString())]
      // As text: a difference in a text of this length would be printed for minutes.
      assert.ok(JSON.stringify(read) === JSON.stringify(parsed), `${JSON.stringify(value)} ${JSON.stringify(text)}`)
    }),
    { numRuns: 30 },
  )
  const broken = using(`{"a":"${'\\ud83d\\ude00\\ud83d'.repeat(60_000)}"}`)
  assert.deepEqual(await readAgentEvent(Buffer.from(broken)), parseAgentEvent(broken))
})

test('agent line: a long one is refused before its values are made, and told why', async () => {
  const cases: [line: string, reason: RegExp][] = [
    [using(`{"a":[${'0,'.repeat(200_000)}0]}`), /more than 5000 values/],
    [using(`{${Array.from({ length: 2000 }, (_, name) => `"${name}":0`).join(',')}}`), /more than 1000 fields/],
    ['['.repeat(200_000), /nested deeper/],
    ['x'.repeat(200_000), /not JSON/],
    [`"${'x'.repeat(200_000)}"`, /expected object/],
    [using(`{"a":"${'x'.repeat(10_000)}"`), /not JSON/],
  ]
  for (const [line, reason] of cases) {
    const read = await readAgentEvent(Buffer.from(line))
    assert.ok(!read.ok && reason.test(read.reason), JSON.stringify(read).slice(0, 200))
  }
})

test('agent line: other work goes on while a long one is read', async () => {
  const line = Buffer.from(using(`{"a":"${'\\u0000'.repeat(500_000)}"}`))
  const rounds = await roundsDuring(async () => assert.ok((await readAgentEvent(line)).ok))
  assert.ok(rounds > 20, String(rounds))
})
