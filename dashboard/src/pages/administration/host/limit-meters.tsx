import type { OwnLimits } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { Meter } from '../../../ui/meter.tsx'
import { boundOf, limitFacts, limitNames } from '../limits.ts'

/** What an organisation has at this moment, against what it may have. */
export function LimitMeters({ limits, usage }: OwnLimits): ReactNode {
  return (
    <div className="grid gap-x-6 gap-y-3 sm:grid-cols-2">
      {limitNames.map((name) => {
        const { label, format, used } = limitFacts[name]
        if (used === undefined) return null
        const [value, bound] = [used(usage), boundOf(limits, name)]
        return (
          <Meter
            key={name}
            label={label}
            value={value}
            max={bound ?? 0}
            text={bound === undefined ? `${format(value)}, no bound` : `${format(value)} of ${format(bound)}`}
          />
        )
      })}
    </div>
  )
}
