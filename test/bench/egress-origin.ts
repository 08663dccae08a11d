/**
 * The servers beyond the proxy, in a network namespace of their own: HTTPS, and DNS that knows the names which it is sent. `/bytes/N` answers with as
 * many bytes; each body is read to its end. It says `ready`.
 */
import { once } from 'node:events'
import { createServer } from 'node:https'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { pipeline, Readable } from 'node:stream'
import { DnsServer } from '../support/dns-server.ts'

export interface OriginOptions {
  address: string
  names: readonly string[]
  certificate: string
  key: string
}

const block = Buffer.alloc(256 * 1024, 'x')

process.once('message', (options: OriginOptions) => void serve(options))

async function serve({ address, names, certificate, key }: OriginOptions): Promise<void> {
  const dns = await DnsServer.start({ host: address, port: 53 })
  for (const name of names) dns.addresses.set(name, [address])
  const server = createServer({ cert: certificate, key, keepAliveTimeout: 0 }, (request, response) => {
    // Whoever goes away is not answered.
    answer(request, response).catch(() => response.destroy())
  })
  server.listen(443, address)
  await once(server, 'listening')
  process.send?.('ready')
}

async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  request.resume()
  await once(request, 'end')
  const count = Number(/^\/bytes\/(\d+)$/.exec(request.url ?? '')?.[1] ?? 2)
  response.writeHead(200, { 'content-length': count })
  pipeline(Readable.from(blocks(count)), response, () => undefined)
}

function* blocks(count: number): Generator<Buffer> {
  for (let left = count; left > 0; left -= block.length) yield block.subarray(0, left)
}
