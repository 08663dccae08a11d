import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import type { Journal } from './journal.ts'

const headerBytes = 12
const types = { a: 1, cname: 5, txt: 16, aaaa: 28 }
const codes = { none: 0, noSuchName: 3 }

export interface NameRecord {
  /** Each question for an address takes the next, and all after the last take that one. */
  answers?: string[][]
  ipv6?: string[]
  alias?: string
  texts?: string[]
  ttlSeconds?: number
}

/** The only name server of the world outside: over UDP and TCP, and for those who carry its messages otherwise. */
export class NameServer {
  /** By name in lower case; `*.x` is any depth below x. */
  readonly records = new Map<string, NameRecord>()
  readonly #journal: Journal

  constructor(journal: Journal) {
    this.#journal = journal
  }

  async listen(port: number): Promise<void> {
    const udp = createSocket('udp4')
    udp.on('message', (query, peer) => {
      const answer = this.answer(query, 'udp')
      if (answer !== undefined) udp.send(answer, peer.port, peer.address)
    })
    udp.bind(port)
    await once(udp, 'listening')
    const tcp = createServer((connection) => this.serveStream(connection, 'tcp'))
    tcp.listen(port)
    await once(tcp, 'listening')
  }

  /** Messages with their length before them, as over TCP. */
  serveStream(connection: Socket, over: 'tcp' | 'tls'): void {
    let rest = Buffer.alloc(0)
    connection.on('error', () => connection.destroy())
    connection.on('data', (data: Buffer) => {
      rest = Buffer.concat([rest, data])
      while (rest.length >= 2 && rest.length >= 2 + rest.readUInt16BE()) {
        const end = 2 + rest.readUInt16BE()
        const answer = this.answer(rest.subarray(2, end), over)
        rest = rest.subarray(end)
        if (answer === undefined) connection.destroy()
        else connection.write(Buffer.concat([uint16(answer.length), answer]))
      }
    })
  }

  /** Undefined for what is no message. */
  answer(query: Buffer, over: 'udp' | 'tcp' | 'tls' | 'https'): Buffer | undefined {
    const { name, end } = readName(query)
    if (query.length < end + 4) return undefined
    const type = query.readUInt16BE(end)
    this.#journal.add({ kind: 'dns', name, type, over })
    const lower = name.toLowerCase()
    const found = this.#find(lower)
    const question = query.subarray(headerBytes, end + 4)
    const records = found === undefined ? [] : this.#recordsOf(lower, found, type)
    const flags = uint16(0x8180 | (found === undefined ? codes.noSuchName : codes.none))
    const counts = [1, records.length, 0, 0].map(uint16)
    return Buffer.concat([query.subarray(0, 2), flags, ...counts, question, ...records])
  }

  /** Where a name is now, or the address that it is. */
  addressOf(name: string): string {
    const found = this.#find(name.toLowerCase())
    return found?.answers?.[0]?.[0] ?? name
  }

  #recordsOf(name: string, found: NameRecord, type: number): Buffer[] {
    const ttl = found.ttlSeconds ?? 0
    if (found.alias !== undefined) {
      const target = this.#find(found.alias)
      const alias = record(name, types.cname, ttl, encodeName(found.alias))
      return [alias, ...(target === undefined ? [] : this.#recordsOf(found.alias, target, type))]
    }
    if (type === types.a) {
      const [next = []] = found.answers ?? []
      if ((found.answers?.length ?? 0) > 1) found.answers?.shift()
      return next.map((address) => record(name, types.a, ttl, Buffer.from(address.split('.').map(Number))))
    }
    if (type === types.aaaa) return (found.ipv6 ?? []).map((text) => record(name, types.aaaa, ttl, ipv6(text)))
    if (type === types.txt) {
      const strings = (found.texts ?? []).map((text) => Buffer.concat([Buffer.of(text.length), Buffer.from(text)]))
      return strings.map((data) => record(name, types.txt, ttl, data))
    }
    return []
  }

  #find(name: string): NameRecord | undefined {
    const exact = this.records.get(name)
    if (exact !== undefined) return exact
    const labels = name.split('.')
    for (let from = 1; from < labels.length; from += 1) {
      const found = this.records.get(`*.${labels.slice(from).join('.')}`)
      if (found !== undefined) return found
    }
    return undefined
  }
}

function record(name: string, type: number, ttl: number, data: Buffer): Buffer {
  const seconds = Buffer.alloc(4)
  seconds.writeUInt32BE(ttl)
  return Buffer.concat([encodeName(name), uint16(type), uint16(1), seconds, uint16(data.length), data])
}

function encodeName(name: string): Buffer {
  const labels = name.split('.').map((label) => Buffer.concat([Buffer.of(label.length), Buffer.from(label)]))
  return Buffer.concat([...labels, Buffer.of(0)])
}

/** The name of the first question; `end` is behind it. */
function readName(query: Buffer): { name: string; end: number } {
  const labels: string[] = []
  let at = headerBytes
  for (let length = query[at] ?? 0; length > 0; length = query[at] ?? 0) {
    labels.push(query.toString('latin1', at + 1, at + 1 + length))
    at += 1 + length
  }
  return { name: labels.join('.'), end: at + 1 }
}

/** Of an address that is written in full, without `::`. */
function ipv6(text: string): Buffer {
  return Buffer.concat(text.split(':').map((group) => uint16(Number.parseInt(group, 16))))
}

function uint16(value: number): Buffer {
  return Buffer.of(value >> 8, value & 0xff)
}
