import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { isServiceError } from '../errors.ts'
import { isRecord } from '../lib/json.ts'
import { readJsonObject } from '../lib/json-object.ts'
import { RefusedField } from './refused-field.ts'
import { ShapeReader } from './shape-reader.ts'
import { cut, forcedFalse, free, kept, list, mapOf, object, plain, union, type Shape } from './shapes/shape.ts'

const shape: Shape = object({
  text: plain,
  list: list(
    union(
      { x: { text: plain, id: cut }, y: { inner: object({ text: plain, id: cut }), id: cut } },
      { untyped: { role: plain, id: cut, text: plain }, untypedNeeds: 'role' },
    ),
  ),
  either: { plain: true, list: list(plain) },
  free,
  id: cut,
  map: mapOf(plain),
  kept,
  store: forcedFalse,
})

/** What is left of the text, or why it was refused. */
async function read(text: string): Promise<{ left: string } | { error: Error }> {
  const bytes = Buffer.from(text)
  try {
    await readJsonObject(bytes, new ShapeReader(bytes, 'wire', shape))
    return { left: bytes.toString() }
  } catch (error) {
    if (!isServiceError(error, 'invalid_request')) throw error
    return { error }
  }
}

const refused = Symbol('refused')
const gone = Symbol('gone')

/** The same with parsed values. */
function expected(own: Shape, value: unknown, isField = false): unknown {
  if (own.isFree) return value
  if (own.isCut) return gone
  if (own.onlyEmpty !== undefined) {
    const isEmpty = value === null || value === false || value === '' || (Array.isArray(value) && value.length === 0)
    return isEmpty ? value : refused
  }
  if (Array.isArray(value)) {
    const items = own.list && value.map((item) => expected(own.list!, item))
    return !items || items.includes(refused) ? refused : items
  }
  if (isRecord(value)) return own.object ? expectedObject(own, value) : refused
  if (!own.plain && !(value === null && isField)) return refused
  return own.isForcedFalse && value !== false ? gone : value
}

function expectedObject({ object: own }: Shape, value: Record<string, unknown>): unknown {
  const { fields, rest, variants } = own!
  const all = Object.entries(value).map(([key, inner]): [string, unknown] => {
    const inside = fields.get(key) ?? rest
    return [key, inside ? expected(inside, inner, true) : refused]
  })
  if (all.some(([, inner]) => inner === refused)) return refused
  if (variants) {
    const { type } = value
    const served = Object.hasOwn(value, 'type')
      ? typeof type === 'string'
        ? variants.types.get(type)
        : undefined
      : Object.hasOwn(value, variants.untypedNeeds!)
        ? variants.untyped
        : undefined
    if (!served || Object.keys(value).some((key) => !(served as ReadonlySet<string>).has(key))) return refused
  }
  return Object.fromEntries(all.filter(([, inner]) => inner !== gone))
}

const leaf = fc.oneof(
  fc.constantFrom<unknown>(null, true, false, '', 'x', 'y', 0, -1.5e300, '\u0000', 'é😀', [], {}),
  fc.string({ unit: 'binary', maxLength: 6 }),
)
/** Mostly of the shape, and here and there not. */
function like(own: Shape): fc.Arbitrary<unknown> {
  const kinds: { weight: number; arbitrary: fc.Arbitrary<unknown> }[] = [{ weight: 2, arbitrary: leaf }]
  if (own.isFree || own.isCut) kinds.push({ weight: 4, arbitrary: fc.jsonValue({ maxDepth: 3 }) })
  if (own.isForcedFalse) kinds.push({ weight: 4, arbitrary: fc.boolean() })
  if (own.list) kinds.push({ weight: 8, arbitrary: fc.array(like(own.list), { maxLength: 3 }) })
  if (own.object) kinds.push({ weight: 20, arbitrary: objectLike(own) })
  return fc.oneof(...kinds)
}
function objectLike({ object: own }: Shape): fc.Arbitrary<Record<string, unknown>> {
  const { fields, rest } = own!
  const known = Object.fromEntries([...fields].map(([name, inner]) => [name, like(inner)]))
  const odd = fc.dictionary(
    fc.oneof(fc.constantFrom('file_id', 'TEXT', 'Id', '__proto__'), fc.string({ unit: 'binary', maxLength: 4 })),
    rest ? like(rest) : leaf,
    { maxKeys: rest ? 3 : 1, noNullPrototype: true },
  )
  const type = own!.variants ? { type: fc.constantFrom('x', 'y', 'z') } : {}
  const record = fc.record({ ...known, ...type }, { requiredKeys: [], noNullPrototype: true })
  return fc.oneof({ weight: 6, arbitrary: record }, { weight: 1, arbitrary: fc.tuple(record, odd).map(merged) })
}
function merged([one, other]: [Record<string, unknown>, Record<string, unknown>]): Record<string, unknown> {
  return Object.fromEntries([...Object.entries(other), ...Object.entries(one)])
}

/** A text of a value in which any character may be escaped, and blanks stand where they may. */
function spelled(inner: unknown, random: () => number): string {
  const blank = () => ['', '', ' ', '\n\t'][random() % 4]
  const text = (whole: string) => {
    const characters = Array.from({ length: whole.length }, (_, at) => {
      const code = whole.charCodeAt(at)
      const escape = `\\u${code.toString(16).padStart(4, '0')}`
      const isLone = code >= 0xd800 && code <= 0xdfff
      return isLone || random() % 3 === 0 ? escape : JSON.stringify(whole[at]).slice(1, -1)
    })
    return `"${characters.join('')}"`
  }
  const write = (part: unknown): string => {
    if (typeof part === 'string') return text(part)
    if (Array.isArray(part)) return `[${blank()}${part.map(write).join(`${blank()},${blank()}`)}${blank()}]`
    if (!isRecord(part)) return JSON.stringify(part)
    const fields = Object.entries(part).map(([key, of]) => `${blank()}${text(key)}${blank()}:${blank()}${write(of)}`)
    return `{${fields.join(`${blank()},`)}${blank()}}`
  }
  return write(inner)
}

test('shape reader: it refuses and cuts what a check of the parsed values would, in any spelling', async () => {
  const seen = { left: 0, refused: 0 }
  await fc.assert(
    fc.asyncProperty(objectLike(shape), fc.infiniteStream(fc.nat()), async (value, numbers) => {
      const text = spelled(value, () => numbers.next().value as number)
      const wanted = expected(shape, JSON.parse(text))
      const result = await read(text)
      if (wanted === refused) {
        assert.ok('error' in result, text)
        seen.refused++
      } else {
        assert.ok('left' in result, `${text} ${'error' in result && result.error.message}`)
        assert.deepEqual(JSON.parse(result.left), JSON.parse(JSON.stringify(wanted)), text)
        assert.equal(Buffer.byteLength(result.left), Buffer.byteLength(text))
        seen.left++
      }
    }),
    { numRuns: 5000 },
  )
  assert.ok(seen.left > 200 && seen.refused > 200, JSON.stringify(seen))
})

test('shape reader: an accepted text with a few changed characters is left as JSON.parse reads it', () => {
  const pieces = [
    '{',
    '}',
    '[',
    ']',
    '"',
    ',',
    ':',
    '\\',
    '"id":',
    '"list":[',
    '{}',
    '0',
    ' ',
    '\\u0069',
    'é',
    '\ufeff',
  ]
  const edits = fc.array(fc.tuple(fc.nat(), fc.nat({ max: 2 }), fc.constantFrom(...pieces)), { maxLength: 3 })
  return fc.assert(
    fc.asyncProperty(objectLike(shape), edits, async (value, changes) => {
      let text = JSON.stringify(value)
      for (const [place, removed, added] of changes) {
        const at = place % (text.length + 1)
        text = text.slice(0, at) + added + text.slice(at + removed)
      }
      text = text.toWellFormed()
      const result = await read(text)
      if ('error' in result) return
      assert.deepEqual(JSON.parse(result.left), expected(shape, JSON.parse(text)), text)
    }),
    { numRuns: 5000 },
  )
})

test('shape reader: repeated names and names in other letters are refused wherever they are read', async () => {
  const cases = {
    '{"text":1,"text":1}': 'text: is repeated.',
    '{"id":1,"\\u0069d":1}': 'id: is repeated.',
    '{"Text":1}': 'Text: must be written text.',
    '{"\u017ftore":true}': '\u017ftore: must be written store.',
    '{"list":[{"type":"x"},{"type":"x","typ\\u0065":"y"}]}': 'list[1].type: is repeated.',
    '{"list":[{"type":"y","inner":{"ID":1}}]}': 'list[0].inner.ID: must be written id.',
  }
  for (const [text, message] of Object.entries(cases)) {
    const result = await read(text)
    assert.equal('error' in result && result.error.message, message, text)
  }
  // What is not read may hold anything.
  assert.ok('left' in (await read('{"free":{"a":1,"a":2,"A":3},"id":[{"b":1,"b":2}]}')))
})

test('shape reader: a refusal names the place, and the name that allows it', async () => {
  const cases: [string, string, string][] = [
    ['{"file_id":1}', 'wire:file_id', 'file_id: is not served.'],
    [
      '{"list":[{"type":"x"},{"type":"x","fil\\u0065_id":1}]}',
      'wire:list[].file_id',
      'list[1].file_id: is not served.',
    ],
    ['{"list":[{"type":"y","text":1}]}', 'wire:list[].text', 'list[0].text: is not served in type y.'],
    ['{"list":[{"type":"z"}]}', 'wire:list[].type=z', 'list[0].type: must be one of the served types.'],
    ['{"list":[{"id":1}]}', 'wire:list[].type', 'list[0].type: must be one of the served types.'],
    ['{"list":[1]}', 'wire:list[]', 'list[0]: must be an object.'],
    ['{"either":{}}', 'wire:either', 'either: must be a text, a number or a boolean or a list.'],
    ['{"kept":{}}', 'wire:kept', 'kept: is not served: it refers to an object in the account of the model API.'],
    [`{"${'k'.repeat(500)}":1}`, `wire:${'k'.repeat(100)}`, `${'k'.repeat(100)}: is not served.`],
    ['{"a\\nb":1}', 'wire:a\ufffdb', 'a\ufffdb: is not served.'],
  ]
  for (const [text, field, message] of cases) {
    const result = await read(text)
    assert.ok('error' in result && result.error instanceof RefusedField, text)
    assert.equal(result.error.field, field)
    assert.ok(result.error.message.startsWith(message), result.error.message)
  }
})

test('shape reader: what is cut takes one comma with it', async () => {
  const cases = {
    '{"id":1}': '{ }',
    '{"id":1,"text":2}': '{ "text":2}',
    '{"text":2 , "id":{"a":[1]}}': '{"text":2 }',
    '{"id":1,"store":true}': '{ }',
    '{"store":null,"id":1,"text":1,"map":{}}': '{ "text":1,"map":{}}',
    '{"text":1,"id":1,"store":true,"map":{}}': '{"text":1 ,"map":{}}',
    '{"store":false}': '{"store":false}',
  }
  for (const [text, left] of Object.entries(cases)) {
    const result = await read(text)
    assert.equal('left' in result && result.left.replaceAll(/ +/g, ' '), left, text)
  }
})

test('shape reader: millions of items take no memory', async () => {
  const bytes = Buffer.from(`{"list":[${'{"id":1,"type":"x"},'.repeat(1_000_000)}{"role":1}]}`)
  const before = process.memoryUsage().heapUsed
  let most = 0
  const reader = new ShapeReader(bytes, 'wire', shape)
  let count = 0
  await readJsonObject(bytes, {
    name: (start, end) => reader.name(start, end),
    begin: (byte, at) => reader.begin(byte, at),
    open: (isObject) => reader.open(isObject),
    close: () => {
      reader.close()
      if (count++ % 100_000 === 0) most = Math.max(most, process.memoryUsage().heapUsed - before)
    },
    end: (end, isText) => reader.end(end, isText),
    comma: (at) => reader.comma(at),
  })
  assert.equal(count, 1_000_003)
  assert.ok(most < 256 * 1024 * 1024, `${most} bytes`)
})
