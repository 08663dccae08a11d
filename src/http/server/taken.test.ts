import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { test, type TestContext } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import type { LeastRate } from './least-rate.ts'
import { taken } from './taken.ts'
import { unreadAnswer } from './testing/unread-answer.ts'

/** More than the buffers of two sockets of the kernel take. */
const body = Buffer.alloc(24 * 1024 * 1024)
const partBytes = 64 * 1024
const options = { bytesPerSecondMin: 64 * 1024, graceMs: 200, lookMs: 20 }

interface Asked {
  client: Socket
  /** How it ended, when it is no longer held. */
  over: Promise<'sent' | 'cut off'>
}

/** Asks for an answer, of which the client reads nothing yet. */
async function ask(
  t: TestContext,
  answer: (response: ServerResponse) => void,
  wanted: LeastRate = options,
): Promise<Asked> {
  const { promise: over, resolve } = Promise.withResolvers<'sent' | 'cut off'>()
  const client = await unreadAnswer(t, (response) => {
    void taken(response, wanted).then(() => resolve(response.writableFinished ? 'sent' : 'cut off'))
    answer(response)
  })
  return { client, over }
}

function* parts(): Generator<Buffer> {
  for (let start = 0; start < body.length; start += partBytes) yield body.subarray(start, start + partBytes)
}

/** As answers are sent: a part when the one before has left the process. */
const inParts = (response: ServerResponse): void => {
  pipeline(Readable.from(parts(), { highWaterMark: 1 }), response).catch(() => undefined)
}
const atOnce = (response: ServerResponse): void => void response.end(body)

for (const [name, answer] of Object.entries({ 'in parts': inParts, 'at once': atOnce })) {
  test(`an answer that nobody takes ends with its connection, sent ${name}`, async (t) => {
    const { over } = await ask(t, answer)
    assert.equal(await over, 'cut off')
  })
}

test('an answer that is taken more slowly than it must be ends, whatever the kernel took before', async (t) => {
  const { client, over } = await ask(t, inParts, { ...options, bytesPerSecondMin: 64 * 1024 ** 2 })
  const sips = setInterval(() => client.read(4096), 5)
  t.after(() => clearInterval(sips))
  assert.equal(await over, 'cut off')
})

test('an answer that is taken is whole, and a pause of the server is none of the client', async (t) => {
  const { client, over } = await ask(t, (response) => {
    response.write('begins')
    void sleep(2 * options.graceMs).then(() => inParts(response))
  })
  client.resume()
  assert.equal(await over, 'sent')
})
