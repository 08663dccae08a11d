import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { test } from 'node:test'
import { InvalidRequestError } from './index.ts'
import { type Asked, cut, fakeServer, json, refusal } from './testing/fake-server.ts'

function lines(response: ServerResponse, ...samples: readonly (readonly [id: string, second: number])[]): void {
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  response.write('retry: 3000\n\n:\n\n')
  for (const [sandboxId, second] of samples) {
    const at = `2026-01-15T10:30:${String(second).padStart(2, '0')}.000Z`
    response.write(`data: ${JSON.stringify({ sandboxId, at, cpuPercent: 1, memoryBytes: 2, memoryLimitBytes: 3 })}\n\n`)
  }
}

const stream =
  (...samples: readonly (readonly [string, number])[]) =>
  (_asked: Asked, response: ServerResponse) => {
    lines(response, ...samples)
    response.end()
  }

test('metrics: each sample once and in order over broken connections, which begin with the last hour again', async (t) => {
  const open = (_asked: Asked, response: ServerResponse) =>
    lines(response, ['sb-a', 0], ['sb-b', 5], ['sb-a', 20], ['sb-b', 21])
  const answers = [stream(['sb-a', 0], ['sb-b', 1], ['sb-b', 5]), refusal(503, 'unavailable'), cut, open]
  const { client, asked } = await fakeServer(t, answers)
  const seen: string[] = []
  let opens = 0
  let breaks = 0
  const options = { onOpen: () => void opens++, onBreak: () => void breaks++ }
  for await (const { sandboxId, at } of client.watchMetrics(['sb-a', 'sb-b'], options)) {
    seen.push(`${sandboxId} ${at.slice(17, 19)}`)
    if (seen.length === 5) break
  }
  assert.deepEqual(seen, ['sb-a 00', 'sb-b 01', 'sb-b 05', 'sb-a 20', 'sb-b 21'])
  assert.deepEqual([opens, breaks], [2, 1])
  assert.ok(asked.every(({ path }) => path === '/api/metrics/stream?sandbox=sb-a&sandbox=sb-b'))
})

test('metrics: a refusal that stays is thrown, and an abort ends the stream', async (t) => {
  const refused = await fakeServer(t, [json(400, { error: 'sandbox: is required', code: 'invalid_request' })])
  await assert.rejects(refused.client.watchMetrics([]).next(), InvalidRequestError)
  const { client } = await fakeServer(t, [(_asked, response) => lines(response, ['sb-a', 1])])
  const controller = new AbortController()
  const samples = client.watchMetrics(['sb-a'], { signal: controller.signal })
  await samples.next()
  controller.abort(new Error('enough'))
  await assert.rejects(samples.next(), /enough/)
})
