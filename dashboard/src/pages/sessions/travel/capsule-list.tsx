import { useQuery, useQueryClient } from '@tanstack/react-query'
import type { SessionInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { Badge } from '../../../ui/badge.tsx'
import { Button } from '../../../ui/button.tsx'
import { Confirm } from '../../../ui/dialog.tsx'
import { ErrorNote, Loading } from '../../../ui/states.tsx'
import { TimeAgo } from '../../../ui/time.tsx'
import { sessionOf } from '../use-session.ts'

/** The links of a session that work. Their addresses are known to nobody any more, so they can only be revoked. */
export function CapsuleList({ session }: { session: SessionInfo }): ReactNode {
  const queries = useQueryClient()
  const queryKey = ['session', session.id, 'capsules']
  const { capsules } = sessionOf(session)
  const list = useQuery({ queryKey, queryFn: ({ signal }) => capsules.list({ signal }) })
  if (list.isError) return <ErrorNote error={list.error} onRetry={() => void list.refetch()} />
  if (list.data === undefined) return <Loading rows={1} label="Reading the links" />
  if (list.data.length === 0) return <p className="text-[13px] text-soft">No link of this session works now.</p>
  return (
    <section aria-label="Links that work" className="flex flex-col gap-1">
      <h3 className="font-medium">Links that work</h3>
      <ul className="max-h-64 overflow-y-auto rounded-md border">
        {list.data.map(({ id, scope, event, expiresAt, createdAt, forks, reason }) => (
          <li key={id} className="flex flex-wrap items-center gap-x-3 gap-y-1 border-b px-3 py-2 last:border-b-0">
            <Badge tone={scope === 'fork' ? 'warn' : 'plain'}>{scope}</Badge>
            <span className="min-w-0 flex-1 text-[13px]">
              up to event {event}
              <span className="block text-soft">
                made <TimeAgo time={createdAt} />
                {reason === 'error' && ' of a turn that failed'}, ends <TimeAgo time={expiresAt} />
                {forks > 0 && `, ${forks} begun from it`}
              </span>
            </span>
            <Confirm
              trigger={
                <Button size="small" look="danger">
                  Revoke
                </Button>
              }
              title="Revoke the link?"
              action="Revoke"
              onConfirm={async () => {
                await capsules.revoke(id)
                await queries.invalidateQueries({ queryKey })
              }}
            >
              It shows nothing any more, to nobody. Sessions that were begun from it go on.
            </Confirm>
          </li>
        ))}
      </ul>
    </section>
  )
}
