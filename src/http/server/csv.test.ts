import assert from 'node:assert/strict'
import { test } from 'node:test'
import { csvOf } from './csv.ts'

test('csv: cells with commas, quotes and lines are quoted, and formulas are none', () => {
  const text = csvOf([
    { name: 'a,b', note: 'say "x"', tags: { a: '1' }, sum: -1.5 },
    { name: '=1+1', note: 'two\nlines', tags: {}, sum: 0 },
    { name: '@x', note: null, tags: {}, sum: 2 },
  ])
  assert.equal(
    text,
    'name,note,tags,sum\r\n"a,b","say ""x""","{""a"":""1""}",-1.5\r\n\'=1+1,"two\nlines",{},0\r\n\'@x,,{},2\r\n',
  )
})
