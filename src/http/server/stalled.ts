import type { ServerResponse } from 'node:http'

/** Drops a client that takes nothing of its answer for this long: what was answered is held in memory until it was sent. */
export function dropWhenStalled(response: ServerResponse, stallMs: number): void {
  // A reset: after an orderly end the kernel would keep for minutes what the client does not take.
  response.setTimeout(stallMs, () => response.socket?.resetAndDestroy())
  // Before Node hands the connection to the answer behind this one, which may take its time.
  response.prependOnceListener('finish', () => response.setTimeout(0))
}
