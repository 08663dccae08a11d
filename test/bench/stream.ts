import { fork } from 'node:child_process'
import { once } from 'node:events'
import { Agent, get } from 'node:http'
import { isTurnComplete, readEvents } from '../e2e/event-stream.ts'
import type { AtollServer } from '../e2e/server.ts'
import { createSession } from '../e2e/session-client.ts'
import { type Comparison, compare } from './measure.ts'

const clientsCount = 200
const turnsCount = 20
const rounds = 10

/** All events of a session to many clients that connect at once, against a Node server that has the same bytes in memory. */
export async function streamBench(server: AtollServer): Promise<Comparison[]> {
  const { id } = await createSession(server, 'run: seq 100')
  for (let turn = 1; turn < turnsCount; turn += 1) {
    await server.json('POST', `/v1/sessions/${id}/messages`, { message: 'run: seq 100', user_id: 'ada' })
  }
  const events = await readEvents(server, id, (_event, all) => all.filter(isTurnComplete).length === turnsCount)
  const texts = events.map((event) => `id: ${event.id}\ndata: ${JSON.stringify(event.data)}\n\n`)
  const stream = ['retry: 3000\n\n', ...texts]
  const plain = fork(new URL('plain-stream.ts', import.meta.url))
  plain.send(stream)
  const [plainPort] = (await once(plain, 'message')) as [number]
  const byteLength = Buffer.byteLength(stream.join(''))
  const path = `/v1/sessions/${id}/events?api_key=${server.key}`
  const what = `replay ${events.length} events to ${clientsCount} clients at once`
  const replay = await compare(what, 'the bytes from plain node:http', rounds, {
    atoll: () => readByMany(server.port, path, byteLength),
    other: () => readByMany(plainPort, '/', byteLength),
  })
  plain.kill()
  await server.json('DELETE', `/v1/sessions/${id}`)
  return [replay]
}

/** Each client leaves when it has as many bytes as the stream has. */
async function readByMany(port: number, path: string, byteLength: number): Promise<void> {
  const agent = new Agent({ maxSockets: Number.POSITIVE_INFINITY })
  const read = async () => {
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    let missing = byteLength
    const request = get({ host: '127.0.0.1', port, path, agent }, (response) => {
      if (response.statusCode !== 200) reject(new Error(`the stream answered ${response.statusCode}`))
      response.on('data', (chunk: Buffer) => {
        missing -= chunk.length
        if (missing <= 0) resolve()
      })
      response.once('error', reject)
    }).once('error', reject)
    await promise
    request.destroy()
  }
  await Promise.all(Array.from({ length: clientsCount }, read))
  agent.destroy()
}
