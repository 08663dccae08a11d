import { type ReactNode, Suspense } from 'react'
import { lazyPart } from '../../../lib/part.ts'
import { inputLook } from '../../../ui/field.tsx'
import { Panel } from '../../../ui/page.tsx'
import { Loading } from '../../../ui/states.tsx'
import type { DayAmounts } from './amounts.ts'
import { DayTable } from './day-table.tsx'
import { measureFacts } from './measures.ts'
import { type Measure, measures } from './search.ts'

const DayChart = lazyPart(async () => (await import('./day-chart.tsx')).DayChart)

/** What was used each day, as a chart and as a table. */
export function ByDay({
  days,
  chosen,
  onChoose,
}: {
  days: readonly DayAmounts[]
  chosen: Measure
  onChoose: (measure: Measure) => void
}): ReactNode {
  const measure = measureFacts[chosen]
  return (
    <Panel
      title="By day"
      actions={
        <select
          aria-label="Measure"
          value={chosen}
          onChange={({ target }) => onChoose(target.value as Measure)}
          className={inputLook}
        >
          {measures.map((one) => (
            <option key={one} value={one}>
              {measureFacts[one].label}
            </option>
          ))}
        </select>
      }
    >
      <div className="grid items-start gap-4 lg:grid-cols-[minmax(0,1fr)_22rem]">
        <Suspense fallback={<Loading label="Loading the chart" rows={6} />}>
          <DayChart days={days} measure={measure} />
        </Suspense>
        <DayTable days={days} measure={measure} />
      </div>
    </Panel>
  )
}
