import { useInfiniteQuery, useQuery, useQueryClient } from '@tanstack/react-query'
import type { AuditEntryInfo, AuditHeadInfo } from 'atoll-sdk'
import { useRef, useState } from 'react'
import { client } from '../../../account/client.ts'
import { useEvents } from '../../../live/live.tsx'

export interface AuditFilters {
  actor?: string
  operation?: string
  subject?: string
  from?: string
  to?: string
  /** `ok`, or a status. */
  status?: string
}

interface Page {
  entries: AuditEntryInfo[]
  nextCursor: string | undefined
  /** The newest entry of the chain when the first page was read. */
  headNumber: number
}

const pageMax = 100
/** What is kept of a long audit; older entries are seen with a filter by time. */
export const entriesMax = 5000
/** A burst of events is one look at the head. */
const burstMs = 1000

/** Whose audit: that of the key's organisation, or for the operator that of any and its own. */
export interface AuditPlace {
  /** `/api/audit`. */
  path: string
  /** The log of this browser tells of what is done in it. */
  isFollowed: boolean
}

/**
 * The entries that match, newest first, page by page. They stay as they are until `readNewest`: new ones are counted alone, whenever the log tells
 * that something has happened.
 */
export function useAuditEntries({ path, isFollowed }: AuditPlace, filters: AuditFilters) {
  const queries = useQueryClient()
  const [reading, setReading] = useState(0)
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined)
  const head = useAuditHead(path)
  const entries = useInfiniteQuery({
    queryKey: ['audit-entries', path, filters, reading],
    // Not even what may have been missed moves the list under its reader.
    staleTime: 'static',
    initialPageParam: undefined as string | undefined,
    queryFn: async ({ signal, pageParam: cursor }): Promise<Page> => {
      const [page, { number }] = await Promise.all([
        client.page<AuditEntryInfo[]>(path, { query: { ...filters, limit: pageMax, cursor }, signal }),
        cursor === undefined ? client.json<AuditHeadInfo>('GET', `${path}/head`, { signal }) : { number: 0 },
      ])
      return {
        entries: page.items,
        nextCursor: page.headers.get('x-next-cursor') ?? undefined,
        headNumber: number,
      }
    },
    getNextPageParam: ({ nextCursor }, pages) => (pages.length * pageMax >= entriesMax ? undefined : nextCursor),
  })
  useEvents(() => {
    if (!isFollowed) return
    timer.current ??= setTimeout(() => {
      timer.current = undefined
      void queries.invalidateQueries({ queryKey: ['audit', 'head', path] })
    }, burstMs)
  })
  const { pages = [] } = entries.data ?? {}
  const seen = pages[0]?.headNumber
  const last = pages.at(-1)
  return {
    entries: pages.flatMap((page) => page.entries),
    isPending: entries.isPending,
    error: entries.error,
    isLoadingMore: entries.isFetchingNextPage,
    /** There are older ones which are not read. */
    isCut: last?.nextCursor !== undefined && !entries.hasNextPage,
    newCount: seen === undefined || head.data === undefined ? 0 : Math.max(0, head.data.number - seen),
    loadMore: () => {
      if (entries.hasNextPage && !entries.isFetching) void entries.fetchNextPage()
    },
    readNewest: () => {
      setReading((count) => count + 1)
      void head.refetch()
    },
    retry: () => void entries.refetch(),
  }
}

export function useAuditHead(path: string) {
  return useQuery({
    queryKey: ['audit', 'head', path],
    queryFn: ({ signal }) => client.json<AuditHeadInfo>('GET', `${path}/head`, { signal }),
  })
}
