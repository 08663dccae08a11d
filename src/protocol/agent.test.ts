import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import {
  agentLineBytesMax,
  agentLineDepthMax,
  encodeAgentLine,
  isStreamEvent,
  LineSplitter,
  parseAgentCommand,
  parseAgentEvent,
  type AgentEvent,
} from './agent.ts'

test('what is encoded is parsed to the same event', () => {
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
  assert.deepEqual(
    events.map((event) => isStreamEvent(event)),
    [true, true, true, true, false, false],
  )
})

test('a configure command has defaults and keeps to its bounds', () => {
  const least = { type: 'configure', sessionId: 's', harness: 'pi', model: { provider: 'demo', id: 'demo' } }
  assert.deepEqual(parseAgentCommand(JSON.stringify(least)), {
    ok: true,
    value: { ...least, cwd: '/workspace/app', stateDir: '/workspace/agent/.atoll', skillsDir: '/workspace/agent' },
  })
  for (const wrong of [{ cwd: 'relative' }, { maxTurns: 0 }, { harness: '' }, { skillFiles: ['x'] }, { model: {} }]) {
    assert.equal(parseAgentCommand(JSON.stringify({ ...least, ...wrong })).ok, false)
  }
})

test('hostile lines are refused or made harmless, and never throw', () => {
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
  const polluted =
    '{"type":"assistant","message":{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"b","input":{"__proto__":{"x":1},"y":2}}]},"session_id":"s"}'
  const parsed = parseAgentEvent(polluted)
  assert.ok(parsed.ok)
  assert.equal(JSON.stringify(parsed.value).includes('__proto__'), false)
  fc.assert(fc.property(fc.string(), (line) => !parseAgentEvent(line).ok && !parseAgentCommand(line).ok))
  fc.assert(fc.property(fc.json(), (line) => typeof parseAgentEvent(line).ok === 'boolean'))
})

test('lines are the same however the stream is cut into chunks', () => {
  fc.assert(
    fc.property(
      fc.array(fc.stringMatching(/^[^\n]{0,30}$/)),
      fc.array(fc.nat(40), { minLength: 1 }),
      (lines, sizes) => {
        const bytes = Buffer.from(lines.map((line) => `${line}\n`).join(''))
        const splitter = new LineSplitter()
        const found = []
        for (let at = 0, turn = 0; at < bytes.length; turn++) {
          const size = Math.max(1, sizes[turn % sizes.length]!)
          found.push(...splitter.push(bytes.subarray(at, at + size)))
          at += size
        }
        const expected = lines.filter((line) => line !== '')
        assert.deepEqual(
          found.map((line) => line.type === 'line' && line.text),
          expected.map((line) => Buffer.from(line).toString()),
        )
        if (found.length > 0 && lines.at(-1) !== '') assert.equal(found.at(-1)?.endOffset, bytes.length)
      },
    ),
  )
})

test('a line that is too long is dropped in bounded memory and the next one is read', () => {
  const splitter = new LineSplitter(10)
  assert.deepEqual(splitter.push(Buffer.from('0123456789\n')), [{ type: 'line', text: '0123456789', endOffset: 11 }])
  for (let round = 0; round < 1000; round++) assert.deepEqual(splitter.push(Buffer.alloc(100, 'x')), [])
  assert.deepEqual(splitter.push(Buffer.from('y\nok\n')), [
    { type: 'too_long', byteLength: 100_001, endOffset: 100_013 },
    { type: 'line', text: 'ok', endOffset: 100_016 },
  ])
  assert.ok(agentLineBytesMax >= 1024 * 1024)
})

test('a line that comes byte by byte takes no more memory than its bytes', () => {
  const splitter = new LineSplitter()
  const byte = Buffer.from('x')
  const held = () => process.memoryUsage().heapUsed + process.memoryUsage().arrayBuffers
  const before = held()
  for (let count = 0; count < 2_000_000; count++) assert.ok(splitter.push(byte).length === 0)
  const grown = held() - before
  assert.ok(grown < 100 * 1024 * 1024, `${grown} bytes for a line of 2 MB`)
  const [line] = splitter.push(Buffer.from('\n'))
  assert.ok(line?.type === 'line' && line.text.length === 2_000_000)
})

test('offsets follow the log of both streams, in which other output stands between two chunks', () => {
  const splitter = new LineSplitter()
  assert.deepEqual(splitter.push(Buffer.from('{"a"'), 100), [])
  assert.deepEqual(splitter.push(Buffer.from(':1}\nx'), 5000), [{ type: 'line', text: '{"a":1}', endOffset: 5004 }])
})
