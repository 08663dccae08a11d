import assert from 'node:assert/strict'
import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import { test, type TestContext } from 'node:test'
import { setImmediate as nextRound } from 'node:timers/promises'
import { silentLog } from '../../lib/log.ts'
import { defaultOrganisationLimits } from '../../organisation/index.ts'
import { streamBuild } from './build-stream.ts'
import { defaultHttpLimits } from './config.ts'
import { Streams } from './streams.ts'
import { unreadAnswer } from './testing/unread-answer.ts'

const limits = { ...defaultHttpLimits, streamStallMs: 100 }
const organisations = { limitsOf: () => ({ ...defaultOrganisationLimits, eventStreamsMax: 1 }) }
/** More than the buffers of two sockets of the kernel take. */
const outputs = Array.from({ length: 40 }, () => 'x'.repeat(2 ** 20))

type Work = Parameters<typeof streamBuild>[1]

/** A client that asks for the events of a build and reads nothing. */
async function ask(t: TestContext, streams: Streams, work: Work) {
  const { promise: answered, resolve } = Promise.withResolvers<ServerResponse>()
  const client = await unreadAnswer(t, (response) => {
    const reply = { raw: response, hijack: () => undefined, getHeaders: () => ({}) }
    const call = { reply, streams, deps: { log: silentLog, organisations }, limits, orgId: 'org_slow' }
    void streamBuild(call as unknown as Parameters<typeof streamBuild>[0], work).then(() => resolve(response))
  })
  return { client, response: await answered }
}

test('build stream: a client that reads nothing loses its connection after the build, and its place until then', async (t) => {
  const streams = new Streams()
  const { response } = await ask(t, streams, async ({ onEvent }) => {
    for (const data of outputs) {
      onEvent({ event: 'build_output', step: 1, stream: 'stdout', data })
      await nextRound()
    }
    return { id: 'img-1' }
  })
  assert.equal(response.closed, false)
  assert.equal(streams.count('events'), 1, 'its events are in memory')
  await once(response, 'close')
  assert.deepEqual([response.writableFinished, streams.count('events')], [false, 0])
})

test('build stream: a client that reads gets the end, on a connection that stays', async (t) => {
  const streams = new Streams()
  const { client, response } = await ask(t, streams, async ({ onEvent }) => {
    onEvent({ event: 'build_output', step: 1, stream: 'stdout', data: 'out' })
    return { id: 'img-1' }
  })
  let text = ''
  client.on('data', (chunk: Buffer) => (text += chunk.toString())).resume()
  if (!response.closed) await once(response, 'close')
  while (!text.includes('img-1')) await once(client, 'data')
  assert.deepEqual([response.writableFinished, streams.count('events')], [true, 0])
})
