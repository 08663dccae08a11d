import { useSyncExternalStore } from 'react'

const tickMs = 1000
const listeners = new Set<() => void>()
let now = Date.now()
let timer: ReturnType<typeof setInterval> | undefined
/** How far the clock of the server is ahead of this machine's, which may be wrong. */
let aheadMs = 0

/** Notes the `Date` header of an answer. */
export function noteServerTime(date: string | null): void {
  const time = Date.parse(date ?? '')
  if (!Number.isNaN(time)) aheadMs = time - Date.now()
}

/** Now by the clock of the server, to within a second or two. */
export function serverNow(): number {
  return Date.now() + (Math.abs(aheadMs) > 2000 ? aheadMs : 0)
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener)
  timer ??= setInterval(() => {
    now = serverNow()
    for (const notify of listeners) notify()
  }, tickMs)
  return () => {
    listeners.delete(listener)
    if (listeners.size > 0) return
    clearInterval(timer)
    timer = undefined
  }
}

/** The server's time in ms; a component that uses it is drawn each second, however many there are. */
export function useNow(): number {
  return useSyncExternalStore(subscribe, () => now)
}
