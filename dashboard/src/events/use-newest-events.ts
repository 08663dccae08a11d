import { useQuery, useQueryClient } from '@tanstack/react-query'
import type { EventInfo } from 'atoll-sdk'
import { useEffect, useRef } from 'react'
import { client } from '../account/client.ts'
import { useEvents } from '../live/live.tsx'

const drawnEveryMs = 250

/** The newest events of the organisation, newest first, as they come. A burst is drawn a few times a second, and of it the last ones. */
export function useNewestEvents(max: number): {
  events: readonly EventInfo[] | undefined
  error: Error | null
  retry: () => void
} {
  const queries = useQueryClient()
  const queryKey = ['newest-events', max]
  const fresh = useRef<EventInfo[]>([])
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined)
  const { data, error, refetch } = useQuery({
    queryKey,
    staleTime: 0,
    queryFn: ({ signal }) => readNewest(max, signal),
  })
  useEvents((event) => {
    fresh.current = [...fresh.current.slice(1 - max), event]
    if (timer.current !== undefined) return
    timer.current = setTimeout(() => {
      timer.current = undefined
      const come = fresh.current.toReversed()
      fresh.current = []
      queries.setQueryData<readonly EventInfo[]>(queryKey, (known) => {
        const newest = known?.[0]?.number ?? 0
        return known && [...come.filter(({ number }) => number > newest), ...known].slice(0, max)
      })
    }, drawnEveryMs)
  })
  useEffect(() => () => clearTimeout(timer.current), [])
  return { events: data, error, retry: () => void refetch() }
}

async function readNewest(max: number, signal: AbortSignal): Promise<readonly EventInfo[]> {
  const page = async (after: number | 'newest', limit: number) =>
    await client.json<{ events: EventInfo[]; newest: number; oldest: number }>('GET', '/api/events', {
      query: { follow: false, after, limit },
      signal,
    })
  const { newest, oldest } = await page('newest', 1)
  // What comes before the oldest that is kept has expired.
  const after = Math.max(newest - max, oldest - 1, 0)
  return after >= newest ? [] : (await page(after, max)).events.toReversed()
}
