import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'

/** How long a client may continue to send after the answer. */
const lingerMs = 10_000

/**
 * Closes a connection after its answer in two steps (RFC 9112 § 9.6): our side ends at once, and the client's data is discarded until the
 * client ends or the timeout expires. An immediate close would reset a client that still sends, and it would never see the answer.
 */
export function lingerOnClose(socket: Socket): void {
  // `node:http` calls this after an answer with `connection: close`.
  socket.destroySoon = () => {
    socket.end()
    // Neither the rest of the body nor later requests are parsed as HTTP.
    socket.removeAllListeners('data')
    if (!socket.isPaused()) return linger(socket)
    // `node:http` has paused the socket below the stream because the body was not read. Only its own `data` listener, which is removed
    // here, would resume it.
    socket.once('resume', () => linger(socket))
    socket.resume()
  }
}

/**
 * The second step for a connection whose own side has ended. Sockets of `node:http` stay open while the client's side is open, and without
 * a reader the client's end is never seen.
 */
export function linger(socket: Duplex, ms = lingerMs): void {
  socket.on('data', () => {})
  socket.once('end', () => socket.destroy())
  socket.resume()
  const timer = setTimeout(() => socket.destroy(), ms)
  socket.once('close', () => clearTimeout(timer))
}
