import assert from 'node:assert/strict'
import { test } from 'node:test'
import { shownName } from './shown-name.ts'

test('shown name: usual names are as they are', () => {
  for (const name of ['a.txt', 'with space', 'é e\u0301 日本 שלום 👍', '<img src=x onerror=alert(1)>', "it's", '\\xff'])
    assert.equal(shownName(name), name)
})

test('shown name: what cannot be seen is, on one line', () => {
  assert.equal(shownName('new\nline\r\t'), 'new\\nline\\r\\t')
  assert.equal(shownName('rtl\u202etxt.exe'), 'rtl\\u{202e}txt.exe')
  assert.equal(shownName('\x1b[31m\x7f\x9b'), '\\x1b[31m\\x7f\\x9b')
  assert.equal(shownName(' a  b '), '␣a  b␣')
  assert.equal(shownName('a\u00a0\u200b\u2028\ufeff\u3164b'), 'a\\xa0\\u{200b}\\u{2028}\\u{feff}\\u{3164}b')
  assert.equal(shownName('\ud800'), '\\u{d800}')
})
