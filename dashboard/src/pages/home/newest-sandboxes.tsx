import { useQuery, useQueryClient } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { SandboxInfo } from 'atoll-sdk'
import { useEffect, useRef, type ReactNode } from 'react'
import { client } from '../../account/client.ts'
import { useEvents } from '../../live/live.tsx'
import { nameOf } from '../../sandboxes/sandbox.ts'
import { StateBadge } from '../../ui/badge.tsx'
import { Panel } from '../../ui/page.tsx'
import { ErrorNote, Loading } from '../../ui/states.tsx'
import { TimeAgo } from '../../ui/time.tsx'

const shownMax = 6
/** However much happens, the list is read no more often. */
const pauseMs = 1000
const queryKey = ['newest-sandboxes']

/** The sandboxes that were created last, with their states. */
export function NewestSandboxes(): ReactNode {
  const queries = useQueryClient()
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined)
  const { data, error, refetch } = useQuery({
    queryKey,
    queryFn: async ({ signal }) =>
      (await client.page<SandboxInfo[]>('/api/sandboxes', { query: { limit: shownMax }, signal })).items,
  })
  useEvents(({ type }) => {
    if (!type.startsWith('sandbox.') || timer.current !== undefined) return
    timer.current = setTimeout(() => {
      timer.current = undefined
      void queries.invalidateQueries({ queryKey })
    }, pauseMs)
  })
  useEffect(() => () => clearTimeout(timer.current), [])
  return (
    <Panel
      title="Newest sandboxes"
      actions={
        <Link to="/sandboxes" className="text-[13px] text-accent hover:underline">
          All sandboxes
        </Link>
      }
    >
      {error !== null && <ErrorNote error={error} onRetry={() => void refetch()} />}
      {data === undefined && error === null && <Loading />}
      {data?.length === 0 && <p className="text-soft">There is none.</p>}
      <ul className="-my-1">
        {data?.map((info) => (
          <li key={info.sandboxID} className="flex items-center gap-3 py-1">
            <Link
              to="/sandboxes/$sandboxId"
              params={{ sandboxId: info.sandboxID }}
              className="min-w-0 flex-1 truncate font-medium hover:underline"
              title={info.sandboxID}
            >
              {nameOf(info)}
            </Link>
            <bdi className="max-w-32 truncate text-[13px] text-soft max-sm:hidden">{info.templateID}</bdi>
            <span className="shrink-0 text-right text-[13px] text-soft">
              <TimeAgo time={info.startedAt} />
            </span>
            <span className="flex w-24 shrink-0">
              <StateBadge state={info.status} />
            </span>
          </li>
        ))}
      </ul>
    </Panel>
  )
}
