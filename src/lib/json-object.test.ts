import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { isServiceError } from '../errors.ts'
import { isRecord } from '../lib/json.ts'
import { readJsonObject, type JsonObject } from './json-object.ts'

/** What is found, or why nothing is. */
async function read(text: string | Buffer): Promise<JsonObject | string> {
  try {
    return await readJsonObject(Buffer.from(text))
  } catch (error) {
    if (!isServiceError(error, 'invalid_request')) throw error
    return error.message
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

async function assertLikeJsonParse(text: string): Promise<void> {
  const value = parsed(text)
  const object = await read(text)
  assert.equal(typeof object !== 'string', isRecord(value), text)
  if (typeof object === 'string') return
  const bytes = Buffer.from(text)
  const fields = object.fields.map(({ name, start, end }) => [name, JSON.parse(bytes.toString('utf8', start, end))])
  assert.deepEqual(Object.fromEntries(fields), value)
  // Repeats count too.
  assert.ok(object.valueCount >= valueCount(value))
  assert.equal(bytes.toString('utf8', object.closedAt).trim(), '}')
}

function valueCount(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 1
  return Object.values(value).reduce((total: number, inner) => total + valueCount(inner), 1)
}

test('json object: every object that JSON.parse accepts is accepted, with its fields', () => {
  const object = fc.dictionary(fc.string({ unit: 'binary' }), fc.jsonValue({ maxDepth: 4 }))
  return fc.assert(
    fc.asyncProperty(object, fc.constantFrom('', ' ', '\n\t'), async (value, space) => {
      const text = space + JSON.stringify(value, null, space) + space
      await assertLikeJsonParse(text)
      assert.equal((await readJsonObject(Buffer.from(text))).valueCount, valueCount(value))
    }),
  )
})

test('json object: JSON with a few wrong characters is refused as by JSON.parse', () => {
  const characters = fc.constantFrom(
    ...'{}[]:,"\\ut0e1fn-+.E aA\0\n\u00a0\ufeff/*é😀'.split(''),
    'true',
    'null',
    '\\u12',
    '/**/',
  )
  return fc.assert(
    fc.asyncProperty(
      fc.dictionary(fc.string({ maxLength: 3 }), fc.jsonValue({ maxDepth: 2 })),
      fc.array(fc.tuple(fc.nat(), fc.nat({ max: 2 }), characters), { minLength: 1, maxLength: 3 }),
      async (value, edits) => {
        let text = JSON.stringify(value)
        for (const [place, removed, added] of edits) {
          const at = place % (text.length + 1)
          text = text.slice(0, at) + added + text.slice(at + removed)
        }
        await assertLikeJsonParse(text.toWellFormed())
      },
    ),
    { numRuns: 5000 },
  )
})

test('json object: the details of the grammar are those of JSON.parse', async () => {
  const values = `0 -0 01 - 1. .5 1.5e 1e+5 1E-5 +1 NaN tru trueish nul 'a' "\t" "a "\\x" "\\u12g4" "\\u12G4" "\\uD800" "\\/\\b"
    [1,] [,1] []] {"a":} {"a"} {,} {"a":1,}`
  const spaced = values.split(/ |\n +/)
  for (const value of [...spaced, '[1 2]']) await assertLikeJsonParse(`{"a":${value}}`)
  for (const text of ['', ' ', '{', '}', '{}', '{}x', '{} {}', '[]', 'null', '"{}"', '\ufeff{}', '{}\0'])
    await assertLikeJsonParse(text)
  assert.equal(await read(Buffer.from('{"a":"\xff"}', 'latin1')), 'The body is not JSON.')
})

test('json object: repeats are found, and names are unescaped', async () => {
  const object = await read('{"a":1,"\\u0061":[2]}')
  assert.deepEqual(object, {
    fields: [
      { name: 'a', start: 5, end: 6 },
      { name: 'a', start: 16, end: 19 },
    ],
    closedAt: 19,
    valueCount: 4,
  })
})

test('json object: depth and number of fields are bounded', async () => {
  const refused: [string, RegExp][] = [
    [`{"a":${'['.repeat(2000)}`, /too deep/],
    [`{${'"a":1,'.repeat(2000)}"a":1}`, /too many fields/],
    [`{"${'a'.repeat(2000)}":1}`, /too long a name/],
  ]
  for (const [text, words] of refused) await assert.rejects(readJsonObject(Buffer.from(text)), words)
})
