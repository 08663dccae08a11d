import type { ClientRequest, IncomingMessage, ServerResponse } from 'node:http'

/** After a whole answer: how long a server inside may leave the rest of a body unread, and how long an untaken rest is discarded. */
const lingerMs = 10_000

/**
 * Streams the body of a request into the sandbox. A server inside may answer before it has read the body, or without ever reading it
 * (RFC 9112 § 9.6). A client that sends first and reads then would hang if its body were left unread, so the body has one of these states:
 *
 * - forwarded, as long as the server inside keeps its connection, also after its answer: it may have accepted what is still to come;
 * - discarded, from the end of that connection on;
 * - cut off with the client's connection, when the answer is out and nothing has taken the rest for `lingerMs`.
 */
export function sendBody(request: IncomingMessage, response: ServerResponse, upstream: ClientRequest): void {
  request.on('error', () => upstream.destroy())
  request.pipe(upstream)
  // `node:http` no longer reports `drain` after a whole answer.
  upstream.once('socket', (socket) => {
    const onDrain = () => (upstream.writableNeedDrain ? upstream.emit('drain') : undefined)
    socket.on('drain', onDrain)
    upstream.once('close', () => socket.off('drain', onDrain))
  })
  // A server inside may answer the head alone. A body that came with its head goes out with it, in one write.
  setImmediate(() => {
    if (!request.readableDidRead && !upstream.destroyed) upstream.flushHeaders()
  })
  upstream.once('close', () => {
    request.unpipe(upstream)
    request.resume()
  })
  response.once('finish', () => {
    if (!request.readableEnded) cutOffLater(request, upstream)
  })
}

/** Ends the connections of a body of which nothing more is taken. */
function cutOffLater(request: IncomingMessage, upstream: ClientRequest): void {
  const { socket } = request
  const timer = setTimeout(() => {
    if (upstream.destroyed) {
      socket.destroy()
      return
    }
    // The server inside does not read. A client that pauses is cut off by the time limit of silent connections.
    if (upstream.socket?.writableNeedDrain) upstream.destroy()
    timer.refresh()
  }, lingerMs)
  request.on('data', () => {
    if (!upstream.destroyed) timer.refresh()
  })
  onceBodyOver(request, () => {
    clearTimeout(timer)
    if (!request.readableEnded) upstream.destroy()
  })
}

/** Calls `done` once, when the body has been read or will never be. */
export function onceBodyOver(request: IncomingMessage, done: () => void): void {
  const { socket } = request
  if (request.readableEnded || socket.destroyed) {
    done()
    return
  }
  const over = () => {
    request.off('end', over)
    socket.off('close', over)
    done()
  }
  request.once('end', over)
  socket.once('close', over)
}
