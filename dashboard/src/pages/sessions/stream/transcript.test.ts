import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { AgentEvent, StreamEvent } from 'atoll-sdk'
import { leftRangesOf, withGroups } from './left-ranges.ts'
import { toolStateOf, type Row } from './rows.ts'
import { Transcript } from './transcript.ts'

const usage = { input_tokens: 1, cache_read_input_tokens: 0, cache_creation_input_tokens: 0, output_tokens: 1 }
const text = (words: string): AgentEvent => ({
  type: 'assistant',
  message: { role: 'assistant', content: [{ type: 'text', text: words }] },
  session_id: 's',
})
const call = (id: string): AgentEvent => ({
  type: 'assistant',
  message: { role: 'assistant', content: [{ type: 'tool_use', id, name: 'bash', input: { command: id } }] },
  session_id: 's',
})
const end = (id: string): AgentEvent => ({
  type: 'tool_use_summary',
  tool: 'bash',
  tool_use_id: id,
  summary: `Ran ${id}`,
  is_error: false,
  duration_ms: 5,
})
const result = (subtype: 'success' | 'error_during_execution', words = ''): AgentEvent => ({
  type: 'result',
  subtype,
  result: words,
  num_turns: 1,
  duration_ms: 9,
  usage,
  session_id: 's',
})
const complete = (id: string): AgentEvent => ({ type: 'turn_complete', message_id: id, session_id: 's' })
const checkpoint = (afterEvent: number): AgentEvent => ({
  type: 'checkpoint_created',
  checkpoint_id: `cp-${afterEvent}`,
  after_event: afterEvent,
  message_id: 'm',
  kind: 'full',
  size_bytes: 1,
  duration_ms: 1,
})
const failure = (code: string): AgentEvent => ({ type: 'error', code, message: `it is ${code}`, fatal: false })
const rewound = (toEvent: number, fromEvent: number, what: 'all' | 'machine' = 'all'): AgentEvent => ({
  type: 'rewound',
  to_event: toEvent,
  from_event: fromEvent,
  what,
  undo_checkpoint_id: 'cp-undo',
})

const numbered = (events: readonly AgentEvent[]): StreamEvent<AgentEvent>[] =>
  events.map((data, index) => ({ sequence: index + 1, data }))

function read(events: readonly StreamEvent<AgentEvent>[], before = 0): Transcript {
  const transcript = new Transcript(before)
  for (const event of events) if (event.sequence > before) transcript.add(event)
  return transcript
}

function told(row: Row): string {
  switch (row.kind) {
    case 'user':
      return `user ${row.turn.messageId ?? '?'}${row.isCut ? ' cut' : ''}`
    case 'tool':
      return `tool ${row.callId} ${toolStateOf(row)}${row.input === undefined ? ' without input' : ''}`
    case 'result':
      return `result ${row.result.subtype} ${row.reason}`
    case 'error':
      return `error ${row.error.code}`
    case 'text':
      return `text ${row.text}`
    case 'checkpoint':
    case 'rewound':
    case 'capsule':
    case 'note':
      return row.kind
  }
}
const toldBy = ({ rows }: Transcript) => rows.map((row) => `${row.event} ${told(row)}`)

test('transcript: a turn begins with its message, calls have their ends, and the message is known at the end', () => {
  const transcript = read(
    numbered([text('I begin'), call('a'), end('a'), result('success'), complete('m1'), checkpoint(5)]),
  )
  assert.deepEqual(toldBy(transcript), [
    '1 user m1',
    '1 text I begin',
    '2 tool a done',
    '4 result success ',
    '6 checkpoint',
  ])
})

test('transcript: an event that comes again changes nothing', () => {
  const events = numbered([text('I begin'), call('a')])
  const transcript = read(events)
  const before = toldBy(transcript)
  for (const event of events) transcript.add(event)
  assert.deepEqual(toldBy(transcript), before)
})

test('transcript: a call without an end runs while its turn does, and has none after it', () => {
  const transcript = read(numbered([call('a')]))
  assert.equal(toldBy(transcript)[1], '1 tool a running')
  transcript.add({ sequence: 2, data: complete('m1') })
  assert.equal(toldBy(transcript)[1], '1 tool a unfinished')
})

test('transcript: an error before the first answer follows the message of its turn, and its result does not repeat it', () => {
  const transcript = read(
    numbered([failure('model_error'), result('error_during_execution', 'it is model_error'), complete('m1')]),
  )
  assert.deepEqual(toldBy(transcript), ['2 user m1', '1 error model_error', '2 result error_during_execution '])
})

test('transcript: an error between turns belongs to none', () => {
  const transcript = read(numbered([text('one'), complete('m1'), failure('checkpoint_failed'), text('two')]))
  assert.deepEqual(toldBy(transcript).slice(2), ['3 error checkpoint_failed', '4 user ?', '4 text two'])
})

const story = numbered([
  { type: 'ready', harness: 'pi', version: '1' },
  text('one'),
  call('a'),
  call('b'),
  end('a'),
  end('b'),
  result('success'),
  complete('m1'),
  checkpoint(8),
  text('two'),
  call('c'),
  end('c'),
  failure('agent_exited'),
  text('again'),
  result('success'),
  complete('m2'),
  checkpoint(16),
  call('d'),
])

test('transcript: a stretch and those before it are the same as all at once, wherever they are cut', () => {
  const whole = toldBy(read(story))
  for (let first = 1; first < story.length; first += 1) {
    for (let second = 0; second < first; second += 1) {
      const newest = read(story, first)
      const middle = read(
        story.filter(({ sequence }) => sequence <= first),
        second,
      )
      newest.prepend(middle)
      newest.prepend(read(story.filter(({ sequence }) => sequence <= second)))
      assert.deepEqual(toldBy(newest), whole, `cut at ${second} and ${first}`)
      assert.equal(newest.before, 0)
    }
  }
})

test('transcript: what was dropped and is read again is as it was, and what comes after that is taken', () => {
  for (let weightMax = 0; weightMax < 6000; weightMax += 130) {
    for (let cut = 6; cut < story.length; cut += 1) {
      const transcript = read(story.slice(0, cut))
      transcript.dropTo(2 * weightMax)
      transcript.dropTo(weightMax)
      for (const event of story.slice(cut)) transcript.add(event)
      const { before } = transcript
      if (before > 0) transcript.prepend(read(story.filter(({ sequence }) => sequence <= before)))
      assert.deepEqual(toldBy(transcript), toldBy(read(story)), `to ${weightMax}, at ${cut}`)
      assert.equal(
        transcript.weight,
        transcript.rows.reduce((sum, { weight }) => sum + weight, 0),
      )
    }
  }
})

test('branches: a rewind leaves what lies between, and an undo brings it back', () => {
  const events = numbered([
    text('one'),
    complete('m1'),
    checkpoint(2),
    text('two'),
    complete('m2'),
    rewound(2, 5),
    text('other'),
    complete('m3'),
    rewound(5, 8),
  ])
  const rewinds = (count: number) => leftRangesOf(read(events.slice(0, count)).rewinds)
  assert.deepEqual(rewinds(8), [{ from: 3, to: 5, by: 6 }])
  assert.deepEqual(rewinds(9), [{ from: 6, to: 8, by: 9 }])
})

test('branches: a rewind of files alone leaves nothing of the conversation', () => {
  assert.deepEqual(leftRangesOf(read(numbered([text('one'), complete('m1'), rewound(1, 2, 'machine')])).rewinds), [])
})

test('branches: what was left is one group, the checkpoint of the place apart; open, its rows follow', () => {
  const { rows, rewinds } = read(
    numbered([text('one'), complete('m1'), checkpoint(2), text('two'), complete('m2'), rewound(2, 5)]),
  )
  const ranges = leftRangesOf(rewinds)
  const closed = withGroups(rows, ranges, () => false)
  assert.deepEqual(
    closed.map(({ kind }) => kind),
    ['user', 'text', 'checkpoint', 'left', 'rewound'],
  )
  const open = withGroups(rows, ranges, () => true)
  assert.deepEqual(
    open.map(({ kind }) => kind),
    ['user', 'text', 'checkpoint', 'left', 'user', 'text', 'rewound'],
  )
  assert.equal(open.find((item) => item.kind === 'left')?.messageCount, 1)
})
