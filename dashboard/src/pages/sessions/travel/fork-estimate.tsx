import { keepPreviousData, useQuery } from '@tanstack/react-query'
import type { ForkEstimate as Estimate, SessionInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { formatBytes, formatCount, formatUsd } from '../../../lib/format.ts'
import { ErrorNote, Loading } from '../../../ui/states.tsx'
import { sessionOf } from '../use-session.ts'

/** What so many forks of a session would take, before they are made. */
export function ForkEstimate({ session, count }: { session: SessionInfo; count: number }): ReactNode {
  const estimate = useQuery({
    queryKey: ['session', session.id, 'estimate', count],
    placeholderData: keepPreviousData,
    queryFn: ({ signal }) => sessionOf(session).estimate(count, { signal }),
  })
  if (estimate.isError) return <ErrorNote error={estimate.error} onRetry={() => void estimate.refetch()} />
  if (estimate.data === undefined) return <Loading label="Estimating" rows={1} />
  const { sessionsLeft } = estimate.data
  return (
    <div className="rounded-md bg-panel px-3 py-2 text-[13px]" aria-live="polite">
      <dl className="flex flex-wrap gap-x-6 gap-y-1">
        {factsOf(estimate.data).map(([name, value]) => (
          <div key={name} className="flex gap-1.5">
            <dt className="text-soft">{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      {sessionsLeft !== null && sessionsLeft < count && (
        <p className="mt-1 text-warn">
          The organisation may have {formatCount(sessionsLeft)} more {sessionsLeft === 1 ? 'session' : 'sessions'} at a
          time: not all of these would start.
        </p>
      )}
    </div>
  )
}

function factsOf({ fork, diskBytes, memoryBytes, tokensPerTurn, costPerTurnUsd }: Estimate): [string, string][] {
  const { now, max } = memoryBytes
  const memory =
    now === null
      ? max === null
        ? 'not known'
        : `up to ${formatBytes(max)}`
      : `about ${formatBytes(now)}${max === null ? '' : `, up to ${formatBytes(max)}`}`
  const tokens =
    tokensPerTurn === null
      ? 'not known before the first turn'
      : `about ${formatCount(tokensPerTurn.input + tokensPerTurn.output)} tokens`
  const price =
    costPerTurnUsd === undefined
      ? ''
      : `, ${formatUsd(costPerTurnUsd)} each, ${formatUsd(costPerTurnUsd * fork)} together`
  return [
    [
      'Disk',
      diskBytes === null
        ? 'not known before the first checkpoint'
        : `at most ${formatBytes(diskBytes)} when they begin`,
    ],
    ['Memory', memory],
    ['A turn of each', `${tokens}${price}`],
  ]
}
