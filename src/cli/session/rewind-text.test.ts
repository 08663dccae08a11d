import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { RewindPreview } from '../../../sdk/src/index.ts'
import { widthOf } from '../output.ts'
import { previewText } from './rewind-text.ts'

const file = { path: 'index.html', change: 'modified', isBinary: false, addedLines: 3, removedLines: 1 } as const
const preview: RewindPreview = {
  checkpointId: 'cp-1',
  toEvent: 12,
  files: { files: [file], addedLines: 3, removedLines: 1, isCut: false },
  turnsLeft: ['msg_3', 'msg_2'],
  tokensLeft: 12_100,
  queuedMessages: 2,
  interrupts: true,
  processes: 'restored',
  processesEnded: ['node server.js', 'sh', 'a', 'b', 'c', 'd', 'e'],
  restoredPrompt: 'Make it blue',
}

test('rewind preview: what is left, interrupted and ended, and the files', () => {
  assert.equal(
    previewText(preview),
    [
      'goes to      event 12, cp-1',
      'leaves       2 turns, 12.1k tok',
      'interrupts   the turn that runs',
      'takes back   2 messages that wait',
      'processes    those of that time run again',
      'ends         node server.js, sh, a, b, c, 2 more',
      'prompt       Make it blue',
      ' index.html | 4 +++-',
      ' 1 file changed, 3 insertions(+), 1 deletion(-)',
    ].join('\n'),
  )
})

test('rewind preview: what does not change is not said, and what is not known is', () => {
  const quiet = { turnsLeft: [], queuedMessages: 0, interrupts: false, processesEnded: null, restoredPrompt: null }
  const kept = previewText({ ...preview, ...quiet, files: null, processes: 'kept' })
  assert.match(kept, /^goes to .*\nleaves +no turn\nprocesses +those of the present run on\nfiles +as they are$/)
  assert.match(previewText({ ...preview, ...quiet, files: null, processes: 'ended' }), /\nfiles +not known$/)
})

test('rewind preview: a line keeps to the terminal, and nothing steers it', () => {
  const evil = `a\u001b[2J\r\nb${'c'.repeat(200)}`
  const files = { files: [{ ...file, path: evil }], addedLines: 3, removedLines: 1, isCut: false }
  const text = previewText({ ...preview, files, restoredPrompt: evil, processesEnded: [evil] }, { widthMax: 80 })
  // eslint-disable-next-line no-control-regex
  assert.doesNotMatch(text, /[\u0000-\u0009\u000b-\u001f]/)
  for (const line of text.split('\n')) assert.ok(widthOf(line) <= 80, line)
})
