import { ConnectionError } from './errors.ts'
import { Messages, type Connect, type SocketLike } from './socket.ts'

/** With the WebSocket of a browser, which can set no headers and says nothing about a refusal. */
const inBrowsers: Connect = (address, credentials) => {
  const url = new URL(address)
  url.protocol = url.protocol.replace('http', 'ws')
  const { 'X-API-Key': key } = credentials
  if (key !== undefined) url.searchParams.set('api_key', key)
  const socket = new WebSocket(url) as unknown as SocketLike
  // What comes with the first packet must not be missed.
  const messages = new Messages(socket)
  return new Promise((resolve, reject) => {
    socket.addEventListener('open', () => resolve(messages))
    socket.addEventListener('close', () =>
      reject(new ConnectionError(`${address.origin}${address.pathname} took no WebSocket`)),
    )
  })
}

let current = inBrowsers

/** Connects to an address that takes WebSockets, as the entry of the package has set. Throws an `AtollError`. */
export const connect: Connect = (address, credentials) => current(address, credentials)

/** Called by the entry for Node. */
export function connectWith(connector: Connect): void {
  current = connector
}
