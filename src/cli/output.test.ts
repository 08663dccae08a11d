import assert from 'node:assert/strict'
import { test } from 'node:test'
import { columns, printable } from './output.ts'
import { barOf } from './progress.ts'
import { TerminalModes } from './terminal-modes.ts'

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

test('output: text from elsewhere cannot steer the terminal', () => {
  assert.equal(printable('a\x1b[31mb\r\n\tc\u009b'), 'a\\x1b[31mb\\x0d\n\tc\\x9b')
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
