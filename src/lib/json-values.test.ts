import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { parseJson } from './json-values.ts'

/** Long enough to be read in slices. */
const blanks = ' '.repeat(64 * 1024)
const parsed = (text: string) => parseJson(Buffer.from(blanks + text))

test('values are those of JSON.parse, of every kind and at every depth', async () => {
  for (const text of [
    '{}',
    ' { "a" : [ ] , "b":{},"c":[[],[{}],""],"":null} ',
    '{"a":1,"b":-0,"c":1.5e-3,"d":1E+400,"e":true,"f":false,"g":"\\u00e9\\n\\"\\\\\\/ é 😀","h":"\\ud83d\\ude00","i":"\\ud83d"}',
    '[]',
    ' [1,[],{"a":1}] ',
    ' -1.5 ',
    '""',
    'null',
    `"${'é'.repeat(300_000)}"`,
    '{"a":1,"a":{"b":2},"__proto__":{"x":1},"c":{"__proto__":3,"constructor":4}}',
    JSON.stringify({
      list: Array.from({ length: 20_000 }, (_, index) => ({ [`name ${index}`]: [index, `${index}`, null] })),
    }),
  ]) {
    assert.deepEqual(await parsed(text), JSON.parse(text))
    assert.equal(JSON.stringify(await parsed(text)), JSON.stringify(JSON.parse(text)))
  }
})

const values = fc.oneof(fc.dictionary(fc.string({ unit: 'binary' }), fc.jsonValue()), fc.jsonValue())

test('any value is read as JSON.parse reads it', async () => {
  const property = fc.asyncProperty(values, async (value) => {
    const text = JSON.stringify(value)
    assert.equal(JSON.stringify(await parsed(text)), JSON.stringify(JSON.parse(text)))
  })
  await fc.assert(property, { numRuns: 2000 })
})

test('a long text is whole, wherever its parts end', async () => {
  const around = 256 * 1024
  for (const piece of ['x', 'é', '😀', '\\n', '\\\\', '\\u00e9', '\\ud83d\\ude00', '\\\\\\"', 'a\\\\\\\\u0041']) {
    for (let shift = 0; shift < 13; shift += 1) {
      const inner = 'y'.repeat(around - 30 + shift) + piece.repeat(40) + 'z'.repeat(around)
      const text = `{"a":["${inner}",{"b":"${inner}"}],"__proto__":"${inner}"}`
      assert.deepEqual(await parsed(text), JSON.parse(text), `${piece}, ${shift}`)
    }
  }
})

test('of fields with one name the last one counts, also where an earlier one is long', async () => {
  const long = 'x'.repeat(300 * 1024)
  for (const text of [`{"a":"${long}","a":1}`, `{"a":1,"a":"${long}"}`, `{"a":"${long}","a":"${long}y"}`]) {
    assert.deepEqual(await parsed(text), JSON.parse(text))
  }
})

test('a text of backslashes alone is whole', async () => {
  const text = `{"a":"${'\\\\'.repeat(400 * 1024)}"}`
  assert.deepEqual(await parsed(text), JSON.parse(text))
})

test('names and numbers that would be decoded for long are refused', async () => {
  for (const text of [
    `{"${'n'.repeat(70_000)}":1}`,
    `{"a":{"${'n'.repeat(70_000)}":1}}`,
    `{"a":${'1'.repeat(20_000)}}`,
  ]) {
    await assert.rejects(parsed(text), { code: 'invalid_request' })
  }
})

test('what is no JSON is refused', async () => {
  for (const text of [
    '',
    '[1]]',
    '1 2',
    '"a"b',
    'nul',
    '{"a":}',
    '{"a":1,}',
    '{"a" 1}',
    '{"a":"\u0001"}',
    '{"a":01}',
    '{"a":"\\x"}',
    '{} {}',
    '{"a":"b',
  ]) {
    await assert.rejects(parsed(text), { code: 'invalid_request' }, text)
    await assert.rejects(parseJson(Buffer.from(text)), { code: 'invalid_request' }, text)
  }
  await assert.rejects(parseJson(Buffer.from('{"a":"\xff"}', 'latin1')), { code: 'invalid_request' })
})

test('other work goes on between the slices', async () => {
  let turns = 0
  const turning = setInterval(() => (turns += 1), 0)
  await parsed(
    JSON.stringify({
      text: 'x'.repeat(8 * 1024 * 1024),
      list: Array.from({ length: 50_000 }, (_, index) => ({ [index]: index })),
    }),
  )
  clearInterval(turning)
  assert.ok(turns > 10, String(turns))
})

test('a long text keeps its characters wherever a part ends behind an escape', async () => {
  for (let shift = 0; shift < 8; shift++) {
    const text = 'x'.repeat(shift) + '\\b😀'.repeat(60_000)
    const json = `{"a":"${text}"}`
    assert.ok(((await parsed(json)) as { a: string }).a === (JSON.parse(json) as { a: string }).a, String(shift))
  }
})
