import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isServiceError } from '../../errors.ts'
import { processorTime } from '../../lib/testing/processor-time.ts'
import { evaluated } from './testing/evaluated.ts'

const names = (count: number, prefix = 'a') => Array.from({ length: count }, (_, at) => `${prefix}${at}`)

/** A mebibyte of each. What is read twice, or copied for each word, would take minutes. */
const texts: Record<string, string> = {
  ports: `FROM a\nEXPOSE ${'80 '.repeat(300_000)}`,
  ranges: `FROM a\nEXPOSE ${'1-9000 '.repeat(5000)}`,
  'lists of ports': `FROM a\n${'EXPOSE 1-16384\n'.repeat(990)}`,
  pairs: `FROM a\nENV ${'a=1 '.repeat(250_000)}`,
  arguments: `FROM a\n${`ARG ${'a=$a '.repeat(200)}\n`.repeat(990)}`,
  'arguments before FROM': `${`ARG ${names(100).join('=1 ')}\n`.repeat(990)}FROM a`,
  environments: `FROM a\nENV ${names(900).join('=1 ')}=1\n${'ENV a1=$a2\nRUN x\n'.repeat(490)}`,
  sources: `FROM a\nCOPY ${'a '.repeat(500_000)} /x/`,
  mounts: `FROM a\n${`RUN ${'--mount=from=x,target=/a '.repeat(40)} x\n`.repeat(990)}`,
  heredocs: `FROM a\nCOPY ${names(50_000, '<<').join(' ')} /x/\n${names(50_000, '').join('\n')}`,
  quotes: `FROM a\nENV A=${'""'.repeat(500_000)}`,
  dollars: `FROM a\nENV A=${'$'.repeat(1_000_000)}`,
  lists: `FROM a\nRUN ${'['.repeat(1_000_000)}`,
  continuations: `FROM a\nRUN x${' \\\n'.repeat(330_000)}`,
  blanks: `FROM a\nRUN x${' '.repeat(1_000_000)}x`,
  directives: `#${' '.repeat(1_000_000)}x\nFROM a`,
  tabs: `FROM a\nCOPY <<-E /x\n${'\t'.repeat(1_000_000)}\nE`,
  shifts: `FROM a\nRUN ${'<< '.repeat(340_000)}`,
  durations: `FROM a\nHEALTHCHECK --interval=${'1s'.repeat(500_000)} CMD x`,
  folders: `FROM a\nWORKDIR ${'../'.repeat(340_000)}`,
}

test('a text: its cost grows with its length alone', () => {
  const usedMs = processorTime()
  for (const [name, text] of Object.entries(texts)) {
    try {
      evaluated(text)
    } catch (error) {
      assert.ok(isServiceError(error, 'invalid_request'), name)
    }
  }
  assert.ok(usedMs() < 20_000)
})
