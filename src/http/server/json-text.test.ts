import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { test } from 'node:test'
import type { FastifyReply } from 'fastify'
import { jsonElements, jsonObject, JsonText } from './json-text.ts'

const numbers = Array.from({ length: 200_000 }, (_, index) => ({ index, text: 'é'.repeat(10) }))

function* texts(items: readonly object[], made: { count: number }): Generator<string> {
  yield '{"items":['
  yield* jsonElements(items, (item) => {
    made.count += 1
    return [JSON.stringify(item)]
  })
  yield ']}'
}

/** What a client of a plain server gets. */
async function answered(text: JsonText): Promise<{ body: string; headers: Headers }> {
  const server = createServer((_request, raw) => {
    const headers: Record<string, string> = {}
    const reply = {
      raw,
      statusCode: 200,
      type: (value: string) => (headers['content-type'] = value),
      send: (body: string) => raw.writeHead(200, { ...headers, 'content-length': Buffer.byteLength(body) }).end(body),
      hijack: () => {},
      getHeaders: () => headers,
    }
    text.send(reply as unknown as FastifyReply)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const response = await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
  const body = await response.text()
  server.close()
  return { body, headers: response.headers }
}

test('a long JSON text is the same as at once, and a piece of it is made at a time', async () => {
  const made = { count: 0 }
  const text = new JsonText(() => texts(numbers, made))
  const steps: number[] = []
  let isDone = false
  const watch = () => {
    steps.push(made.count)
    if (!isDone) setImmediate(watch)
  }
  setImmediate(watch)
  const { body, headers } = await answered(text)
  isDone = true
  assert.deepEqual(JSON.parse(body), { items: numbers })
  assert.equal(headers.get('content-type'), 'application/json; charset=utf-8')
  const most = Math.max(...steps.map((count, index) => count - (steps[index - 1] ?? 0)))
  assert.ok(most < numbers.length / 10, `${most} at once`)
})

test('an object of long texts is made in pieces, wherever a character is cut', async () => {
  const long = `${'a'.repeat(64 * 1024 - 1)}😀"\\\n${'\u0000é\ud800'.repeat(300_000)}`
  const object = {
    number: 1,
    absent: undefined,
    none: null,
    list: ['a', {}, [], { deep: [null, true, { text: 'é' }] }],
    '"': 'short',
    long,
    empty: '',
  }
  const pieces = [...jsonObject(object)]
  assert.ok(Math.max(...pieces.map((piece) => piece.length)) <= 6 * 64 * 1024)
  const { body } = await answered(new JsonText(() => jsonObject(object)))
  assert.deepEqual(JSON.parse(body), JSON.parse(JSON.stringify(object)))
  assert.deepEqual([...jsonObject({})], ['{}'])
  assert.equal([...jsonObject({ absent: undefined })].join(''), '{}')
})

test('a short JSON text is sent at once, with its length', async () => {
  for (const items of [[], numbers.slice(0, 1), numbers.slice(0, 3)]) {
    const { body, headers } = await answered(new JsonText(() => texts(items, { count: 0 })))
    assert.equal(body, JSON.stringify({ items }))
    assert.equal(headers.get('content-length'), String(Buffer.byteLength(body)))
  }
})

test('of a JSON text that is longer than asked for no more is made than that takes', () => {
  const made = { count: 0 }
  const text = new JsonText(() => texts(numbers, made))
  assert.equal(text.within(100_000), undefined)
  assert.ok(made.count < 10_000, `${made.count}`)
  assert.equal(new JsonText(() => texts([], made)).within(12), '{"items":[]}')
  assert.equal(new JsonText(() => texts([], made)).within(11), undefined)
})
