import type { WebSocket } from 'ws'
import { ConnectionError, errorOf } from './errors.ts'
import { connectionReason } from './reasons.ts'
import { Messages, type Connect } from './socket.ts'

const answerBytesMax = 64 * 1024
const handshakeMs = 60_000

/** With `ws`: the key goes into a header, where no log of a proxy shows it, and a refusal is the server's own error. */
export const connectInNode: Connect = async (address, credentials) => {
  const socket = await socketTo(address, credentials)
  // What comes with the first packet must not be missed. An `ArrayBuffer` would be a copy of each message.
  const messages = new Messages(socket, 'nodebuffer')
  await opened(socket, address)
  return messages
}

/** A WebSocket to an address of the API, which opens later. Listeners that are added at once miss nothing. */
export async function socketTo(address: URL, credentials: Record<string, string>): Promise<WebSocket> {
  // Most programs open none, and its modules of Node take longer to load than all of this package.
  const { WebSocket } = await import('ws')
  const url = new URL(address)
  url.protocol = url.protocol.replace('http', 'ws')
  return new WebSocket(url, { headers: credentials, handshakeTimeout: handshakeMs, perMessageDeflate: false })
}

/** Waits for the upgrade. Throws an `AtollError`, that of the server's answer where one came. */
export function opened(socket: WebSocket, address: URL): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.once('open', resolve)
    socket.once('unexpected-response', (_request, response) => {
      let text = ''
      response.setEncoding('utf8')
      response.on('data', (chunk: string) => {
        if (text.length < answerBytesMax) text += chunk
      })
      response.once('error', reject)
      response.once('end', () => {
        reject(errorOf(response.statusCode ?? 0, new Headers(headersOf(response.rawHeaders)), text))
        socket.terminate()
      })
    })
    socket.on('error', (cause) => {
      reject(new ConnectionError(`${address.origin} cannot be reached: ${connectionReason(cause)}`, { cause }))
    })
  })
}

function headersOf(raw: readonly string[]): [string, string][] {
  const pairs: [string, string][] = []
  for (let index = 0; index + 1 < raw.length; index += 2) pairs.push([raw[index] ?? '', raw[index + 1] ?? ''])
  return pairs
}
