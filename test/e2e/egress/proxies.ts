import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import { type Journal, noteConnection } from './journal.ts'
import type { NameServer } from './names.ts'
import { credentials, ports } from './places.ts'

const headBytesMax = 16_384
const { user, password } = credentials.upstream

/** The proxies of an operator, for those with his password: HTTP's CONNECT, and SOCKS5 (RFC 1928, RFC 1929). */
export async function startProxies(journal: Journal, names: NameServer): Promise<void> {
  for (const [port, serve] of [
    [ports.proxy, serveConnect],
    [ports.socks, serveSocks],
  ] as const) {
    const server = createServer((client) => {
      noteConnection(journal, client)
      client.on('error', () => client.destroy())
      serve(new Reader(client), journal, names).catch(() => client.destroy())
    })
    server.listen(port)
    await once(server, 'listening')
  }
}

async function serveConnect(reader: Reader, journal: Journal, names: NameServer): Promise<void> {
  const head = (await reader.until('\r\n\r\n')).toString('latin1')
  const [, host = '', port = ''] = /^CONNECT (\S+):(\d+) HTTP\/1\.1\r\n/.exec(head) ?? []
  const [, coded = ''] = /^proxy-authorization: Basic (\S+)\r$/im.exec(head) ?? []
  const isKnown = Buffer.from(coded, 'base64').toString() === `${user}:${password}`
  journal.add({ kind: 'proxied', over: 'http', host, port: Number(port), isKnown })
  if (!isKnown) return void reader.client.end('HTTP/1.1 407 Proxy Authentication Required\r\n\r\n')
  await join(reader, names, host, Number(port), 'HTTP/1.1 200 Connection established\r\n\r\n')
}

async function serveSocks(reader: Reader, journal: Journal, names: NameServer): Promise<void> {
  const [, methods = 0] = await reader.take(2)
  const offered = await reader.take(methods)
  if (!offered.includes(2)) return void reader.client.end(Buffer.of(5, 255))
  reader.client.write(Buffer.of(5, 2))
  const [, userLength = 0] = await reader.take(2)
  const givenUser = (await reader.take(userLength)).toString()
  const [passwordLength = 0] = await reader.take(1)
  const isKnown = givenUser === user && (await reader.take(passwordLength)).toString() === password
  if (!isKnown) return void reader.client.end(Buffer.of(1, 1))
  reader.client.write(Buffer.of(1, 0))
  const [, , , type] = await reader.take(4)
  const host =
    type === 3 ? (await reader.take((await reader.take(1))[0] ?? 0)).toString() : [...(await reader.take(4))].join('.')
  const port = (await reader.take(2)).readUInt16BE()
  journal.add({ kind: 'proxied', over: 'socks', host, port, isKnown })
  await join(reader, names, host, port, Buffer.of(5, 0, 0, 1, 0, 0, 0, 0, 0, 0))
}

async function join(
  reader: Reader,
  names: NameServer,
  host: string,
  port: number,
  answer: string | Buffer,
): Promise<void> {
  const { client } = reader
  const server = connect(port, names.addressOf(host))
  server.on('error', () => client.destroy())
  server.on('close', () => client.destroy())
  client.on('close', () => server.destroy())
  await once(server, 'connect')
  client.write(answer)
  server.write(reader.rest())
  client.pipe(server).pipe(client)
}

/** Bytes as they are asked for, until the rest goes elsewhere. */
class Reader {
  readonly client: Socket
  #bytes = Buffer.alloc(0)

  constructor(client: Socket) {
    this.client = client
  }

  async take(count: number): Promise<Buffer> {
    await this.#fill(() => this.#bytes.length >= count)
    const taken = this.#bytes.subarray(0, count)
    this.#bytes = this.#bytes.subarray(count)
    return taken
  }

  async until(end: string): Promise<Buffer> {
    await this.#fill(() => this.#bytes.includes(end))
    return await this.take(this.#bytes.indexOf(end) + end.length)
  }

  rest(): Buffer {
    const rest = this.#bytes
    this.#bytes = Buffer.alloc(0)
    return rest
  }

  async #fill(isEnough: () => boolean): Promise<void> {
    while (!isEnough()) {
      if (this.#bytes.length > headBytesMax) throw new Error('too long')
      const chunk = this.client.read() as Buffer | null
      if (chunk !== null) this.#bytes = Buffer.concat([this.#bytes, chunk])
      else if (this.client.readableEnded || this.client.destroyed) throw new Error('it ended')
      else await Promise.race([once(this.client, 'readable'), once(this.client, 'end'), once(this.client, 'close')])
    }
  }
}
