import { useQueryClient } from '@tanstack/react-query'
import type { SessionInfo } from 'atoll-sdk'
import { useEffect, useRef, useState, useSyncExternalStore } from 'react'
import { sessionKey, sessionOf } from '../use-session.ts'
import { SessionLog, type LogView } from './session-log.ts'

/** Events of a turn come in bursts. */
const burstMs = 250

/** The stream of a session for as long as the component is there. Where it says that more has changed than it tells, the session is read anew. */
export function useSessionLog(session: SessionInfo, event: number | undefined): { log: SessionLog; view: LogView } {
  const queries = useQueryClient()
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined)
  const { id } = session
  const [log] = useState(
    () =>
      new SessionLog(sessionOf(session), () => {
        timer.current ??= setTimeout(() => {
          timer.current = undefined
          void queries.invalidateQueries({ queryKey: sessionKey(id) })
        }, burstMs)
      }),
  )
  const first = useRef(event)
  useEffect(() => log.open(first.current), [log])
  useEffect(() => () => clearTimeout(timer.current), [])
  return { log, view: useSyncExternalStore(log.subscribe, log.view) }
}
