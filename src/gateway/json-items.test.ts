import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { isServiceError } from '../errors.ts'
import { isRecord } from '../lib/json.ts'
import type { JsonItem } from './json-items.ts'
import { readJsonObject } from './json-object.ts'

const watched = ['list', 'other']
const names = ['type', 'tools']

/** Each item of the watched lists as it was told, or why the text was refused. */
async function itemsOf(text: string): Promise<[string, number, JsonItem][] | string> {
  const told: [string, number, JsonItem][] = []
  try {
    await readJsonObject(Buffer.from(text), {
      lists: new Set(watched),
      names: new Set(names),
      onItem: (list, index, item) => told.push([list, index, { ...item, fields: new Map(item.fields) }]),
    })
    return told
  } catch (error) {
    if (!isServiceError(error, 'invalid_request')) throw error
    return error.message
  }
}

/** What is to be told of a parsed body. */
function expected(body: Record<string, unknown>): [string, number, JsonItem][] {
  return Object.entries(body).flatMap(([list, value]) => {
    if (!watched.includes(list) || !Array.isArray(value)) return []
    return value.map((item: unknown, index): [string, number, JsonItem] => {
      const fields = isRecord(item) ? Object.entries(item).filter(([name]) => names.includes(name)) : []
      const texts = fields.map(([name, inner]): [string, unknown] => [
        name,
        typeof inner === 'string' ? inner : undefined,
      ])
      return [list, index, { isObject: isRecord(item), fields: new Map(texts) as JsonItem['fields'] }]
    })
  })
}

const name = fc.oneof(fc.constantFrom(...names, ...watched, 'a'), fc.string({ unit: 'binary', maxLength: 4 }))
const { value } = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 5 },
    fc.oneof(fc.string({ unit: 'binary', maxLength: 8 }), fc.integer(), fc.constantFrom(null, true, '\u0000', 'é😀')),
    fc.array(tie('value'), { maxLength: 4 }),
    fc.dictionary(name, tie('value'), { maxKeys: 4, noNullPrototype: true }),
  ),
}))
const body = fc.dictionary(name, value, { maxKeys: 5, noNullPrototype: true })

/** A text of a value in which any character may be escaped, and blanks stand where they may. */
function spelled(inner: unknown, random: () => number): string {
  const blank = () => ['', '', ' ', '\n\t'][random() % 4]
  const text = (plain: string) => {
    const characters = Array.from({ length: plain.length }, (_, at) => {
      const code = plain.charCodeAt(at)
      const escape = `\\u${code.toString(16).padStart(4, '0')}`
      const isLone = code >= 0xd800 && code <= 0xdfff
      return isLone || random() % 3 === 0 ? escape : JSON.stringify(plain[at]).slice(1, -1)
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

test('json items: watched items are read as JSON.parse reads them, in any spelling', () =>
  fc.assert(
    fc.asyncProperty(body, fc.infiniteStream(fc.nat()), async (some, numbers) => {
      const text = spelled(some, () => numbers.next().value as number)
      assert.deepEqual(JSON.parse(text), some)
      // By the text: what `some` holds may be spelled in a way that is refused (other letters).
      const isRefused = expectedRefusal(some)
      const told = await itemsOf(text)
      if (isRefused) assert.equal(typeof told, 'string', text)
      else assert.deepEqual(told, expected(some), text)
    }),
    { numRuns: 3000 },
  ))

/** A watched name in other letters, in an item. */
function expectedRefusal(some: Record<string, unknown>): boolean {
  return watched.some((list) => {
    const items = some[list]
    if (!Array.isArray(items)) return false
    return items.some(
      (item) =>
        isRecord(item) &&
        Object.keys(item).some((key) => !names.includes(key) && names.includes(key.toUpperCase().toLowerCase())),
    )
  })
}

test('json items: an accepted text with a few changed characters is read as JSON.parse reads it', () => {
  const pieces = ['{', '}', '[', ']', '"', ',', ':', '\\', '"type":', '"list":[', '{}', '0', ' ', '\\u0065', 'é']
  return fc.assert(
    fc.asyncProperty(
      fc.array(fc.dictionary(name, value, { maxKeys: 3, noNullPrototype: true }), { maxLength: 4 }),
      fc.array(fc.tuple(fc.nat(), fc.nat({ max: 2 }), fc.constantFrom(...pieces)), { minLength: 1, maxLength: 3 }),
      async (items, edits) => {
        let text = JSON.stringify({ list: items })
        for (const [place, removed, added] of edits) {
          const at = place % (text.length + 1)
          text = text.slice(0, at) + added + text.slice(at + removed)
        }
        text = text.toWellFormed()
        const told = await itemsOf(text)
        if (typeof told === 'string') return
        const parsed: unknown = JSON.parse(text)
        assert.ok(isRecord(parsed), text)
        // Of a list that stands there twice, which is refused elsewhere, both are told, and JSON.parse finds the last.
        const { fields } = await readJsonObject(Buffer.from(text))
        if (fields.length === Object.keys(parsed).length) assert.deepEqual(told, expected(parsed), text)
      },
    ),
    { numRuns: 5000 },
  )
})

test('json items: a repeated name is refused at any place and in any letter case', () =>
  fc.assert(
    fc.asyncProperty(
      fc.array(fc.tuple(fc.constantFrom('type', 'typ\\u0065', 'TYPE', 'Tools', 'tools', 'x'), value), { maxLength: 5 }),
      fc.nat({ max: 3 }),
      async (fields, before) => {
        const item = `{${fields.map(([key, inner]) => `"${key}":${JSON.stringify(inner)}`).join(',')}}`
        const others = Array.from({ length: before }, () => '{"type":"a","tools":1}').join(',')
        const told = await itemsOf(`{"list":[${others}${before > 0 ? ',' : ''}${item}]}`)
        const meant = fields.map(([key]) => JSON.parse(`"${key}"`) as string).filter((key) => key !== 'x')
        const isOdd = meant.some((key) => !names.includes(key)) || new Set(meant).size < meant.length
        assert.equal(typeof told === 'string', isOdd, item)
        if (typeof told === 'string') assert.match(told, new RegExp(`^list\\[${before}\\]\\.(type|tools): `, 'i'))
      },
    ),
  ))

test('json items: a long text counts as another value, and millions of items take no memory', async () => {
  assert.deepEqual(await itemsOf(`{"list":[{"type":"${'x'.repeat(300)}"}]}`), [
    ['list', 0, { isObject: true, fields: new Map([['type', undefined]]) }],
  ])
  let count = 0
  const text = Buffer.from(`{"list":[${'{"type":"a"},'.repeat(1_000_000)}1]}`)
  const before = process.memoryUsage().heapUsed
  let most = 0
  await readJsonObject(text, {
    lists: new Set(watched),
    names: new Set(names),
    onItem: () => {
      if (count++ % 100_000 === 0) most = Math.max(most, process.memoryUsage().heapUsed - before)
    },
  })
  assert.equal(count, 1_000_001)
  assert.ok(most < 256 * 1024 * 1024, `${most} bytes`)
})
