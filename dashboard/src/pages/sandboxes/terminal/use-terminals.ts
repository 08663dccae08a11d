import { useQuery, useQueryClient } from '@tanstack/react-query'
import type { ProcessInfo, Sandbox } from 'atoll-sdk'
import { useRef, useState } from 'react'
import { askedCommand, programName, shell } from './shell.ts'

export interface TerminalTab {
  info: ProcessInfo
  label: string
}

interface Terminals {
  /** Those that run, and those of this page that have ended. Undefined until they are known. */
  tabs: TerminalTab[] | undefined
  error: Error | null
  retry: () => void
  /** The one that `open` has started last, until it is attached. */
  newId: string | undefined
  noteAttached: (id: string) => void
  noteEnded: (id: string, exitCode: number | null) => void
  /** Starts a terminal and returns its id. It wakes the sandbox. */
  open: () => Promise<string>
  /** Ends a terminal with what runs in it, unless it has ended already, and takes it out of the list. */
  close: (info: ProcessInfo) => Promise<void>
}

/** The terminals of a sandbox. They are read while it is awake, as reading them would wake it. */
export function useTerminals(sandbox: Sandbox | undefined, isAwake: boolean): Terminals {
  const queries = useQueryClient()
  const numbers = useRef(new Map<string, number>())
  const [ended, setEnded] = useState<readonly ProcessInfo[]>([])
  /** Closed by this page: their end comes by their connection too. */
  const closed = useRef(new Set<string>())
  const [newId, setNewId] = useState<string>()
  const queryKey = ['terminals', sandbox?.id]
  const { data, error, refetch } = useQuery({
    queryKey,
    enabled: sandbox !== undefined && isAwake,
    queryFn: async ({ signal }) => {
      const known = queries.getQueryData<ProcessInfo[]>(queryKey) ?? []
      if (sandbox === undefined) return known
      const { status } = await sandbox.info({ signal })
      if (status !== 'running') return known
      const all = await sandbox.terminals({ signal })
      return all.filter(({ running }) => running)
    },
  })
  const list = [...(data ?? []), ...ended.filter(({ sessionID }) => !data?.some((one) => one.sessionID === sessionID))]
  const change = (update: (known: ProcessInfo[]) => ProcessInfo[]) =>
    queries.setQueryData<ProcessInfo[]>(queryKey, (known = []) => update(known))
  return {
    tabs: data === undefined ? undefined : numbered(list, numbers.current),
    error,
    retry: () => void refetch(),
    newId,
    noteAttached: (id) => setNewId((current) => (current === id ? undefined : current)),
    noteEnded: (id, exitCode) => {
      const info = data?.find(({ sessionID }) => sessionID === id)
      if (info === undefined || closed.current.has(id)) return
      setEnded((known) => [...known, { ...info, running: false, exitCode }])
      change((known) => known.filter(({ sessionID }) => sessionID !== id))
    },
    open: async () => {
      if (sandbox === undefined) throw new Error('the sandbox is not known yet')
      const { id } = await sandbox.terminal(shell)
      setNewId(id)
      const startedAt = new Date().toISOString()
      const made = { sessionID: id, sandboxID: sandbox.id, command: shell.shell, args: shell.args, startedAt }
      change((known) => [...known, { ...made, running: true, exitCode: null, attachedClients: 0 }])
      return id
    },
    close: async (info) => {
      const { sessionID } = info
      closed.current.add(sessionID)
      try {
        if (info.running) await sandbox?.attachTerminal(sessionID).kill()
      } catch (reason) {
        closed.current.delete(sessionID)
        throw reason
      }
      setEnded((known) => known.filter((one) => one.sessionID !== sessionID))
      change((known) => known.filter((one) => one.sessionID !== sessionID))
    },
  }
}

/** In the order of their beginning, each with the lowest number that was free when it was first seen. */
function numbered(list: readonly ProcessInfo[], numbers: Map<string, number>): TerminalTab[] {
  for (const id of numbers.keys()) {
    if (!list.some(({ sessionID }) => sessionID === id)) numbers.delete(id)
  }
  const sorted = list.toSorted((one, other) => one.startedAt.localeCompare(other.startedAt))
  return sorted.map((info) => {
    const taken = new Set(numbers.values())
    let number = numbers.get(info.sessionID) ?? 1
    while (!numbers.has(info.sessionID) && taken.has(number)) number += 1
    numbers.set(info.sessionID, number)
    return { info, label: `${programName(askedCommand(info)?.[0] ?? 'shell')} ${number}` }
  })
}
