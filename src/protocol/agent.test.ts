import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import {
  agentLineDepthMax,
  agentLineValuesMax,
  encodeAgentLine,
  parseAgentCommand,
  parseAgentEvent,
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
        usage: { input_tokens: 1, output_tokens: 2 },
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
  assert.deepEqual(parseAgentEvent(using(agentLineValuesMax)), { ok: false, reason: 'more than 100000 values' })
  const polluted =
    '{"type":"assistant","message":{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"b","input":{"__proto__":{"x":1},"y":2}}]},"session_id":"s"}'
  const parsed = parseAgentEvent(polluted)
  assert.ok(parsed.ok)
  assert.equal(JSON.stringify(parsed.value).includes('__proto__'), false)
  fc.assert(fc.property(fc.string(), (line) => !parseAgentEvent(line).ok && !parseAgentCommand(line).ok))
  fc.assert(fc.property(fc.json(), (line) => typeof parseAgentEvent(line).ok === 'boolean'))
})
