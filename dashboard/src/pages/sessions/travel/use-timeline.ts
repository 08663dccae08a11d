import { useInfiniteQuery, useQueryClient } from '@tanstack/react-query'
import type { SessionInfo, TurnInfo } from 'atoll-sdk'
import { useMemo } from 'react'
import { useEvents } from '../../../live/live.tsx'
import { sessionOf } from '../use-session.ts'
import { placesOf } from './turns.ts'

/** Turns of a page of the API, and the most pages that are read: what is older is not drawn. */
const turnsOfPage = 100
const pagesMax = 20

export interface TimelineState {
  /** Oldest first, with those that a rewind has left. */
  turns: readonly TurnInfo[]
  /** The number of each turn as a person counts it: its place in its branch, from 1 on. */
  places: ReadonlyMap<string, number>
  /** Undoes the newest rewind; null: there is none to undo. */
  undoCheckpointId: string | null
  isPending: boolean
  error: unknown
  /** There are older turns that are not read yet. */
  hasOlder: boolean
  isReadingOlder: boolean
  readOlder: () => void
  refresh: () => void
}

const keyOf = (id: string) => ['session', id, 'timeline'] as const

/** The turns of a session, kept up to date by the log. */
export function useTimeline(session: SessionInfo): TimelineState {
  const queries = useQueryClient()
  const { id, sandboxId, messages } = session
  const refresh = () => void queries.invalidateQueries({ queryKey: keyOf(id) })
  // The log names the sandbox of a checkpoint, not the session.
  useEvents((event) => {
    if (event.sandboxId === sandboxId && /(?:^|\.)checkpoint\./.test(event.type)) refresh()
  })
  const query = useInfiniteQuery({
    queryKey: keyOf(id),
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam: cursor, signal }) =>
      sessionOf(session).timeline({ branch: 'all' }).page({ limit: turnsOfPage, cursor, signal }),
    getNextPageParam: ({ nextCursor }, pages) => (pages.length < pagesMax ? (nextCursor ?? undefined) : undefined),
  })
  const { data } = query
  const turns = useMemo(() => (data?.pages ?? []).flatMap((page) => page.turns).toReversed(), [data])
  const places = useMemo(() => placesOf(turns, messages), [turns, messages])
  return {
    turns,
    places,
    undoCheckpointId: data?.pages[0]?.undoCheckpointId ?? null,
    isPending: query.isPending,
    error: query.error,
    hasOlder: query.hasNextPage,
    isReadingOlder: query.isFetchingNextPage,
    readOlder: () => {
      if (query.hasNextPage && !query.isFetchingNextPage) void query.fetchNextPage()
    },
    refresh,
  }
}
