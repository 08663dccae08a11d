import { WebSocket } from 'ws'
import { ConnectionError, errorOf } from './errors.ts'
import { Messages, type Connect } from './socket.ts'

const answerBytesMax = 64 * 1024
const handshakeMs = 60_000

/** With `ws`: the key goes into a header, where no log of a proxy shows it, and a refusal is the server's own error. */
export const connectInNode: Connect = (address, credentials) => {
  const url = new URL(address)
  url.protocol = url.protocol.replace('http', 'ws')
  const socket = new WebSocket(url, { headers: credentials, handshakeTimeout: handshakeMs, perMessageDeflate: false })
  // What comes with the first packet must not be missed. An `ArrayBuffer` would be a copy of each message.
  const messages = new Messages(socket, 'nodebuffer')
  return new Promise((resolve, reject) => {
    socket.once('open', () => {
      resolve(messages)
    })
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
      reject(new ConnectionError(`${address.origin} cannot be reached: ${cause.message}`, { cause }))
    })
  })
}

function headersOf(raw: readonly string[]): [string, string][] {
  const pairs: [string, string][] = []
  for (let index = 0; index + 1 < raw.length; index += 2) pairs.push([raw[index] ?? '', raw[index + 1] ?? ''])
  return pairs
}
