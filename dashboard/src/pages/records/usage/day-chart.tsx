import 'uplot/dist/uPlot.min.css'
import { type ReactNode, useEffect, useRef, useState } from 'react'
import uPlot from 'uplot'
import { useTheme } from '../../../lib/theme.ts'
import type { DayAmounts } from './amounts.ts'
import type { MeasureFacts } from './measures.ts'

const heightPx = 260
const barShare = 0.7
const barPxMax = 48
const axisPx = 72
const colors = ['--accent', '--warn'] as const

const dayName = new Intl.DateTimeFormat(undefined, { weekday: 'short', day: 'numeric', month: 'short' })

/** A bar for each day, with the series of the measure on top of each other. It is read as a picture: a table beside it has the numbers. */
export function DayChart({ days, measure }: { days: readonly DayAmounts[]; measure: MeasureFacts }): ReactNode {
  const box = useRef<HTMLDivElement>(null)
  const { isDark } = useTheme()
  const [pointed, setPointed] = useState<number>()
  useEffect(() => {
    const element = box.current
    if (element === null) return undefined
    const chart = new uPlot(optionsOf(element, measure, setPointed), dataOf(days, measure), element)
    const observer = new ResizeObserver(() => chart.setSize({ width: element.clientWidth, height: heightPx }))
    observer.observe(element)
    return () => {
      observer.disconnect()
      chart.destroy()
    }
    // Colors are read from the style sheet when the chart is made.
  }, [days, measure, isDark])
  const day = pointed === undefined ? undefined : days[pointed]
  return (
    <div className="min-w-0">
      <div className="mb-2 flex min-h-6 flex-wrap items-center gap-x-4 gap-y-1 text-[13px]">
        {measure.series.map(({ label, of }, index) => (
          <span key={label} className="inline-flex items-center gap-1.5">
            <span
              aria-hidden="true"
              className="size-2.5 rounded-sm"
              style={{ background: `var(${colors[index] ?? colors[0]})` }}
            />
            {label}
            {day !== undefined && <span className="tabular-nums">{measure.format(of(day))}</span>}
          </span>
        ))}
        {day !== undefined && <span className="ml-auto text-soft">{dayName.format(day.day.from)}</span>}
      </div>
      <div
        ref={box}
        role="img"
        aria-label={`${measure.label} by day, ${days.length} days. The table has the numbers.`}
        className="w-full overflow-hidden"
        style={{ height: heightPx }}
      />
    </div>
  )
}

/** The upper series comes first, so that the lower one is drawn over its foot. */
function dataOf(days: readonly DayAmounts[], { series }: MeasureFacts): uPlot.AlignedData {
  const stacked = series.map((_, index) =>
    days.map((amounts) => series.slice(0, index + 1).reduce((sum, { of }) => sum + of(amounts), 0)),
  )
  return [days.map(({ day }) => day.from.getTime() / 1000), ...stacked.reverse()]
}

function optionsOf(
  element: HTMLElement,
  { series, format }: MeasureFacts,
  onPoint: (index: number | undefined) => void,
): uPlot.Options {
  const style = getComputedStyle(element)
  const color = (name: string) => style.getPropertyValue(name).trim()
  const font = `12px ${style.fontFamily}`
  const axis: uPlot.Axis = {
    stroke: color('--soft'),
    font,
    grid: { stroke: color('--line'), width: 1 },
    ticks: { show: false },
  }
  return {
    width: element.clientWidth,
    height: heightPx,
    legend: { show: false },
    cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
    padding: [12, 12, 0, 0],
    scales: {
      x: { range: (_chart, first, last) => [first - halfDay, last + halfDay] },
      y: { range: (_chart, _least, most) => [0, most > 0 ? 1.1 * most : 1] },
    },
    axes: [
      { ...axis, grid: { show: false }, values: (_chart, splits) => splits.map((at) => dayLabel.format(at * 1000)) },
      { ...axis, size: axisPx, values: (_chart, splits) => splits.map((value) => format(value)) },
    ],
    series: [
      {},
      ...series
        .map((_, index) => ({
          fill: color(colors[index] ?? colors[0]),
          width: 0,
          paths: uPlot.paths.bars?.({ size: [barShare, barPxMax], radius: 0.15 }),
          points: { show: false },
        }))
        .reverse()
        .map(({ paths, ...one }) => (paths === undefined ? one : { ...one, paths })),
    ],
    hooks: { setCursor: [({ cursor }) => onPoint(cursor.idx ?? undefined)] },
  }
}

const halfDay = 43_200
const dayLabel = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short' })
