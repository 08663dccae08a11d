import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { AnswerScanner, framing } from './answer-scanner.ts'

function written(value: unknown): number {
  if (typeof value === 'string') return Buffer.byteLength(value)
  if (typeof value !== 'object' || value === null) return 0
  const parts = Object.entries(value).filter(([name]) => Array.isArray(value) || !framing.has(name))
  return parts.reduce((sum, [, part]) => sum + written(part), 0)
}

function scanned(json: string, step: number, textField?: string) {
  const scanner = new AnswerScanner(textField)
  const bytes = Buffer.from(json)
  for (let at = 0; at < bytes.length; at += step) scanner.push(bytes.subarray(at, at + step))
  return scanner.end()
}

const names = fc.constantFrom('type', 'usage', 'delta', 'choices', 'stop_reason', 'finish_reason', 'message', 'x')
const objects = fc.letrec<{ value: unknown; object: Record<string, unknown> }>((tie) => ({
  value: fc.oneof({ depthSize: 'small' }, fc.jsonValue({ maxDepth: 0 }), tie('object'), fc.array(tie('value'))),
  object: fc.dictionary(names, tie('value')),
})).object

test('answer scanner: it finds what a parser would find, wherever its chunks end', () => {
  fc.assert(
    fc.property(objects, fc.constantFrom('', ' ', '\t'), fc.nat(20), (made, space, step) => {
      const json = JSON.stringify(made, null, space)
      const object = JSON.parse(json) as Record<string, unknown>
      const found = scanned(json, step + 1)
      assert.ok(found, json)
      assert.equal(found.textBytes, written(object), json)
      const ofField = scanned(json, step + 1, 'delta')
      assert.equal(ofField?.textBytes, written(object['delta']), json)
      assert.deepEqual(found.value['usage'], object['usage'], json)
      assert.deepEqual(found.value['type'], object['type'], json)
      const { message, choices } = object as { message?: { usage?: unknown }; choices?: { finish_reason?: unknown }[] }
      const isRecord = typeof message === 'object' && message !== null && !Array.isArray(message)
      const inner = isRecord && Object.hasOwn(message, 'usage') ? { usage: message.usage } : undefined
      assert.deepEqual(found.value['message'], inner, json)
      if (!Array.isArray(choices)) return
      const ended = choices.some(
        (choice) => !Array.isArray(choice) && typeof (choice as typeof choice | null)?.finish_reason === 'string',
      )
      const kept = found.value['choices'] as object[]
      assert.deepEqual([kept.length > 0, 'finish_reason' in (kept[0] ?? {})], [choices.length > 0, ended], json)
    }),
    { numRuns: 2000 },
  )
})

test('answer scanner: escapes count as the bytes that they stand for', () => {
  for (const text of ['a"\\/\b\f\n\r\t', '\u0001\u007f', 'é', '€', '😀', '\u{10ffff}']) {
    const escaped = text.replaceAll(/[^]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
    for (const json of [JSON.stringify({ a: text }), `{"a":"${escaped}"}`]) {
      assert.equal(scanned(json, 1)?.textBytes, Buffer.byteLength(text), json)
    }
  }
})

test('answer scanner: what is no whole object is told, and what would be kept is bounded', () => {
  for (const json of [
    '',
    '[]',
    '1',
    '"a"',
    '{',
    '{"a":1',
    '{"a":"b',
    '{"a":[}',
    '{}{}',
    '}',
    '{"a":[]]',
    '['.repeat(5000),
  ])
    assert.equal(scanned(json, 3), undefined, json)
  assert.equal(scanned(`{"a":${'['.repeat(5000)}`, 100), undefined)
  const large = scanned(
    JSON.stringify({ usage: { iterations: Array.from({ length: 100_000 }, () => ({})) }, type: 'a' }),
    4096,
  )
  assert.deepEqual(large?.value, { type: 'a' })
})
