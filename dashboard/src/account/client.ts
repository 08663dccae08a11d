import { Atoll, UnauthorizedError } from 'atoll-sdk'
import { noteServerTime } from '../lib/clock.ts'

const listeners = new Set<() => void>()

/** Called when the server no longer takes the cookie: it has ended, or its key has. */
export function onSignedOut(listener: () => void): () => void {
  listeners.add(listener)
  return () => listeners.delete(listener)
}

/** The client of this page. The browser sends the cookie, which scripts cannot read. */
export const client = new Atoll({
  url: location.origin,
  fetch: async (input, init) => {
    const response = await fetch(input, init)
    noteServerTime(response.headers.get('date'))
    if (response.status === 401) for (const listener of listeners) listener()
    return response
  },
})

export function isUnauthorized(error: unknown): boolean {
  return error instanceof UnauthorizedError
}
