import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Tail } from './tail.ts'

const bytes = (text: string) => new TextEncoder().encode(text)

test('tail: it has the end of what came, in pieces of any size, and says when that is not all', () => {
  const text = Array.from({ length: 400 }, (_, index) => `${index} `).join('')
  for (const size of [1, 3, 9, 10, 11, 20, 21, 1000, text.length]) {
    const tail = new Tail(10)
    for (let at = 0; at < text.length; at += size) {
      const end = Math.min(text.length, at + size)
      tail.add(bytes(text.slice(at, end)))
      assert.deepEqual([tail.text, tail.isCut], [text.slice(Math.max(0, end - 10), end), end > 10], `${size} at ${at}`)
    }
  }
  const none = new Tail(10)
  assert.deepEqual([none.text, none.isCut], ['', false])
})
