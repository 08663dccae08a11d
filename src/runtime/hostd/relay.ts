import { connect } from 'node:net'
import type { Socket } from 'node:net'
import { getSystemErrorName } from 'node:util'

const answerBytes = 4
const answerTimeoutMs = 5_000

/**
 * Opens a connection to a guest's socket that hostd relays (`hostd/src/relay.rs` has the frames). Throws an error with the
 * `code` of connect(2); `EAGAIN` where a moment later may do: a queue is full, or hostd is being started again.
 */
export async function relayTo(relay: string, guest: string): Promise<Socket> {
  const socket = connect({ path: relay })
  // An error of a connection must never end the server; the close that follows tells its owner.
  socket.on('error', () => undefined)
  const path = Buffer.from(guest)
  const request = Buffer.alloc(4 + path.length)
  request.writeUInt32BE(path.length)
  path.copy(request, 4)
  socket.write(request)
  const late = setTimeout(() => socket.destroy(), answerTimeoutMs)
  const answer = await readAnswer(socket)
  clearTimeout(late)
  if (answer === 0) return socket
  socket.destroy()
  const code = answer === undefined ? 'EAGAIN' : getSystemErrorName(-answer)
  throw Object.assign(new Error(`connect ${code} ${guest}`), { code })
}

/** An error number; `undefined` when the connection ends before it. */
async function readAnswer(socket: Socket): Promise<number | undefined> {
  const { promise, resolve } = Promise.withResolvers<number | undefined>()
  const onReadable = () => {
    const answer = socket.read(answerBytes) as Buffer | null
    if (answer?.length === answerBytes) resolve(answer.readInt32BE())
  }
  const onClose = () => resolve(undefined)
  socket.on('readable', onReadable).once('close', onClose)
  const answer = await promise
  socket.off('readable', onReadable).off('close', onClose)
  return answer
}
