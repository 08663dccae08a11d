import { useQueryClient } from '@tanstack/react-query'
import type { EventInfo } from 'atoll-sdk'
import { createContext, type ReactNode, useContext, useEffect, useEffectEvent, useState } from 'react'
import { useAccount } from '../account/account.tsx'
import { OrganisationLog, type LiveState } from './organisation-log.ts'
import { Refresher } from './refresher.ts'

const LogContext = createContext<OrganisationLog | undefined>(undefined)

/** Reads the log while the page is open and marks what changed as stale. The operator acts for no organisation, so it has no log. */
export function LiveProvider({ children }: { children: ReactNode }): ReactNode {
  const queries = useQueryClient()
  const { isOperator = false } = useAccount() ?? {}
  const [log, setLog] = useState<OrganisationLog>()
  useEffect(() => {
    if (isOperator) return undefined
    const opened = new OrganisationLog()
    const refresher = new Refresher(queries)
    opened.subscribe((news) => refresher.take(news))
    setLog(opened)
    return () => {
      refresher.close()
      opened.close()
    }
  }, [queries, isOperator])
  return <LogContext value={log}>{children}</LogContext>
}

/** Calls the listener with each event of the organisation's log, in order. */
export function useEvents(listener: (event: EventInfo) => void): void {
  const log = useContext(LogContext)
  const notify = useEffectEvent(listener)
  useEffect(() => log?.subscribe((news) => news.type === 'event' && notify(news.event)), [log])
}

/** Calls the listener when events may have passed unseen: what is shown must be read anew. */
export function useMissed(listener: () => void): void {
  const log = useContext(LogContext)
  const notify = useEffectEvent(listener)
  useEffect(() => log?.subscribe((news) => news.type === 'missed' && notify()), [log])
}

export function useLiveState(): LiveState {
  const log = useContext(LogContext)
  const [state, setState] = useState<LiveState>('connecting')
  useEffect(() => {
    if (log === undefined) return undefined
    setState(log.state)
    return log.subscribe((news) => news.type === 'state' && setState(news.state))
  }, [log])
  return state
}
