import type { TurnInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { DiffStat } from '../../../diff/diff-stat.tsx'
import { formatBytes, formatCount, formatSeconds, formatUsd } from '../../../lib/format.ts'
import { Badge } from '../../../ui/badge.tsx'
import { TimeAgo } from '../../../ui/time.tsx'

/** What is known of a turn in one line: how it ended, how long it took, what it has used and changed, and what is kept of it. */
export function TurnFacts({ turn, place }: { turn: TurnInfo; place: number }): ReactNode {
  const { startedAt, durationMs, usage, files, checkpoint, left, result } = turn
  return (
    <div className="flex min-w-0 flex-wrap items-center gap-x-3 gap-y-1 text-[13px] text-soft">
      <h3 className="text-sm font-semibold text-ink">Turn {place}</h3>
      {result === null && <Badge tone="accent">runs</Badge>}
      {result !== null && result !== 'success' && <Badge tone="bad">{result.replaceAll('_', ' ')}</Badge>}
      {left && (
        <Badge tone="warn" title="A rewind has left this turn. The session can be taken there again.">
          left by a rewind
        </Badge>
      )}
      <TimeAgo time={startedAt} />
      {durationMs !== null && <span title="How long it took">{formatSeconds(durationMs / 1000)}</span>}
      <span title="Tokens that the model has read and written">{`${formatCount(usage.inputTokens)} + ${formatCount(usage.outputTokens)} tokens`}</span>
      {usage.totalCostUsd !== undefined && <span title="Cost of its model calls">{formatUsd(usage.totalCostUsd)}</span>}
      {files !== null && <DiffStat added={files.addedLines} deleted={files.removedLines} />}
      {checkpoint === null ? (
        turn.endedAt !== null && <Badge title="What begins here begins at the checkpoint before">no checkpoint</Badge>
      ) : (
        <Badge
          title={
            checkpoint.kind === 'full'
              ? 'The checkpoint has disk and memory: processes of then run again'
              : 'The checkpoint has the disk alone: processes do not run again'
          }
        >
          {checkpoint.kind === 'full' ? 'disk and memory' : 'disk'} {formatBytes(checkpoint.sizeBytes)}
        </Badge>
      )}
    </div>
  )
}
