import type { SessionInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { useMay } from '../../../account/account.tsx'
import { formatCount, formatUsd } from '../../../lib/format.ts'
import { Meter } from '../../../ui/meter.tsx'
import { Facts, Panel } from '../../../ui/page.tsx'
import { BudgetForm } from './budget-form.tsx'

/** What the session has taken, and what it may take. */
export function SessionUsage({ session }: { session: SessionInfo }): ReactNode {
  const may = useMay()
  const { usage, agent, activity, status, id } = session
  const { inputTokens, cacheReadTokens, cacheWriteTokens, outputTokens, totalCostUsd } = usage
  const { maxTokens, maxCostUsd } = agent
  const tokens = inputTokens + outputTokens
  return (
    <div className="flex flex-col gap-4">
      {activity === 'paused' && (
        <p role="status" className="rounded-md bg-warn-faint px-3 py-2 text-warn">
          The budget is spent, and the session waits. With a higher limit it goes on by itself.
        </p>
      )}
      <Panel title="Taken so far">
        <div className="flex flex-col gap-4">
          {maxCostUsd !== undefined && totalCostUsd !== undefined && (
            <Meter
              label="Cost"
              value={totalCostUsd}
              max={maxCostUsd}
              text={`${formatUsd(totalCostUsd)} of ${formatUsd(maxCostUsd)}`}
            />
          )}
          {maxTokens !== undefined && (
            <Meter
              label="Tokens"
              value={tokens}
              max={maxTokens}
              text={`${formatCount(tokens)} of ${formatCount(maxTokens)}`}
            />
          )}
          <Facts
            items={[
              ['Cost', totalCostUsd === undefined ? 'unknown: the model has no price' : formatUsd(totalCostUsd)],
              ['Input', `${formatCount(inputTokens)} tokens`],
              ['… from a cache', `${formatCount(cacheReadTokens)} tokens`],
              ['… into a cache', `${formatCount(cacheWriteTokens)} tokens`],
              ['Output', `${formatCount(outputTokens)} tokens`],
            ]}
          />
        </div>
      </Panel>
      {status === 'running' && may('session:write') && (
        <BudgetForm key={`${id} ${maxTokens} ${maxCostUsd}`} session={session} />
      )}
    </div>
  )
}
