import type { ReactNode } from 'react'
import { formatBytes, formatCount, formatUsd } from '../../../lib/format.ts'
import type { Amounts } from './amounts.ts'
import { formatAmount } from './measures.ts'

/** The sums of the window. */
export function Totals({ amounts, hasModels }: { amounts: Amounts; hasModels: boolean }): ReactNode {
  const { computeUsd, modelUsd, memoryGbHours, cpuHours, diskGbHours, egressBytes, ingressBytes } = amounts
  const { inputTokens, outputTokens, isCostKnown } = amounts
  const figures: readonly (readonly [name: string, value: string, note: string])[] = [
    [
      'Cost',
      `${isCostKnown ? '' : 'at least '}${formatUsd(computeUsd + modelUsd)}`,
      hasModels
        ? `${formatUsd(computeUsd)} of sandboxes, ${formatUsd(modelUsd)} of models`
        : 'of sandboxes; models have no tags',
    ],
    ['Memory', `${formatAmount(memoryGbHours)} GiB·h`, 'allowed, while they ran'],
    ['Processor time', `${formatAmount(cpuHours)} h`, 'used'],
    ['Disk', `${formatAmount(diskGbHours)} GiB·h`, 'allowed, while they ran'],
    ['Network', formatBytes(egressBytes + ingressBytes), `${formatBytes(egressBytes)} sent`],
    ...(hasModels
      ? ([['Tokens', formatCount(inputTokens + outputTokens), `${formatCount(outputTokens)} written`]] as const)
      : []),
  ]
  return (
    <dl className="grid grid-cols-2 gap-3 sm:grid-cols-3 2xl:grid-cols-6">
      {figures.map(([name, value, note]) => (
        <div key={name} className="min-w-0 rounded-lg border bg-raised px-4 py-3">
          <dt className="text-[13px] text-soft">{name}</dt>
          <dd>
            <span className="block text-lg font-semibold tabular-nums">{value}</span>
            <span className="block text-[13px] text-soft">{note}</span>
          </dd>
        </div>
      ))}
    </dl>
  )
}
