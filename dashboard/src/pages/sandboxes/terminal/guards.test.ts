import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isAnswer, pasteText, safeLink } from './guards.ts'

test('guards: links lead to web pages alone', () => {
  assert.equal(safeLink('https://example.com/a b'), 'https://example.com/a%20b')
  for (const address of ['javascript:alert(1)', 'data:text/html,x', 'file:///etc/passwd', '//example.com', 'x', ''])
    assert.equal(safeLink(address), undefined, address)
})

test('guards: answers of a screen are told from keys', () => {
  const answers = [
    '\x1b[?1;2c',
    '\x1b[>0;276;0c',
    '\x1b[12;40R',
    '\x1b[0n',
    '\x1b[?2026;2$y',
    '\x1b]11;rgb:ff/ff/ff\x1b\\',
  ]
  for (const answer of answers) assert.ok(isAnswer(answer), JSON.stringify(answer))
  for (const key of ['a', '\r', '\x1b', '\x1b[A', '\x1bOP', '\x1b[15~', '\x1b[200~text\x1b[201~', '\x1b[1;5C'])
    assert.ok(!isAnswer(key), JSON.stringify(key))
})

test('guards: what is pasted cannot leave its brackets', () => {
  assert.equal(pasteText('one\x1b[201~;rm -rf\r\n\ttwo\x9b201~\x03é'), 'one[201~;rm -rf\r\n\ttwo201~é')
})
