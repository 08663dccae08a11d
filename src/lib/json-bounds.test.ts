import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { type JsonBounds, JsonBoundError, parseJson } from './json-values.ts'

const blanks = Buffer.alloc(64 * 1024, ' ')

/** Of a short text, and of one that is read in slices. Undefined for what is no JSON, too. */
async function exceededBound(json: Buffer, bounds: Partial<JsonBounds>): Promise<keyof JsonBounds | undefined> {
  const none = { valuesMax: Infinity, depthMax: Infinity, fieldsMax: Infinity }
  const [short, long] = [json, Buffer.concat([blanks, json])].map((bytes) =>
    parseJson(bytes, { ...none, ...bounds }).then(
      () => undefined,
      (error: unknown) => (error instanceof JsonBoundError ? error.bound : undefined),
    ),
  )
  assert.equal(await short, await long)
  return await long
}

function countValues(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 1
  return Object.values(value).reduce((total: number, inner) => total + countValues(inner), 1)
}

function measureDepth(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0
  return 1 + Math.max(0, ...Object.values(value).map(measureDepth))
}

test('bounds of JSON: the values and the depth of every text are counted as a parser finds them', () =>
  fc.assert(
    fc.asyncProperty(fc.jsonValue({ maxDepth: 6 }), fc.constantFrom('', ' ', '\n\t\r '), async (value, space) => {
      const json = Buffer.from(space + JSON.stringify(value, null, space) + space)
      const exact = { valuesMax: countValues(value), depthMax: measureDepth(value) }
      assert.equal(await exceededBound(json, exact), undefined)
      assert.equal(await exceededBound(json, { ...exact, valuesMax: exact.valuesMax - 1 }), 'valuesMax')
      if (exact.depthMax > 0) {
        assert.equal(await exceededBound(json, { ...exact, depthMax: exact.depthMax - 1 }), 'depthMax')
      }
    }),
    { numRuns: 2000 },
  ))

test('bounds of JSON: brackets and commas in strings do not count, wherever a slice ends', async () => {
  const bounds = { valuesMax: 3, depthMax: 1 }
  for (const escape of ['\\"', '\\\\', '\\u0022', ',[{', 'é😀']) {
    for (let shift = 0; shift < 4; shift++) {
      const text = 'x'.repeat(shift) + escape.repeat(200_000)
      assert.equal(await exceededBound(Buffer.from(`["${text}","${text}"]`), bounds), undefined, escape)
      assert.equal(await exceededBound(Buffer.from(`["${text}","${text}",0]`), bounds), 'valuesMax', escape)
    }
  }
})

test('bounds of JSON: the fields of each object are counted by themselves, and items of lists are none', async () => {
  const bounds = { valuesMax: 1000, depthMax: 10, fieldsMax: 3 }
  for (const text of [
    '{"a":1,"b":2,"c":3}',
    '[0,0,0,0,0]',
    '[{"a":1,"b":2},{"a":1,"b":2}]',
    '{"a":{"a":1,"b":[1,2,3,4]},"b":1}',
    '{}',
    '{"a,b,c":",,,"}',
  ])
    assert.equal(await exceededBound(Buffer.from(text), bounds), undefined, text)
  for (const text of ['{"a":1,"b":2,"c":3,"d":4}', '[{"a":1,"b":[{}],"c":3,"d":4}]', '{"a":{"a":1,"b":2,"c":3,"d":4}}'])
    assert.equal(await exceededBound(Buffer.from(text), bounds), 'fieldsMax', text)
})

test('bounds of JSON: invalid text is counted as far as a parser would read it', async () => {
  const bounds = { valuesMax: 10, depthMax: 10 }
  for (const text of ['', '"', '"\\', '{"a', ']]]]', '\u0000', '[\\"[\\"', 'nonsense', '}{']) {
    assert.equal(await exceededBound(Buffer.from(text), bounds), undefined, text)
  }
  for (const unit of ['[', '{"a":', '[0,', '[[],', '{"a":1,"b":']) {
    assert.notEqual(await exceededBound(Buffer.from(unit.repeat(1000)), bounds), undefined, unit)
  }
})

test('bounds of JSON: the check of a long text yields to the event loop', async () => {
  const json = Buffer.from(`"${'x'.repeat(16 * 1024 * 1024)}"`)
  let isLooking = true
  let rounds = 0
  const count = () => {
    rounds++
    if (isLooking) setImmediate(count)
  }
  setImmediate(count)
  await exceededBound(json, { valuesMax: 10, depthMax: 10 })
  isLooking = false
  assert.ok(rounds >= 60, `${rounds} rounds`)
})
