import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ScreenText } from './screen-text.ts'

const bytes = (text: string) => new TextEncoder().encode(text)

test('screen text: text is as it was, in pieces of any size', () => {
  const text = 'plain \u001b[1mbold\u001b[0m é e\u0301 日本 👩‍👩‍👧 ❤️\r\n'
  for (let size = 1; size < 8; size += 1) {
    const screen = new ScreenText()
    let shown = ''
    const all = bytes(text)
    for (let at = 0; at < all.length; at += size) shown += screen.take(all.subarray(at, at + size))
    assert.equal(shown, text, `${size}`)
  }
})

test('screen text: marks on one character are bounded, also over pieces', () => {
  const run = 'z' + '\u0301'.repeat(100_000) + '|a\u0301'
  for (const size of [1, 2, 3, 31, 32, 33, 4096, 1 << 20]) {
    const screen = new ScreenText()
    let shown = ''
    const all = bytes(run)
    for (let at = 0; at < all.length; at += size) shown += screen.take(all.subarray(at, at + size))
    assert.equal(shown, `z${'\u0301'.repeat(16)}|a\u0301`, `${size}`)
  }
})

test('screen text: marks of direction are left out, and bytes that are no UTF-8 are told', () => {
  const screen = new ScreenText()
  assert.equal(screen.take(bytes('a\u202eb\u2066c\u200fd')), 'abcd')
  assert.equal(screen.take(Uint8Array.of(0x61, 0xff, 0x62)), 'a\ufffdb')
})
