import assert from 'node:assert/strict'
import { test } from 'node:test'
import { LogLines } from './log-lines.ts'

const output = (data: string, step = 1, stream: 'stdout' | 'stderr' = 'stdout') =>
  ({ event: 'build_output', step, stream, data }) as const
const told = (message: string) => ({ event: 'build_log', step: 1, type: 'run', message }) as const

/** The lines once they are drawn. */
async function drawn(log: LogLines) {
  await new Promise<void>((resolve) => log.subscribe(resolve))
  return log.view()
}

async function texts(...parts: readonly string[]): Promise<string[]> {
  const log = new LogLines()
  for (const part of parts) log.take(output(part))
  return (await drawn(log)).lines.map(({ text }) => text)
}

test('lines of a log: parts of lines become lines, with empty ones and one that has not ended', async () => {
  assert.deepEqual(await texts('a\n\nb', 'c\r', '\nd'), ['a', '', 'bc', 'd'])
})

test('lines of a log: what a carriage return has overwritten is left out', async () => {
  assert.deepEqual(await texts('10 %\r20 %', '\r100 %\ndone\n'), ['100 %', 'done'])
})

test('lines of a log: sequences of the terminal are left out, also those that come in parts', async () => {
  assert.deepEqual(await texts('\u001b[1;31mred\u001b[0m\n\u001b]0;title\u0007x\u001b', '[2Jy\u001b(', 'Bz\n'), [
    'red',
    'xyz',
  ])
})

test('lines of a log: a sequence that never ends is given up', async () => {
  const [line = ''] = await texts('\u001b]0;', ...Array.from({ length: 9 }, () => 'x'.repeat(1000)), '\n')
  assert.ok(line.includes('xxx'))
})

test('lines of a log: the output of two steps is not mixed within a line', async () => {
  const log = new LogLines()
  log.take(told('[web 1/2] echo'))
  log.take(output('one ', 1))
  log.take(output('two ', 2, 'stderr'))
  log.take(output('end\n', 1))
  log.take(output('end\n', 2, 'stderr'))
  const { lines } = await drawn(log)
  assert.deepEqual(
    lines.map(({ kind, text }) => `${kind} ${text}`),
    ['told [web 1/2] echo', 'stdout one end', 'stderr two end'],
  )
})

test('lines of a log: a hundred megabytes leave a bounded number of lines and characters', async () => {
  const log = new LogLines()
  const part = `${'y'.repeat(99)}\n`.repeat(1000)
  for (let count = 0; count < 1000; count += 1) log.take(output(part))
  for (let count = 0; count < 100; count += 1) log.take(output('z'.repeat(10_000)))
  const { lines, dropped, widest } = await drawn(log)
  assert.ok(lines.length <= 10_000)
  assert.ok(dropped >= 990_000)
  assert.equal(widest, 2000)
  assert.equal(lines.at(-1)?.cut, 998_000)
})
