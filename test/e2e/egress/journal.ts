import type { Socket } from 'node:net'

/** What the servers outside have seen, in order: the evidence of tests. */
export type Seen =
  | { kind: 'dns'; name: string; type: number; over: 'udp' | 'tcp' | 'tls' | 'https' }
  | { kind: 'tcp'; address: string; port: number; peer: string }
  | { kind: 'udp'; port: number; data: string }
  | { kind: 'tls'; port: number; sni: string; alpn: string }
  | { kind: 'line'; port: number; data: string }
  | { kind: 'proxied'; over: 'http' | 'socks'; host: string; port: number; isKnown: boolean }
  | SeenRequest

export interface SeenRequest {
  kind: 'http'
  isTls: boolean
  sni: string
  version: string
  address: string
  port: number
  method: string
  /** As the `Host` field or `:authority` has it. */
  host: string
  path: string
  /** Names and values in turn, as they came. */
  rawHeaders: string[]
  /** What fits of the body, as Latin-1. */
  body: string
  bodyBytes: number
  bodySha256: string
  isComplete: boolean
}

const entriesMax = 100_000

export class Journal {
  readonly #entries: Seen[] = []

  add<Entry extends Seen>(entry: Entry): Entry {
    if (this.#entries.length >= entriesMax) throw new Error('the journal is full')
    this.#entries.push(entry)
    return entry
  }

  get length(): number {
    return this.#entries.length
  }

  since(mark: number): Seen[] {
    return this.#entries.slice(mark)
  }
}

export function noteConnection(journal: Journal, connection: Socket): void {
  journal.add({
    kind: 'tcp',
    address: connection.localAddress?.replace('::ffff:', '') ?? '',
    port: connection.localPort ?? 0,
    peer: connection.remoteAddress?.replace('::ffff:', '') ?? '',
  })
}
