import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { BuildEvent } from '../../sdk/src/index.ts'
import { buildTeller } from './build.ts'

function told(...events: BuildEvent[]): string {
  let text = ''
  const add = (piece: string) => {
    text += piece
  }
  const tell = buildTeller({ line: (line) => add(`${line}\n`), output: add })
  for (const event of events) tell(event)
  return text
}

const log = (step: number, message: string): BuildEvent => ({ event: 'build_log', step, type: 'run', message })
const out = (step: number, data: string, stream: 'stdout' | 'stderr' = 'stdout'): BuildEvent => ({
  ...{ event: 'build_output', step, stream, data },
})

test('build teller: the output of one stage is told as it comes', () => {
  assert.equal(told(log(1, '[1/2] RUN make'), out(1, '10 %\r'), out(1, '20 %')), '[1/2] RUN make\n10 %\r20 %')
  assert.equal(told(out(1, 'a'), log(1, 'done'), out(2, 'b\n'), log(2, 'done')), 'a\ndone\nb\ndone\n')
})

test('build teller: lines of stages that run side by side are whole and say whose they are', () => {
  const text = told(
    ...[
      log(1, '[web 1/2] RUN a'),
      log(3, '[job 1/1] RUN b'),
      out(1, 'on'),
      out(3, 'two\nthr'),
      out(1, 'e\n\nx', 'stdout'),
    ],
    ...[out(1, 'error', 'stderr'), log(1, '[web 1/2] done'), out(3, 'ee\n')],
  )
  const lines = [
    ...['[web 1/2] RUN a', '[job 1/1] RUN b', '[job 1/1] two', '[web 1/2] one', '[web 1/2] '],
    ...['[web 1/2] x', '[web 1/2] error', '[web 1/2] done', '[job 1/1] three', ''],
  ]
  assert.equal(text, lines.join('\n'))
})

test('build teller: a line without an end is not kept for ever', () => {
  const events = Array.from({ length: 10 }, () => out(1, '.'.repeat(3000)))
  assert.equal(told(log(1, '[web 1/2] RUN a'), ...events).split('\n').length, 1 + 3 + 1)
})
