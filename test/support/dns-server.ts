import { createSocket, type Socket as UdpSocket } from 'node:dgram'
import { once } from 'node:events'
import { createServer, type Server, type Socket } from 'node:net'
import { freePort } from './listen.ts'

const headerBytes = 12
const udpBytesMax = 512
const types = { a: 1, cname: 5, txt: 16 }
const codes = { none: 0, noSuchName: 3 }

/** What a server does instead of answering: nothing, bytes that are no DNS, or a refusal of the given code. */
export type Fault = 'silent' | 'garbage' | number

/** A name server on loopback, over UDP and TCP, that knows nothing but the records that it is given. */
export class DnsServer implements AsyncDisposable {
  /** By name, lower case: its TXT records, each a list of strings. */
  readonly texts = new Map<string, string[][]>()
  /** By name: where it points. */
  readonly aliases = new Map<string, string>()
  /** By name: its IPv4 addresses, told whatever is asked. */
  readonly addresses = new Map<string, string[]>()
  /** Every name that was asked for, as it was sent. */
  readonly asked: string[] = []
  fault: Fault | undefined
  readonly address: string
  readonly #udp: UdpSocket
  readonly #tcp: Server
  readonly #connections = new Set<Socket>()

  private constructor(address: string, udp: UdpSocket, tcp: Server) {
    this.address = address
    this.#udp = udp
    this.#tcp = tcp
    udp.on('message', (question, peer) => {
      const answer = this.#answer(question, udpBytesMax)
      if (answer !== undefined) udp.send(answer, peer.port, peer.address)
    })
    tcp.on('connection', (connection) => {
      this.#connections.add(connection)
      connection.on('error', () => connection.destroy())
      connection.on('close', () => this.#connections.delete(connection))
      connection.on('data', (data: Buffer) => {
        const answer = this.#answer(data.subarray(2), 65_535)
        if (answer === undefined) return
        connection.write(Buffer.concat([uint16(answer.length), answer]))
      })
    })
  }

  /** At a port of its own, unless another is wanted. */
  static async start({ host = '127.0.0.1', port }: { host?: string; port?: number } = {}): Promise<DnsServer> {
    const own = port ?? (await freePort())
    const udp = createSocket('udp4')
    udp.bind(own, host)
    await once(udp, 'listening')
    const tcp = createServer()
    tcp.listen(own, host)
    await once(tcp, 'listening')
    return new DnsServer(`${host}:${own}`, udp, tcp)
  }

  /** Sets the one TXT record of a name, of one string. */
  set({ name, value }: { name: string; value: string }): void {
    this.texts.set(name, [[value]])
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const connection of this.#connections) connection.destroy()
    const closed = [once(this.#udp, 'close'), once(this.#tcp, 'close')]
    this.#udp.close()
    this.#tcp.close()
    await Promise.all(closed)
  }

  #answer(query: Buffer, bytesMax: number): Buffer | undefined {
    const { name, end } = readName(query, headerBytes)
    this.asked.push(name)
    if (this.fault === 'silent') return undefined
    if (this.fault === 'garbage') return Buffer.concat([query.subarray(0, 2), Buffer.alloc(40, 0xff)])
    const question = query.subarray(headerBytes, end + 4)
    const id = query.subarray(0, 2)
    if (this.fault !== undefined) return message(id, this.fault, question, [])
    const lower = name.toLowerCase()
    const target = this.aliases.get(lower)
    const texts = this.texts.get(target ?? lower) ?? []
    const records = target === undefined ? [] : [record(lower, types.cname, encodeName(target))]
    for (const address of this.addresses.get(lower) ?? []) {
      records.push(record(lower, types.a, Buffer.from(address.split('.').map(Number))))
    }
    for (const strings of texts) records.push(record(target ?? lower, types.txt, encodeStrings(strings)))
    const answer = message(id, records.length > 0 ? codes.none : codes.noSuchName, question, records)
    return answer.length <= bytesMax ? answer : message(id, codes.none, question, [], true)
  }
}

/** RFC 1035 § 4.1.1 */
function message(id: Buffer, code: number, question: Buffer, records: Buffer[], isTruncated = false): Buffer {
  const flags = uint16(0x8180 | (isTruncated ? 0x0200 : 0) | code)
  const counts = [1, records.length, 0, 0].map(uint16)
  return Buffer.concat([id, flags, ...counts, question, ...records])
}

function record(name: string, type: number, data: Buffer): Buffer {
  return Buffer.concat([encodeName(name), uint16(type), uint16(1), Buffer.alloc(4), uint16(data.length), data])
}

function encodeStrings(strings: string[]): Buffer {
  return Buffer.concat(strings.map(encodeLabel))
}

function encodeName(name: string): Buffer {
  return Buffer.concat([...name.split('.').map(encodeLabel), Buffer.of(0)])
}

function encodeLabel(text: string): Buffer {
  const bytes = Buffer.from(text)
  return Buffer.concat([Buffer.of(bytes.length), bytes])
}

function readName(query: Buffer, start: number): { name: string; end: number } {
  const labels: string[] = []
  let at = start
  for (let length = query[at] ?? 0; length > 0; length = query[at] ?? 0) {
    labels.push(query.toString('latin1', at + 1, at + 1 + length))
    at += 1 + length
  }
  return { name: labels.join('.'), end: at + 1 }
}

function uint16(value: number): Buffer {
  return Buffer.of(value >> 8, value & 0xff)
}
