import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { draftCharactersMax, draftPieceCharactersMax } from '../protocol/agent.ts'
import { Draft } from './draft.ts'
import { charactersHeldBack, concealSecret } from './output.ts'

function draftOf(t: TestContext, heldBack?: (text: string) => number) {
  t.mock.timers.enable({ apis: ['setTimeout'] })
  const pieces: [number, string][] = []
  const draft = new Draft(({ offset, text }) => pieces.push([offset, text]), heldBack)
  return { draft, pieces, later: () => t.mock.timers.tick(50) }
}

test('draft: what was written in a moment is one piece, and each goes on where the one before ended', (t) => {
  const { draft, pieces, later } = draftOf(t)
  for (const text of ['The ', 'reef ', 'is']) draft.add(text)
  assert.deepEqual(pieces, [])
  later()
  later()
  draft.add(' alive')
  later()
  draft.breakLine()
  draft.add('Yes')
  later()
  assert.deepEqual(pieces, [
    [0, 'The reef is'],
    [11, ' alive'],
    [17, '\n\nYes'],
  ])
})

test('draft: another answer begins at 0, and what waits of the one before is left out', (t) => {
  const { draft, pieces, later } = draftOf(t)
  draft.add('one')
  later()
  draft.add(' more')
  draft.restart()
  later()
  draft.breakLine()
  draft.add('two')
  later()
  assert.deepEqual(pieces, [
    [0, 'one'],
    [0, 'two'],
  ])
})

test('draft: no piece ends inside of a character, and long ones are parts within a bound', (t) => {
  const { draft, pieces, later } = draftOf(t)
  draft.add('a\ud83d')
  later()
  draft.add('\udc1a')
  later()
  assert.deepEqual(pieces, [
    [0, 'a'],
    [1, '🐚'],
  ])
  draft.restart()
  pieces.length = 0
  draft.add('x'.repeat(draftCharactersMax + 1000))
  for (let count = 0; count < 20; count += 1) later()
  assert.ok(pieces.every(([, text]) => text.length <= draftPieceCharactersMax))
  assert.equal(pieces.map(([, text]) => text).join('').length, draftCharactersMax)
})

test('draft: what may be the beginning of a secret waits until it is none', (t) => {
  const reveal = concealSecret('sekrit-123')
  t.after(reveal)
  const { draft, pieces, later } = draftOf(t, charactersHeldBack)
  draft.add('It is sekrit')
  later()
  draft.add('-12')
  later()
  assert.deepEqual(pieces, [[0, 'It is ']])
  draft.add('3.')
  later()
  assert.deepEqual(pieces.at(-1), [6, 'sekrit-123.'], 'in one line, in which it is concealed')
  draft.add(' A sekret')
  later()
  assert.deepEqual(pieces.at(-1), [17, ' A sekret'])
})
