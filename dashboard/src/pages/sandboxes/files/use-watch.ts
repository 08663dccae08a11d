import type { FileChange, Sandbox } from 'atoll-sdk'
import { useEffect, useEffectEvent, useState, useSyncExternalStore } from 'react'
import { keyOf, type Place } from './place.ts'

interface WatchOptions {
  /** A watch that begins wakes a sandbox, so there is none while it sleeps. */
  isAwake: boolean
  onChanges: (changes: readonly FileChange[]) => void
  /** Changes may have passed unseen until now. */
  onMissed: () => void
}

/** Changes come in bursts. */
const burstMs = 250
/** More at once are not followed: the folder is read again. */
const burstMax = 2000

/** Follows what changes in a folder while the page is seen. Returns why it cannot, if so. */
export function useWatch(sandbox: Sandbox, place: Place, { isAwake, onChanges, onMissed }: WatchOptions): unknown {
  const [error, setError] = useState<unknown>()
  const isSeen = useSyncExternalStore(subscribe, () => !document.hidden)
  const tellChanges = useEffectEvent(onChanges)
  const tellMissed = useEffectEvent(onMissed)
  const follow = useEffectEvent(async (signal: AbortSignal) => {
    let burst: FileChange[] = []
    let timer: ReturnType<typeof setTimeout> | undefined
    const tell = () => {
      timer = undefined
      const told = burst
      burst = []
      if (told.length > burstMax || told.some(({ type }) => type === 'lost')) tellMissed()
      else tellChanges(told)
    }
    try {
      for await (const change of sandbox.files.watch(place, { signal, onOpen: tellMissed })) {
        if (burst.length <= burstMax) burst.push(change)
        timer ??= setTimeout(tell, burstMs)
      }
    } catch (reason) {
      clearTimeout(timer)
      if (!signal.aborted) setError(reason)
    }
  })
  const key = keyOf(place)
  useEffect(() => {
    setError(undefined)
    if (!isAwake || !isSeen) return undefined
    const closed = new AbortController()
    void follow(closed.signal)
    return () => closed.abort()
  }, [sandbox, key, isAwake, isSeen])
  return error
}

function subscribe(listener: () => void): () => void {
  document.addEventListener('visibilitychange', listener)
  return () => document.removeEventListener('visibilitychange', listener)
}
