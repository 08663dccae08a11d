import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'

/** How long a client may go on sending what nobody wants. */
const lingerMs = 10_000

/**
 * Closes a connection after its answer in two steps (RFC 9112 § 9.6): ours ends at once, the client's is read and thrown
 * away until the client ends it or the time is over. Closed at once, it would be reset under a client that still sends, which
 * then never sees the answer.
 */
export function lingerOnClose(socket: Socket): void {
  // What `node:http` calls after an answer with `connection: close`.
  socket.destroySoon = () => {
    socket.end()
    // Nothing more is read as HTTP: neither the rest of the body nor requests behind it.
    socket.removeAllListeners('data')
    if (!socket.isPaused()) return linger(socket)
    // A body that nobody has read for a while: `node:http` has stopped the socket below the stream, and only its own listener, which
    // goes when another one takes the data, starts it again.
    socket.once('resume', () => linger(socket))
    socket.resume()
  }
}

/**
 * The second step for a connection that was ended already. The sockets of `node:http` stay open while the client does, and
 * where nobody reads them the client's end is never seen.
 */
export function linger(socket: Duplex, ms = lingerMs): void {
  socket.on('data', () => {})
  socket.once('end', () => socket.destroy())
  socket.resume()
  const timer = setTimeout(() => socket.destroy(), ms)
  socket.once('close', () => clearTimeout(timer))
}
