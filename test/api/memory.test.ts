import assert from 'node:assert/strict'
import { createServer, request as httpRequest } from 'node:http'
import type { IncomingMessage } from 'node:http'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { test } from 'node:test'
import { useWorld } from '../support/use-world.ts'
import { previewHost } from '../support/world.ts'

const bodyBytes = 256 * 1024 * 1024
/** Of the server, the client and the test together, which share this process; garbage that waits to be collected included. */
const growthBytesMax = bodyBytes / 2
const chunk = Buffer.alloc(64 * 1024, 'x')

let id: string
const world = useWorld({}, async () => {
  id = await world.sandbox()
})

function* chunks(): Generator<Buffer> {
  for (let sent = 0; sent < bodyBytes; sent += chunk.length) yield chunk
}

async function send(method: string, path: string, headers: Record<string, string>, hasBody: boolean): Promise<number> {
  const outgoing = httpRequest(world.origin + path, { method, headers, agent: false })
  const answered = once(outgoing, 'response') as Promise<[IncomingMessage]>
  if (hasBody) await pipeline(Readable.from(chunks()), outgoing)
  else outgoing.end()
  const [incoming] = await answered
  assert.ok((incoming.statusCode ?? 0) < 300)
  let bytes = 0
  for await (const part of incoming) bytes += (part as Buffer).length
  return bytes
}

/** The greatest resident memory while it runs, above that at its start. */
async function growth(run: () => Promise<void>): Promise<number> {
  const start = process.memoryUsage.rss()
  let most = start
  const timer = setInterval(() => {
    most = Math.max(most, process.memoryUsage.rss())
  }, 20)
  await run()
  clearInterval(timer)
  return most - start
}

test('files and previews stream: after a warm-up, a body of 256 MiB leaves the memory flat in both directions', async () => {
  const inside = createServer((request, response) => {
    let bytes = 0
    request.on('data', (part: Buffer) => {
      bytes += part.length
    })
    request.on('end', () => {
      if (bytes > 0) response.end(String(bytes))
      else Readable.from(chunks()).pipe(response)
    })
  })
  inside.listen(0, '127.0.0.1')
  await once(inside, 'listening')
  const host = `${id}-p${(inside.address() as AddressInfo).port}.${previewHost}`
  const key = { 'x-api-key': world.api.key }
  const path = `/api/sandboxes/${id}/files?path=${join(world.machines.folder(id), 'large')}`
  const run = async () => {
    await send('PUT', path, { ...key, 'content-length': String(bodyBytes) }, true)
    assert.equal(await send('GET', path, key, false), bodyBytes)
    await send('POST', '/', { host, 'transfer-encoding': 'chunked' }, true)
    assert.equal(await send('GET', '/', { host }, false), bodyBytes)
  }
  // The first gigabytes make room that later ones use again.
  await run()
  await run()
  const grown = await growth(run)
  assert.ok(grown < growthBytesMax, `grew by ${Math.round(grown / 1024 / 1024)} MiB`)
  inside.closeAllConnections()
  inside.close()
})
