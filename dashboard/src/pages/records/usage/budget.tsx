import { useQuery } from '@tanstack/react-query'
import type { OwnLimits } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { serverNow } from '../../../lib/clock.ts'
import { formatUsd } from '../../../lib/format.ts'
import { Meter } from '../../../ui/meter.tsx'
import { Panel } from '../../../ui/page.tsx'
import { ErrorNote, Loading } from '../../../ui/states.tsx'
import { amountsOf } from './amounts.ts'

const month = new Intl.DateTimeFormat(undefined, { month: 'long', year: 'numeric', timeZone: 'UTC' })

/** What is left of the budget of the calendar month, which is one of UTC. */
export function Budget({ limits }: { limits: OwnLimits['limits'] }): ReactNode {
  const now = new Date(serverNow())
  const from = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), 1))
  const budget = limits.budgetUsdPerMonth
  const hasBudget = budget !== null && budget !== undefined
  const used = useQuery({
    queryKey: ['usage', 'budget', from.toISOString()],
    enabled: hasBudget,
    queryFn: ({ signal }) => amountsOf({ from, to: new Date(serverNow()) }, undefined, signal),
  })
  return (
    <Panel title={`Budget of ${month.format(now)}`}>
      {!hasBudget ? (
        <p className="text-soft">None. The operator can give the organisation one for each calendar month.</p>
      ) : used.isPending ? (
        <Loading label="Loading the budget" rows={1} />
      ) : used.isError ? (
        <ErrorNote error={used.error} onRetry={() => void used.refetch()} />
      ) : (
        <BudgetUse
          used={used.data.computeUsd + used.data.modelUsd}
          budget={budget}
          isCostKnown={used.data.isCostKnown}
        />
      )}
    </Panel>
  )
}

function BudgetUse({ used, budget, isCostKnown }: { used: number; budget: number; isCostKnown: boolean }): ReactNode {
  const share = budget > 0 ? Math.floor((100 * used) / budget) : 100
  return (
    <div className="flex flex-col gap-2">
      <Meter
        label={used >= budget ? 'Used up' : `${share} % used`}
        value={used}
        max={budget}
        text={`${isCostKnown ? '' : 'at least '}${formatUsd(used)} of ${formatUsd(budget)}`}
      />
      <p className="text-[13px] text-soft">
        {used >= budget
          ? 'What ran hibernates with its memory. Starts and wakes are refused until the month ends (UTC) or the operator raises the budget.'
          : 'At 100 % what runs hibernates with its memory, and nothing starts until the month ends (UTC).'}
      </p>
    </div>
  )
}
