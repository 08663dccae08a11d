import type { WebSocketLike } from './route.ts'

/**
 * A client's socket is not read while this much input waits for the sandbox. One read of the socket may still come on top:
 * what the parser has in hand it hands over.
 */
export const inputWeightMax = 1024 * 1024
/** What a message costs beside its bytes, so that a million tiny ones do not weigh as little as one. */
export const messageOverheadBytes = 1024

export interface SocketInput {
  /** What of a message goes into the sandbox; undefined when it means nothing and need not wait. */
  accept: (message: Buffer) => Buffer | undefined
  /** Gives it to the sandbox and resolves when the next may follow; a failure loses this piece alone. */
  take: (input: Buffer) => Promise<void>
}

/** Hands the messages of a socket on one after another, and holds the socket back while too many wait. */
export function takeInput(socket: WebSocketLike, { accept, take }: SocketInput): void {
  const waiting: Buffer[] = []
  let weight = 0
  let isTaking = false

  const takeAll = async (): Promise<void> => {
    isTaking = true
    for (let input = waiting.shift(); input !== undefined; input = waiting.shift()) {
      await take(input)
      weight -= weigh(input)
      if (weight <= inputWeightMax && socket.isPaused) socket.resume()
    }
    isTaking = false
  }

  socket.on('message', (message: Buffer) => {
    const input = accept(message)
    if (input === undefined) return
    waiting.push(input)
    weight += weigh(input)
    if (weight > inputWeightMax) socket.pause()
    if (!isTaking) void takeAll()
  })
  socket.once('close', () => {
    waiting.length = 0
  })
}

function weigh(input: Buffer): number {
  return input.length + messageOverheadBytes
}
