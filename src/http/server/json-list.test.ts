import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { test, type TestContext } from 'node:test'
import { ServiceError } from '../../errors.ts'
import { silentLog } from '../../lib/log.ts'
import { sendList } from './json-list.ts'

type Call = Parameters<typeof sendList>[0]

/** Asks a plain server for a list, whose failure before the first piece is a status. */
async function ask(t: TestContext, orgId: string, items: AsyncIterable<object>): Promise<Response> {
  const server = createServer((_request, raw) => {
    const reply = { raw, hijack: () => undefined, getHeaders: () => ({ 'x-more': 'kept' }) }
    const call = { reply, orgId, deps: { log: silentLog } } as unknown as Call
    sendList(call, items, (item) => item).catch((error: unknown) =>
      raw.writeHead(error instanceof ServiceError ? 503 : 500).end(),
    )
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => {
    server.closeAllConnections()
    server.close()
  })
  return await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
}

async function* of(...items: readonly object[]): AsyncGenerator<object> {
  yield* items
}

test('list: it is a JSON array, whatever its length', async (t) => {
  const long = Array.from({ length: 3 }, (_, index) => ({
    index,
    text: 'é"'.repeat(100_000),
    deep: [{ a: [1, null] }],
  }))
  for (const items of [[], [{ one: 1 }], long]) {
    const response = await ask(t, 'org_1', of(...items))
    assert.equal(response.headers.get('content-type'), 'application/json; charset=utf-8')
    assert.equal(response.headers.get('x-more'), 'kept')
    assert.deepEqual(await response.json(), items)
  }
})

test('list: what fails first is an answer of its own, and what fails later breaks the connection', async (t) => {
  async function* failing(...before: readonly object[]): AsyncGenerator<object> {
    yield* before
    throw new ServiceError('unavailable', 'the database does not answer')
  }
  assert.equal((await ask(t, 'org_1', failing())).status, 503)
  const broken = await ask(t, 'org_1', failing({ text: 'x'.repeat(200_000) }))
  assert.equal(broken.status, 200)
  await assert.rejects(broken.text())
})

test('list: an organisation with two unsent lists waits, others do not, and an end gives its place back', async (t) => {
  const held = Promise.withResolvers<void>()
  async function* slow(): AsyncGenerator<object> {
    yield { text: 'x'.repeat(200_000) }
    await held.promise
  }
  const slowOnes = [await ask(t, 'org_slow', slow()), await ask(t, 'org_slow', slow())]
  const third = ask(t, 'org_slow', of())
  assert.deepEqual(await (await ask(t, 'org_other', of())).json(), [])
  assert.equal(await Promise.race([third, new Promise((resolve) => setImmediate(resolve, 'waits'))]), 'waits')
  held.resolve()
  await Promise.all(slowOnes.map((response) => response.text()))
  assert.deepEqual(await (await third).json(), [])
})
