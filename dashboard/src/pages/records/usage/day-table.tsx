import type { ReactNode } from 'react'
import type { DayAmounts } from './amounts.ts'
import type { MeasureFacts } from './measures.ts'

const day = new Intl.DateTimeFormat(undefined, { weekday: 'short', day: 'numeric', month: 'short' })

/** The numbers of the chart, the newest day first. */
export function DayTable({ days, measure }: { days: readonly DayAmounts[]; measure: MeasureFacts }): ReactNode {
  return (
    <div
      role="region"
      aria-label={`${measure.label} by day, as a table`}
      tabIndex={0}
      className="max-h-[18rem] overflow-auto rounded-md border"
    >
      <table className="w-full text-[13px]">
        <caption className="sr-only">{measure.label} by day</caption>
        <thead className="sticky top-0 bg-panel text-soft">
          <tr>
            <th scope="col" className="px-2 py-1.5 text-left font-medium">
              Day
            </th>
            {measure.series.map(({ label }) => (
              <th key={label} scope="col" className="px-2 py-1.5 text-right font-medium">
                {label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {days.toReversed().map((amounts) => (
            <tr key={amounts.day.date} className="border-t">
              <th scope="row" className="px-2 py-1 text-left font-normal whitespace-nowrap">
                {day.format(amounts.day.from)}
              </th>
              {measure.series.map(({ label, of }) => (
                <td key={label} className="px-2 py-1 text-right whitespace-nowrap tabular-nums">
                  {measure.format(of(amounts))}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}
