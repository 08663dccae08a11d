import assert from 'node:assert/strict'
import { test } from 'node:test'
import { noTokens } from '../lib/model-price.ts'
import { UsageTap, type AskedCall } from './usage-tap.ts'

/** A tap on an event stream, with a clock that the test moves. */
class Stream {
  nowMs = 1000
  readonly tap: UsageTap

  constructor(wire: AskedCall['wire'], requestBytes = 300) {
    const call = { wire, requestBytes, askedAtMs: this.nowMs }
    this.tap = new UsageTap(call, 'text/event-stream', () => this.nowMs)
  }

  push(...events: object[]): this {
    for (const event of events) this.tap.push(Buffer.from(`data: ${JSON.stringify(event)}\n\n`))
    return this
  }
}

const start = { type: 'message_start', message: { usage: { input_tokens: 25, output_tokens: 1 } } }
const words = 'three words here '.repeat(10)
const textDelta = { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: words } }
const stop = { type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 400 } }

test('usage tap: an answer that breaks off is estimated from its text, not from the usage that it began with', () => {
  const broken = new Stream('anthropic-messages').push(start, ...Array.from({ length: 100 }, () => textDelta))
  assert.equal(broken.tap.reported, undefined)
  assert.deepEqual(broken.tap.end(), {
    ...noTokens(),
    inputTokens: 25,
    outputTokens: Math.ceil(17_000 / 3),
    estimated: true,
  })

  const chunk = { choices: [{ index: 0, delta: { role: 'assistant', content: words }, finish_reason: null }] }
  const completions = new Stream('openai-completions').push(chunk, chunk)
  assert.deepEqual(completions.tap.end(), {
    ...noTokens(),
    inputTokens: 100,
    outputTokens: Math.ceil(340 / 3),
    estimated: true,
  })

  const delta = { type: 'response.output_text.delta', delta: words, obfuscation: 'x'.repeat(1000) }
  const created = { type: 'response.created', response: { usage: null } }
  const responses = new Stream('openai-responses').push(created, delta)
  assert.deepEqual(responses.tap.end(), {
    ...noTokens(),
    inputTokens: 100,
    outputTokens: Math.ceil(170 / 3),
    estimated: true,
  })
})

test('usage tap: reported usage counts when it comes with the end of the answer or after it', () => {
  const reported = { ...noTokens(), inputTokens: 25, outputTokens: 400, estimated: false }
  assert.deepEqual(new Stream('anthropic-messages').push(start, textDelta, stop).tap.reported, reported)

  // Some servers count along in every event.
  const choice = (content: string, reason: string | null) => ({ index: 0, delta: { content }, finish_reason: reason })
  const usage = (tokens: number) => ({ prompt_tokens: 25, completion_tokens: tokens })
  const counting = new Stream('openai-completions').push({ choices: [choice(words, null)], usage: usage(1) })
  assert.equal(counting.tap.reported, undefined)
  counting.push({ choices: [choice('', 'stop')] }, { choices: [choice('', null)], usage: usage(400) })
  assert.deepEqual(counting.tap.reported, reported)
  const apart = new Stream('openai-completions').push(
    { choices: [choice(words, null)] },
    { choices: [], usage: usage(400) },
  )
  assert.deepEqual(apart.tap.end(), reported)

  const response = { usage: { input_tokens: 25, output_tokens: 400 } }
  for (const type of ['response.completed', 'response.incomplete', 'response.failed']) {
    assert.deepEqual(new Stream('openai-responses').push({ type, response }).tap.reported, reported)
  }
  assert.equal(new Stream('openai-responses').push({ type: 'response.in_progress', response }).tap.reported, undefined)
})

test('usage tap: an answer with an output but no valid input is estimated', () => {
  for (const input of [0, -5, '7', null, undefined]) {
    const usage = { prompt_tokens: input, completion_tokens: 400 }
    const stream = new Stream('openai-completions').push({ choices: [], usage })
    assert.equal(stream.tap.reported, undefined)
    assert.deepEqual(stream.tap.end(), { ...noTokens(), inputTokens: 100, outputTokens: 400, estimated: true })
  }
})

test('usage tap: cached tokens are kept when an answer breaks off', () => {
  const cached = { input_tokens: 25, cache_read_input_tokens: 1000, output_tokens: 1 }
  const broken = new Stream('anthropic-messages').push({ type: 'message_start', message: { usage: cached } }, textDelta)
  assert.deepEqual(broken.tap.end(), {
    ...noTokens(),
    inputTokens: 1025,
    cacheReadTokens: 1000,
    outputTokens: Math.ceil(170 / 3),
    estimated: true,
  })
})

test('usage tap: silence before an answer breaks off counts as thinking', () => {
  const silent = new Stream('anthropic-messages').push(start)
  silent.nowMs += 30_000
  assert.equal(silent.tap.end().outputTokens, 3000)

  const spoke = new Stream('anthropic-messages').push(start)
  spoke.nowMs += 30_000
  spoke.push(textDelta)
  // A client that does not read has made the model no dearer.
  spoke.nowMs += 3_600_000
  assert.equal(spoke.tap.end().outputTokens, 3000 + Math.ceil(170 / 3))
})

test('usage tap: silence in the middle of an answer counts as thinking', () => {
  const stream = new Stream('anthropic-messages').push(start, textDelta)
  stream.nowMs += 60_000
  stream.push(textDelta)
  // As fast as it writes.
  stream.nowMs += 500
  stream.push(textDelta)
  assert.equal(stream.tap.end().outputTokens, 6000 + 170)
})

test('usage tap: an API that fails before it has generated anything charges nothing', () => {
  const error = { type: 'error', error: { type: 'overloaded_error', message: 'Overloaded' } }
  assert.deepEqual(new Stream('anthropic-messages').push(error).tap.end(), { ...noTokens(), estimated: true })
  const failed = { type: 'response.failed', response: { error: { code: 'server_error' }, usage: null } }
  assert.equal(new Stream('openai-responses').push(failed).tap.end().inputTokens, 0)
  const later = new Stream('anthropic-messages').push(start, textDelta, error).tap.end()
  assert.deepEqual(later, { ...noTokens(), inputTokens: 25, outputTokens: Math.ceil(170 / 3), estimated: true })
})

test('usage tap: a line that is no event counts as text', () => {
  const stream = new Stream('openai-completions')
  stream.tap.push(Buffer.from(': a comment\nevent: x\n\ndata: [DONE]\n\ndata: {"torn'))
  assert.equal(stream.tap.end().outputTokens, Math.ceil('data: {"torn'.length / 3))
  const large = new Stream('openai-completions')
  for (let i = 0; i < 9; i++) large.tap.push(Buffer.alloc(1024 * 1024, 'x'))
  assert.equal(large.tap.end().outputTokens, Math.ceil((9 * 1024 * 1024) / 3))
})

test('usage tap: a JSON answer reports its usage at its end, and is estimated without', () => {
  const call = { wire: 'openai-completions', requestBytes: 300, askedAtMs: 0 } as const
  const tap = (body: object) => {
    const made = new UsageTap(call, 'application/json', () => 0)
    made.push(Buffer.from(JSON.stringify(body)))
    return made.end()
  }
  const usage = { prompt_tokens: 7, completion_tokens: 8 }
  assert.deepEqual(tap({ choices: [], usage }), { ...noTokens(), inputTokens: 7, outputTokens: 8, estimated: false })
  const unreported = tap({ choices: [{ message: { role: 'assistant', content: words } }] })
  assert.deepEqual(unreported, { ...noTokens(), inputTokens: 100, outputTokens: Math.ceil(170 / 3), estimated: true })
  assert.deepEqual(tap({ error: { message: 'no' } }), { ...noTokens(), estimated: true })
})

const longText = words.repeat(60)
const longAnswers: [wire: AskedCall['wire'], event: Record<string, unknown>][] = [
  [
    'openai-completions',
    {
      choices: [{ message: { role: longText, content: longText } }],
      usage: { prompt_tokens: 7, completion_tokens: 8 },
    },
  ],
  ['openai-completions', { choices: [], x: longText, usage: { prompt_tokens: 7, completion_tokens: 8 } }],
  [
    'openai-completions',
    { choices: [{}, { finish_reason: 'stop', delta: { content: `ü\n"\\😀${longText}` } }], usage: null },
  ],
  ['openai-completions', { choices: [{ delta: { type: { a: longText }, b: longText }, finish_reason: null }] }],
  ['openai-completions', { error: { message: longText }, choices: [] }],
  [
    'anthropic-messages',
    {
      type: 'message_delta',
      delta: { stop_reason: 'end_turn', text: longText },
      usage: { input_tokens: 3, output_tokens: 4 },
    },
  ],
  [
    'anthropic-messages',
    { type: 'message_start', message: { content: [longText], usage: { input_tokens: 3, cache_read_input_tokens: 9 } } },
  ],
  ['anthropic-messages', { type: 'error', error: 'text', delta: longText }],
  [
    'openai-responses',
    {
      type: 'response.completed',
      response: { output: [longText, { usage: 1 }], usage: { input_tokens: 5, output_tokens: 6 } },
    },
  ],
  ['openai-responses', { type: 'response.output_text.delta', delta: longText, usage: { a: longText } }],
  ['openai-responses', { type: 'x', delta: [1, true, null, { a: { b: [longText] } }], list: [[], {}, [{}]] }],
]

test('usage tap: a long line says what a short one would, wherever its chunks end', () => {
  for (const type of ['text/event-stream', 'application/json']) {
    for (const [wire, event] of longAnswers) {
      // The long text alone makes the difference between being parsed whole and being read as it comes.
      const short = JSON.stringify(event).replaceAll(longText, words)
      const made = (json: string, step: number) => {
        const tap = new UsageTap({ wire, requestBytes: 300, askedAtMs: 0 }, type, () => 0)
        const bytes = Buffer.from(type === 'text/event-stream' ? `data: ${json}\n\n` : json)
        for (let at = 0; at < bytes.length; at += step) tap.push(bytes.subarray(at, at + step))
        return tap.end()
      }
      const counted = (json: string) => Buffer.byteLength(json)
      const expected = made(short, Infinity)
      const found = [1, 7, 4096, Infinity].map((step) => made(JSON.stringify(event), step))
      const place = `${type} ${short.slice(0, 100)}`
      for (const usage of found) assert.deepEqual(usage, found[0], place)
      const { outputTokens, ...input } = found[0]!
      const { outputTokens: expectedOutput, ...expectedInput } = expected
      assert.deepEqual(input, expectedInput, place)
      const texts = (expectedOutput === 8 || expectedOutput === 6 || expectedOutput === 4) && !expected.estimated
      if (texts) assert.equal(outputTokens, expectedOutput, place)
      assert.ok(counted(JSON.stringify(event)) > 8 * 1024, place)
    }
  }
})
