import assert from 'node:assert/strict'
import { test } from 'node:test'
import { excerptOf } from './page/excerpt.ts'

const shown = (text: string, words: string[]) =>
  excerptOf(text, words)
    .map((part) => (part.isMatch ? `[${part.text}]` : part.text))
    .join('')

test('docs search: an excerpt shows the words of the query where they are', () => {
  assert.equal(
    shown('A repeat with the same key has one effect.', ['key', 'repeat']),
    'A [repeat] with the same [key] has one effect.',
  )
  assert.equal(shown('Monkeys and keys', ['key']), 'Monkeys and [key]s', 'words that begin so')
  const long = `${'before '.repeat(40)}Idempotency-Key ${'after '.repeat(40)}`
  const excerpt = shown(long, ['idempotency'])
  assert.match(excerpt, /^… (?:before )+\[Idempotency\]-Key (?:after ?)+ …$/)
  assert.ok(excerpt.length < 200, excerpt)
})

test('docs search: an excerpt without a match is the start of the text, and one without spaces is cut', () => {
  assert.equal(shown('Short.', ['other']), 'Short.')
  assert.equal(shown('Short.', []), 'Short.')
  assert.equal(shown('', ['x']), '')
  assert.equal(shown('x'.repeat(500), ['y']), `${'x'.repeat(160)} …`)
})
