import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { TurnInfo } from '../../../sdk/src/index.ts'
import { widthOf } from '../output.ts'
import { timelineText } from './timeline-text.ts'

process.env['TZ'] = 'UTC'
const nowMs = Date.parse('2026-05-01T12:00:00Z')
const tokens = { inputTokens: 12_000, cacheReadTokens: 0, cacheWriteTokens: 0, outputTokens: 100 }

function turn(id: number, parent: number | null, more: Partial<TurnInfo> = {}): TurnInfo {
  const at = new Date(Date.parse('2026-05-01T10:30:00Z') + id * 60_000).toISOString()
  return {
    messageId: `msg_${id}`,
    message: `message ${id}`,
    parentMessageId: parent === null ? null : `msg_${parent}`,
    ...{ firstEvent: 10 * id - 9, lastEvent: 10 * id, startedAt: at, endedAt: at, durationMs: 1000, result: 'success' },
    checkpoint: { id: `cp-${id}`, kind: 'full', sizeBytes: 1, durationMs: 1, afterEvent: 10 * id, createdAt: at },
    files: { files: [], addedLines: 0, removedLines: 0, isCut: false },
    ...{ usage: tokens, preview: 'ready', left: false, forks: [], forksCut: false },
    ...more,
  }
}

const fork = (id: string, more: object = {}) => ({
  ...{ id, status: 'running', activity: 'idle', createdAt: '2026-05-01T11:00:00Z', ...more },
})
const file = { path: 'a', change: 'modified', isBinary: false, addedLines: 3, removedLines: 1 } as const
const changed = { files: [file], addedLines: 120, removedLines: 3, isCut: false }
const left = { left: true, leftEvent: 51 }

const whole = [
  turn(1, null, { files: changed, usage: { ...tokens, totalCostUsd: 0.0312 }, message: 'A page about\ncoral reefs' }),
  turn(2, 1, {
    forks: [fork('session_a', { name: 'reefs-2' }), fork('session_b', { status: 'ended', activity: 'ended' })],
  } as Partial<TurnInfo>),
  turn(3, 2, { ...left, result: 'error_during_execution', checkpoint: null }),
  turn(4, 3, left),
  turn(5, 3, { ...left, usage: { ...tokens, inputTokens: 0 } }),
  turn(6, 2, { checkpoint: { ...turn(6, 2).checkpoint!, kind: 'disk_only' }, forksCut: true }),
  turn(7, 6, { lastEvent: null, endedAt: null, result: null, checkpoint: null, files: null }),
].toReversed()

test('timeline: a line for each turn, oldest first, with forks and left turns as branches', () => {
  assert.equal(
    timelineText(whole, { nowMs, widthMax: 80 }),
    [
      '◆ 10  10:31  A page about coral reefs     +120  -3  12.1k tok  $0.031',
      '◆ 20  10:32  message 2                              12.1k tok',
      '├─· 30  10:33  message 3 (left) (failed)            12.1k tok',
      '│ ├─◆ 40  10:34  message 4 (left)                   12.1k tok',
      '│ ◆ 50  10:35  message 5                              100 tok',
      '├─● fork reefs-2 (idle)',
      '├─○ fork session_b (ended)',
      '◇ 60  10:36  message 6                              12.1k tok',
      '├─… and more',
      '·     10:37  message 7 (runs)                       12.1k tok',
    ].join('\n'),
  )
})

test('timeline: in colour it says the same, and what a rewind has left is dim', () => {
  const colored = timelineText(whole, { nowMs, hasColors: true })
  // eslint-disable-next-line no-control-regex
  assert.equal(colored.replaceAll(/\u001b\[\d*m/g, ''), timelineText(whole, { nowMs }))
  assert.ok(colored.includes('\n\u001b[2m├─· 30  10:33  message 3 (left) (failed)'))
  assert.ok(colored.includes('\u001b[32m+120\u001b[0m') && colored.includes('\u001b[31m-3\u001b[0m'))
})

test('timeline: for programs times are exact, and messages have their ids', () => {
  const lines = timelineText(whole, { isExact: true }).split('\n')
  assert.match(lines[0] ?? '', /^◆ 10 {2}2026-05-01T10:31:00\.000Z {2}A page .* {2}msg_1$/)
  assert.match(timelineText([turn(1, null)], { nowMs: nowMs + 86_400_000 }), /^◆ 10 {2}05-01 10:31 {2}message 1/)
  assert.equal(timelineText([]), '')
})

test('timeline: the last branch closes, and a page that begins in the midst of branches has them side by side', () => {
  const turns = [
    turn(8, 7, left),
    turn(6, 1),
    turn(7, 6, {
      ...left,
      forks: [fork('session_a'), fork('session_b', { archivedReason: 'x' })],
    } as Partial<TurnInfo>),
  ]
  assert.deepEqual(
    timelineText(turns.toReversed(), { nowMs })
      .split('\n')
      .map((line) => line.replace(/ +\d.* tok$/, '')),
    ['◆', '└─◆', '  ├─● fork session_a (idle)', '  ├─● fork session_b (idle, archived)', '  ◆'],
  )
  const cutOff = timelineText([turn(9, 6), turn(5, 3, left)], { nowMs }).split('\n')
  assert.deepEqual(
    cutOff.map((line) => line.split(/ {2,}/)[2]),
    ['message 5 (left)', 'message 9'],
  )
})

test('timeline: a line keeps to the terminal, whatever was said and however deep', () => {
  const usage = { ...tokens, inputTokens: 123_456_789, totalCostUsd: 1234.5 }
  const much = { usage, files: { ...changed, addedLines: 99_999, removedLines: 99_999 }, message: '界'.repeat(900) }
  const deep = [turn(0, null, much)]
  for (let id = 1; id < 300; id++)
    deep.push(turn(id, id - 1, { ...much, ...left }), turn(1000 + id, id - 1, { ...left }))
  for (const widthMax of [60, 80, 120]) {
    const lines = timelineText(deep.toReversed(), { nowMs, widthMax }).split('\n')
    assert.equal(lines.length, deep.length)
    for (const line of lines) assert.ok(widthOf(line) <= widthMax, `${widthOf(line)}: ${line}`)
  }
})

test('timeline: what stands in messages and names does not steer the terminal', () => {
  const message = 'a\u001b[2J\r\nb\u202e\u0000\u009b31m'
  const turns = [turn(1, null, { message, forks: [fork('session_a', { name: message })] } as Partial<TurnInfo>)]
  for (const text of [timelineText(turns, { nowMs, widthMax: 80 }), timelineText(turns, { isExact: true })]) {
    assert.equal(text.split('\n').length, 2)
    // eslint-disable-next-line no-control-regex
    assert.doesNotMatch(text, /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e]/)
  }
})
