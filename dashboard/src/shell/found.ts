import { useQuery } from '@tanstack/react-query'
import { Sandbox, Session } from 'atoll-sdk'
import { useDeferredValue } from 'react'
import { useMay } from '../account/account.tsx'
import { client } from '../account/client.ts'

export interface Found {
  kind: 'sandboxes' | 'sessions'
  id: string
  name: string
  state: string
}

const shownMax = 6

/** Sandboxes whose name or id, and sessions whose words, fit the text. */
export function useFound(text: string, isOpen: boolean): Found[] {
  const asked = useDeferredValue(text.trim())
  const may = useMay()
  const { data = [] } = useQuery({
    queryKey: ['found', asked],
    enabled: isOpen && asked.length > 1,
    queryFn: async ({ signal }) => {
      const [sandboxes, sessions] = await Promise.all([
        may('sandbox:read') ? sandboxesOf(asked, signal) : [],
        may('session:read') ? sessionsOf(asked, signal) : [],
      ])
      return [...sandboxes, ...sessions]
    },
  })
  return data
}

async function sandboxesOf(text: string, signal: AbortSignal): Promise<Found[]> {
  const found: Found[] = []
  if (text.startsWith('sb-')) {
    const info = await Sandbox.connect(text, { client, signal }).then(
      (sandbox) => sandbox.info({ signal }),
      () => undefined,
    )
    return info === undefined
      ? []
      : [{ kind: 'sandboxes', id: info.sandboxID, name: info.name ?? '', state: info.status }]
  }
  for await (const { sandboxID: id, name, status: state } of Sandbox.list({ client, name: text, signal })) {
    found.push({ kind: 'sandboxes', id, name: name ?? '', state })
    if (found.length >= shownMax) break
  }
  return found
}

async function sessionsOf(text: string, signal: AbortSignal): Promise<Found[]> {
  const found: Found[] = []
  for await (const { id, name, project, activity } of Session.list({ client, search: text, signal })) {
    found.push({ kind: 'sessions', id, name: name ?? project.title, state: activity })
    if (found.length >= shownMax) break
  }
  return found
}
