import type { ReactNode } from 'react'
import { formatCount, formatSeconds, formatUsd } from '../../../lib/format.ts'
import { cx } from '../../../ui/cx.ts'
import type { ResultRow } from '../stream/rows.ts'
import { endings, wordsOf } from './advice.ts'
import { plainText } from './plain-text.ts'
import { RowFrame } from './row-frame.tsx'

const reasonMax = 2000

/** How a turn ended, how long it took and what it used. */
export function TurnResult({ row: { event, result, reason } }: { row: ResultRow }): ReactNode {
  const { subtype, num_turns: calls, duration_ms: durationMs, usage, total_cost_usd: cost } = result
  const facts = [
    formatSeconds(durationMs / 1000),
    `${formatCount(calls)} ${calls === 1 ? 'call' : 'calls'} of the model`,
    `${formatCount(usage.input_tokens)} tokens in, ${formatCount(usage.output_tokens)} out`,
    ...(cost === undefined ? [] : [formatUsd(cost)]),
  ]
  return (
    <RowFrame event={event}>
      <div
        className={cx(
          'px-1 text-[13px]',
          subtype === 'success' ? 'text-soft' : 'rounded-md bg-warn-faint px-3 py-1.5 text-warn',
        )}
      >
        <p className="tabular-nums">
          {subtype === 'success' ? 'Turn done: ' : <strong className="font-medium">{endings[subtype]} </strong>}
          {facts.join(' · ')}
        </p>
        {reason !== '' && (
          <p className="break-words whitespace-pre-wrap">{plainText(wordsOf(reason).slice(0, reasonMax))}</p>
        )}
      </div>
    </RowFrame>
  )
}
