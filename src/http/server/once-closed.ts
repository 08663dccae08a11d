import type { EventEmitter } from 'node:events'

/**
 * Tells once when a response has been sent or its client has gone, or when a socket is closed: also when that was before,
 * since `close` comes once, and whoever has awaited something since the request came may have missed it.
 */
export function onceClosed(stream: EventEmitter & { readonly destroyed: boolean }, tell: () => void): void {
  if (stream.destroyed) tell()
  else stream.once('close', tell)
}

/** Resolves then. */
export function closed(stream: Parameters<typeof onceClosed>[0]): Promise<void> {
  return new Promise((resolve) => onceClosed(stream, resolve))
}
