/**
 * What stands for the programs of a sandbox, in a network namespace of its own: does what it is told, one after the other, and answers with
 * milliseconds. It has two addresses, of which the packet rules redirect one.
 */
import { once } from 'node:events'
import { connect, type TLSSocket } from 'node:tls'

export interface Path {
  /** The address it goes out from. */
  from: string
  /** The name and the address of the server. */
  name: string
  to: string
  authority: string
}

export type Order =
  | { do: 'download' | 'upload'; path: Path; bytes: number }
  /** Requests in turn, on one connection or on one for each; the answer has the milliseconds of each. */
  | { do: 'ask'; path: Path; count: number; kept: boolean }
  /** Opens connections, asks once on each and leaves them open until `release`. */
  | { do: 'hold'; path: Path; count: number }
  | { do: 'release' }

const blockBytes = 256 * 1024
const opensAtOnce = 50
const held: TLSSocket[] = []

process.on('message', (order: Order) => {
  act(order).then(
    (answer) => process.send?.({ answer }),
    (error: unknown) => process.send?.({ error: String(error) }),
  )
})

async function act(order: Order): Promise<number[]> {
  switch (order.do) {
    case 'download':
      return [await timed(() => withConnection(order.path, (socket) => request(socket, order.path, order.bytes)))]
    case 'upload':
      return [await timed(() => withConnection(order.path, (socket) => upload(socket, order.path, order.bytes)))]
    case 'ask':
      return await ask(order.path, order.count, order.kept)
    case 'hold':
      for (let left = order.count; left > 0; left -= opensAtOnce) {
        const sockets = Array.from({ length: Math.min(left, opensAtOnce) }, () => open(order.path))
        for (const socket of await Promise.all(sockets)) {
          held.push(socket)
          await request(socket, order.path)
        }
      }
      return []
    case 'release':
      for (const socket of held.splice(0)) socket.destroy()
      return []
  }
}

async function ask(path: Path, count: number, kept: boolean): Promise<number[]> {
  const times: number[] = []
  if (kept) {
    await withConnection(path, async (socket) => {
      for (let round = 0; round < count; round += 1) times.push(await timed(() => request(socket, path)))
    })
    return times
  }
  for (let round = 0; round < count; round += 1) {
    times.push(await timed(() => withConnection(path, (socket) => request(socket, path))))
  }
  return times
}

async function open({ from, name, to, authority }: Path): Promise<TLSSocket> {
  const options = { host: to, port: 443, localAddress: from, servername: name, ca: authority }
  const socket = connect(options)
  await once(socket, 'secureConnect')
  socket.setNoDelay(true)
  return socket
}

async function withConnection(path: Path, use: (socket: TLSSocket) => Promise<void>): Promise<void> {
  const socket = await open(path)
  try {
    await use(socket)
  } finally {
    socket.destroy()
  }
}

/** Sends a request and reads its answer, which has a length. */
async function request(socket: TLSSocket, path: Path, bytes = 2): Promise<void> {
  socket.write(`GET /bytes/${bytes} HTTP/1.1\r\nHost: ${path.name}\r\n\r\n`)
  await answered(socket, bytes)
}

async function upload(socket: TLSSocket, path: Path, bytes: number): Promise<void> {
  const done = answered(socket, 2)
  // It is waited for later.
  done.catch(() => undefined)
  socket.write(`POST / HTTP/1.1\r\nHost: ${path.name}\r\nContent-Length: ${bytes}\r\n\r\n`)
  const block = Buffer.alloc(blockBytes, 'x')
  for (let left = bytes; left > 0; left -= blockBytes) {
    if (!socket.write(block.subarray(0, left))) await once(socket, 'drain')
  }
  await done
}

/** Resolves when an answer with a body of so many bytes has come; throws for another status than 200, and when the connection ends. */
function answered(socket: TLSSocket, bytes: number): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  let head: string | undefined = ''
  let come = 0
  const take = (data: Buffer): void => {
    come += data.length
    if (head !== undefined) {
      head += data.toString('latin1')
      const end = head.indexOf('\r\n\r\n')
      if (end === -1) return
      if (!head.startsWith('HTTP/1.1 200 ')) stop(() => reject(new Error(head?.split('\r\n')[0])))
      come -= end + 4
      head = undefined
    }
    if (come >= bytes) stop(resolve)
  }
  const fail = (): void => stop(() => reject(new Error('the connection has ended')))
  const stop = (then: () => void): void => {
    socket.off('data', take).off('close', fail)
    then()
  }
  socket.on('data', take).on('close', fail)
  return promise
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const start = performance.now()
  await work()
  return performance.now() - start
}
