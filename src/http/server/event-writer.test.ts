import assert from 'node:assert/strict'
import { once } from 'node:events'
import { Writable } from 'node:stream'
import { setImmediate as turn } from 'node:timers/promises'
import { MessageChannel } from 'node:worker_threads'
import { test, type TestContext } from 'node:test'
import type { StreamEvent } from '../../session/index.ts'
import { sendBatches, sessionEncoding } from './event-writer.ts'

/** A connection whose other end takes bytes only when the test says so. */
class Client extends Writable {
  text = ''
  #waiting: { chunk: Buffer; taken: () => void } | undefined

  override _write(chunk: Buffer, _encoding: BufferEncoding, taken: () => void): void {
    this.#waiting = { chunk, taken }
  }

  take(bytes: number): void {
    if (this.#waiting === undefined) return
    const { chunk, taken } = this.#waiting
    this.text += chunk.subarray(0, bytes).toString()
    this.#waiting = bytes < chunk.length ? { chunk: chunk.subarray(bytes), taken } : undefined
    if (bytes >= chunk.length) taken()
  }
}

const large: StreamEvent = {
  sequence: 1,
  createdAt: new Date(0),
  data: { type: 'assistant', text: 'x'.repeat(300_000) },
}

async function* streamOf(event: StreamEvent): AsyncGenerator<readonly StreamEvent[]> {
  yield [event]
}

/** Begins to send to a client that has taken the head, in a time that only `tick` moves. */
async function sending(t: TestContext) {
  t.mock.timers.enable({ apis: ['setTimeout', 'setInterval'] })
  const client = new Client()
  let end: string | undefined
  const options = { gone: new AbortController().signal, stallMs: 60_000 }
  void sendBatches(streamOf(large), sessionEncoding, client, options).then((how) => (end = how))
  await turn()
  client.take(Infinity)
  await turn()
  const tick = async (ms: number) => {
    t.mock.timers.tick(ms)
    await turn()
  }
  return { client, tick, end: () => end }
}

test('a client that takes a large event slowly but steadily gets it whole, without heartbeats in it', async (t) => {
  const { client, tick, end } = await sending(t)
  while (end() === undefined) {
    await tick(29_000)
    client.take(32 * 1024)
    await turn()
  }
  assert.equal(end(), 'all_sent')
  client.take(Infinity)
  assert.equal(client.text, `retry: 3000\n\nid: 1\ndata: ${JSON.stringify(large.data)}\n\n`)
})

test('large events of many fast clients let others come between their parts, and no heartbeat falls among them', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] })
  const texts: string[] = []
  let others = 0
  const sent = new AbortController()
  const between = async () => {
    while (!sent.signal.aborted) {
      await turn()
      others += 1
      t.mock.timers.tick(15_000)
    }
  }
  const come = between()
  await Promise.all(
    Array.from({ length: 20 }, async (_, index) => {
      texts[index] = ''
      const client = new Writable({
        write(chunk: Buffer, _encoding, taken) {
          texts[index] += chunk.toString()
          taken()
        },
      })
      await sendBatches(streamOf(large), sessionEncoding, client, {
        gone: new AbortController().signal,
        stallMs: 60_000,
      })
    }),
  )
  sent.abort()
  await come
  for (const text of texts) {
    assert.ok(text.includes(`data: ${JSON.stringify(large.data)}\n\n`))
  }
  // Twenty times five parts.
  assert.ok(others >= 5, `${others} times somebody else`)
})

test('a client that takes nothing is given up, also in the middle of an event', async (t) => {
  const { client, tick, end } = await sending(t)
  await tick(29_000)
  client.take(100_000)
  await turn()
  // The next part waits for those of other clients.
  await turn()
  await tick(59_999)
  assert.equal(end(), undefined)
  await tick(1)
  assert.equal(end(), 'stalled')
})

test('a draft is an event without a number, between those that have one', () => {
  const draft = sessionEncoding.encode({ offset: 3, text: 'a\nb' }).toString()
  assert.equal(draft, 'data: {"type":"assistant_draft","offset":3,"text":"a\\nb"}\n\n')
})

test('a client that has taken bytes while this process stood still is not taken for stalled', async () => {
  const client = new Client()
  const stallMs = 500
  const ends: string[] = []
  const options = { gone: new AbortController().signal, stallMs }
  void sendBatches(streamOf(large), sessionEncoding, client, options).then((how) => ends.push(how))
  await turn()
  client.take(Infinity)
  await turn()
  // Its window has opened: the kernel will say so when it is asked, which comes after the timers that are due.
  const { port1, port2 } = new MessageChannel()
  const told = once(port2, 'message').then(() => port1.close())
  port2.once('message', () => client.take(Infinity))
  port1.postMessage('')
  const until = performance.now() + 1.2 * stallMs
  while (performance.now() < until) continue
  await told
  await turn()
  assert.deepEqual(ends, [])
  while (ends.length === 0) {
    client.take(Infinity)
    await turn()
  }
  assert.deepEqual(ends, ['all_sent'])
})
