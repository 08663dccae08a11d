import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { SessionInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { client } from '../../account/client.ts'
import { StateBadge } from '../../ui/badge.tsx'
import { Panel } from '../../ui/page.tsx'
import { ErrorNote, Loading } from '../../ui/states.tsx'
import { TimeAgo } from '../../ui/time.tsx'

const shownMax = 6

/** The sessions that were created last, with what their agents do. */
export function NewestSessions(): ReactNode {
  const { data, error, refetch } = useQuery({
    queryKey: ['sessions', 'newest'],
    queryFn: async ({ signal }) =>
      (await client.json<{ data: SessionInfo[] }>('GET', '/v1/sessions', { query: { limit: shownMax }, signal })).data,
  })
  return (
    <Panel
      title="Newest sessions"
      actions={
        <Link to="/sessions" className="text-[13px] text-accent hover:underline">
          All sessions
        </Link>
      }
    >
      {error !== null && <ErrorNote error={error} onRetry={() => void refetch()} />}
      {data === undefined && error === null && <Loading />}
      {data?.length === 0 && <p className="text-soft">There is none.</p>}
      <ul className="-my-1">
        {data?.map(({ id, name, project, createdAt, activity }) => (
          <li key={id} className="flex items-center gap-3 py-1">
            <Link
              to="/sessions/$sessionId"
              params={{ sessionId: id }}
              className="min-w-0 flex-1 truncate font-medium hover:underline"
              title={project.title}
            >
              <bdi>{name ?? (project.title === '' ? id : project.title)}</bdi>
            </Link>
            <span className="shrink-0 text-right text-[13px] text-soft">
              <TimeAgo time={createdAt} />
            </span>
            <span className="flex w-24 shrink-0">
              <StateBadge state={activity} />
            </span>
          </li>
        ))}
      </ul>
    </Panel>
  )
}
