import type { EventEmitter } from 'node:events'

/**
 * Calls `tell` once when a response was sent, its client has left, or a socket is closed. Calls it too if that has happened already:
 * `close` is emitted once, and a handler that awaited something may have missed it.
 */
export function onceClosed(stream: EventEmitter & { readonly destroyed: boolean }, tell: () => void): void {
  if (stream.destroyed) tell()
  else stream.once('close', tell)
}

/** Resolves when `onceClosed` calls. */
export function closed(stream: Parameters<typeof onceClosed>[0]): Promise<void> {
  return new Promise((resolve) => onceClosed(stream, resolve))
}
