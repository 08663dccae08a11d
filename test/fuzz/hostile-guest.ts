import assert from 'node:assert/strict'
import { type Duplex, duplexPair } from 'node:stream'
import { createGuest, type GuestClientOptions } from '../../src/runtime/guest-client/index.ts'
import type { Guest } from '../../src/sandbox/ports/guest.ts'

export const timeouts = { answerTimeoutMs: 40, idleTimeoutMs: 40 }
/** Of a client whose guest does answer, or ends: on a busy machine that may take longer than the time above. */
const patient = { answerTimeoutMs: 20_000, idleTimeoutMs: 20_000 }

export type Ending = 'end' | 'destroy' | 'stall'

/** A guest that answers the first bytes of every connection by `answer`, and the number of its open connections. */
export function guestThat(
  answer: (server: Duplex, client: Duplex) => void,
  wait: GuestClientOptions,
): { guest: Guest; open: () => number } {
  const clients: Duplex[] = []
  const guest = createGuest(async () => {
    const [client, server] = duplexPair()
    clients.push(client)
    server.on('error', () => undefined)
    server.once('data', () => answer(server, client))
    server.resume()
    return client
  }, wait)
  return { guest, open: () => clients.filter((client) => !client.destroyed).length }
}

/** A guest that answers every request with these chunks. */
export function hostile(
  chunks: Uint8Array[],
  ending: Ending,
  wait: GuestClientOptions = ending === 'stall' ? timeouts : patient,
): ReturnType<typeof guestThat> {
  return guestThat((server, client) => {
    for (const chunk of chunks) server.write(chunk)
    if (ending === 'end') server.end()
    if (ending === 'destroy') setImmediate(() => client.destroy())
  }, wait)
}

export function frame(kind: number, ...parts: Uint8Array[]): Buffer {
  const payload = Buffer.concat(parts)
  const header = Buffer.alloc(5)
  header.writeUInt8(kind)
  header.writeUInt32BE(payload.length, 1)
  return Buffer.concat([header, payload])
}

export function uint64(value: number): Buffer {
  const bytes = Buffer.alloc(8)
  bytes.writeBigUInt64BE(BigInt(value))
  return bytes
}

export function json(value: unknown): Buffer {
  return Buffer.from(JSON.stringify(value))
}

export function line(value: unknown): Buffer {
  return Buffer.concat([json(value), Buffer.from('\n')])
}

export const stat = { path: '/x', isDir: false, size: 6, mode: 0o644, modifiedSeconds: 1_700_000_000 }
export const ok = { ok: true }

export async function drain(stream: AsyncIterable<unknown>): Promise<void> {
  let bytes = 0
  for await (const chunk of stream) bytes += chunk instanceof Uint8Array ? chunk.length : 1
  assert.ok(bytes < 1 << 20)
}
