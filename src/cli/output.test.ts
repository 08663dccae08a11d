import assert from 'node:assert/strict'
import { test } from 'node:test'
import { columns, jsonText, printable } from './output.ts'
import { barOf } from './progress.ts'
import { TerminalModes } from './terminal-modes.ts'
import { durationText, relativeTime, sizeText } from './units.ts'

test('output: columns are aligned, each row on one line, empty cells marked', () => {
  const rows = [
    ['a', 1, null],
    ['longer', 'two\nlines', 'x'],
  ]
  assert.equal(
    columns(['ID', 'N', 'LAST'], rows),
    'ID      N          LAST\na       1          -\nlonger  two lines  x',
  )
})

test('output: the widest columns are cut to the terminal, the first never, and characters count by the cells they take', () => {
  const row = ['sb-0123456789abcdef', 'running', 'x'.repeat(40), 'y'.repeat(30)]
  const [, line = ''] = columns(['ID', 'STATUS', 'TITLE', 'USER'], [row], 60).split('\n')
  assert.equal(line, `sb-0123456789abcdef  running  ${'x'.repeat(13)}…  ${'y'.repeat(13)}…`)
  assert.equal(
    columns(['ID', 'A'], [['a'.repeat(50), 'b'.repeat(20)]], 40).split('\n')[1],
    `${'a'.repeat(50)}  bbbbbbb…`,
  )
  assert.equal(
    columns(
      ['A', 'B'],
      [
        ['界', 'x'],
        ['abc', 'y'],
      ],
    ),
    'A    B\n界   x\nabc  y',
  )
  assert.equal(columns(['A', 'B'], [['a', '界'.repeat(20)]], 12).split('\n')[1], 'a  界界界界…')
})

test('output: times and sizes have units', () => {
  const now = Date.parse('2026-05-01T12:00:00Z')
  const texts: [string, string][] = [
    ['2026-05-01T12:00:00Z', 'now'],
    ['2026-05-01T11:59:55Z', '5 s ago'],
    ['2026-05-01T11:56:10Z', '3 min ago'],
    ['2026-04-30T00:00:00Z', '36 h ago'],
    ['2026-04-20T12:00:00Z', '11 d ago'],
    ['2026-01-02T03:04:05Z', '2026-01-02'],
    ['2026-05-01T14:00:01Z', 'in 2 h'],
    ['no time', 'no time'],
  ]
  for (const [time, text] of texts) assert.equal(relativeTime(time, now), text)
  assert.deepEqual([sizeText(999), sizeText(2_500_000), sizeText(120_000_000)], ['999 B', '2.5 MB', '120 MB'])
  assert.deepEqual([durationText(0), durationText(300), durationText(86_400)], ['0 s', '5 min', '24 h'])
})

test('output: JSON for a terminal has no control characters, and means the same', () => {
  const value = { text: 'a\u001b[2J\u009b31m\u007f\u202eb\n' }
  const text = jsonText(value)
  assert.match(text, /^[ -~]+$/)
  assert.deepEqual(JSON.parse(text), value)
})

test('output: text from elsewhere cannot steer the terminal', () => {
  assert.equal(printable('a\x1b[31mb\r\n\tc\u009b'), 'a\\x1b[31mb\\x0d\n\tc\\x9b')
  assert.equal(printable('a\u202eb'), 'a\\u202eb')
})

test('output: a bar has the share and the sizes', () => {
  assert.equal(barOf('f', 500, 1000), `f  ${'#'.repeat(15)}${'.'.repeat(15)}  50 %  500 B of 1.0 kB`)
  assert.equal(barOf('f', 2_500_000, undefined), 'f  2.5 MB')
})

test('terminal modes: those that were changed are put back, over pieces', () => {
  const modes = new TerminalModes()
  assert.equal(modes.reset(), '')
  modes.see(Buffer.from('a\x1b[?10'))
  modes.see(Buffer.from('49;1h\x1b[?25l\x1b[?2004h\x1b[?2004l'))
  assert.equal(modes.reset(), '\x1b[?1049l\x1b[?1l\x1b[?25h\x1b[0m')
})
