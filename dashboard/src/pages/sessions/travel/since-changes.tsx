import { queryOptions, useQuery } from '@tanstack/react-query'
import type { SessionComparison, SessionInfo, TurnInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { ComparisonView } from '../../../diff/comparison-view.tsx'
import { formatCount, formatSeconds, formatUsd } from '../../../lib/format.ts'
import { EmptyState, ErrorNote, Loading } from '../../../ui/states.tsx'
import { sessionOf } from '../use-session.ts'

/** How the working folder is now, against the end of the turn of a message. */
export function sinceQuery(session: SessionInfo, messageId: string) {
  return queryOptions({
    queryKey: ['session', session.id, 'diff', messageId],
    queryFn: ({ signal }) => sessionOf(session).diff(messageId, { signal }),
  })
}

/** What has changed from the end of a turn to the present: files with their lines, tokens and time. */
export function SinceChanges({ session, turn }: { session: SessionInfo; turn: TurnInfo }): ReactNode {
  const since = useQuery(sinceQuery(session, turn.messageId))
  if (since.isError) return <ErrorNote error={since.error} onRetry={() => void since.refetch()} />
  if (since.data === undefined) return <Loading label="Comparing with the present" />
  const { files, isCut } = since.data
  return (
    <>
      <Taken comparison={since.data} />
      {files.length === 0 ? (
        <EmptyState title="No file differs from the present" />
      ) : (
        <ComparisonView
          key={`${turn.messageId} ${since.dataUpdatedAt}`}
          className="flex-1"
          label="Files changed since this turn"
          files={files}
          isPartial={isCut}
          loadPatch={() => sessionOf(session).patchStream(turn.messageId)}
        />
      )}
    </>
  )
}

function Taken({ comparison: { usage, durationMs, folder } }: { comparison: SessionComparison }): ReactNode {
  const { inputTokens, outputTokens, totalCostUsd } = usage.this
  const cost = totalCostUsd === undefined ? '' : `, ${formatUsd(totalCostUsd)}`
  const time = durationMs.this === null ? '' : `, ${formatSeconds(durationMs.this / 1000)} of work`
  return (
    <p className="mb-2 text-[13px] text-soft">
      From then to now, in <code className="font-mono">{folder}</code>. The whole session has taken{' '}
      {formatCount(inputTokens + outputTokens)} tokens{cost}
      {time}.
    </p>
  )
}
