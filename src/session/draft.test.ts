import assert from 'node:assert/strict'
import { test } from 'node:test'
import { draftCharactersMax } from '../protocol/agent.ts'
import { AnswerDraft, joined } from './draft.ts'

const nothing = { number: -1, length: 0 }

test('draft: a follower is told what it has not been told, whenever it comes', () => {
  const draft = new AnswerDraft()
  assert.equal(draft.after(nothing), undefined)
  draft.take({ offset: 0, text: 'The ' })
  const first = draft.after(nothing)!
  assert.deepEqual(first.piece, { offset: 0, text: 'The ' })
  assert.equal(draft.after(first.told), undefined)
  draft.take({ offset: 4, text: 'reef' })
  assert.deepEqual(draft.after(first.told)?.piece, { offset: 4, text: 'reef' })
  assert.deepEqual(draft.after(nothing)?.piece, { offset: 0, text: 'The reef' })
  draft.end()
  assert.equal(draft.after(first.told), undefined)
  draft.take({ offset: 0, text: 'Next' })
  assert.deepEqual(draft.after(first.told)?.piece, { offset: 0, text: 'Next' })
})

test('draft: a piece that does not follow is left out, another begin replaces what is there, and the whole is bounded', () => {
  const draft = new AnswerDraft()
  draft.take({ offset: 7, text: 'late' })
  assert.equal(draft.after(nothing), undefined)
  draft.take({ offset: 0, text: 'abc' })
  draft.take({ offset: 9, text: 'gap' })
  draft.take({ offset: 2, text: 'again' })
  assert.deepEqual(draft.after(nothing)?.piece, { offset: 0, text: 'abc' })
  draft.take({ offset: 0, text: 'x'.repeat(draftCharactersMax - 1) })
  draft.take({ offset: draftCharactersMax - 1, text: 'yz' })
  draft.take({ offset: draftCharactersMax, text: 'more' })
  assert.equal(draft.after(nothing)?.piece.text.length, draftCharactersMax)
})

test('draft: pieces that come at once are one, of the newest answer, without those that do not follow', () => {
  const pieces = [
    { offset: 3, text: 'left out' },
    { offset: 0, text: 'old' },
    { offset: 0, text: 'The ' },
    { offset: 4, text: 'reef' },
    { offset: 99, text: 'gap' },
    { offset: 8, text: ' is' },
  ]
  const one = pieces.reduce<ReturnType<typeof joined> | undefined>((before, piece) => joined(before, piece), undefined)
  assert.deepEqual(one, { offset: 0, text: 'The reef is' })
  const rest = pieces.slice(3).reduce<ReturnType<typeof joined> | undefined>(joined, undefined)
  assert.deepEqual(rest, { offset: 4, text: 'reef is' })
})
