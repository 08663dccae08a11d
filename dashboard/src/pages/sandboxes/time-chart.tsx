import 'uplot/dist/uPlot.min.css'
import { useEffect, useEffectEvent, useRef, type ReactNode } from 'react'
import UPlot from 'uplot'
import { useTheme } from '../../lib/theme.ts'

export interface Line {
  label: string
  /** A color of the theme. */
  tone: 'accent' | 'warn'
  /** One for each time; null breaks the line. */
  values: readonly (number | null)[]
}

interface TimeChartProps {
  label: string
  /** Seconds since 1970, ascending. */
  times: readonly number[]
  lines: readonly Line[]
  format: (value: number) => string
  /** Lines of the grid at round numbers of KiB, MiB …, not of thousands. */
  isBytes?: boolean
  /** The value at the upper edge; absent: by the values. */
  max?: number
}

const heightPx = 180
const axisWidthPx = 76
/** At least so much time is shown. */
const spanSeconds = 3600
/** 1 to 2⁵⁰ bytes. */
const byteSteps = Array.from({ length: 51 }, (_, power) => 2 ** power)
const hour = new Intl.DateTimeFormat(undefined, { timeStyle: 'short' })
const moment = new Intl.DateTimeFormat(undefined, { timeStyle: 'medium' })

/** Lines over time, in the reader's zone, with their values under the pointer. For screen readers it is one picture: give a table beside it. */
export function TimeChart({ label, times, lines, format, isBytes = false, max }: TimeChartProps): ReactNode {
  const box = useRef<HTMLDivElement>(null)
  const chart = useRef<UPlot>(undefined)
  const { isDark } = useTheme()
  const data = (): UPlot.AlignedData => [[...times], ...lines.map(({ values }) => [...values])]
  const make = useEffectEvent((parent: HTMLElement) => {
    const color = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim()
    const axis = { stroke: color('soft'), grid: { stroke: color('line'), width: 1 }, ticks: { show: false } }
    return new UPlot(
      {
        width: parent.clientWidth,
        height: heightPx,
        scales: {
          x: { range: (_chart, first, last) => [Math.min(first, last - spanSeconds), last] },
          y: { range: (_chart, _least, most) => [0, max ?? Math.max(isBytes ? 1024 : 1, (most ?? 0) * 1.1)] },
        },
        axes: [
          { ...axis, values: (_chart, splits) => splits.map((seconds) => hour.format(seconds * 1000)) },
          {
            ...axis,
            size: axisWidthPx,
            values: (_chart, splits) => splits.map(format),
            ...(isBytes ? { incrs: byteSteps } : {}),
          },
        ],
        series: [
          {
            label: 'Time',
            value: (_chart: UPlot, seconds: number | null) => (seconds === null ? '–' : moment.format(seconds * 1000)),
          },
          ...lines.map((line) => ({
            label: line.label,
            stroke: color(line.tone),
            fill: `${color(line.tone)}24`,
            width: 1.5,
            points: { show: false },
            value: (_chart: UPlot, value: number | null) => (value === null ? '–' : format(value)),
          })),
        ],
        cursor: { drag: { x: false, y: false } },
      },
      data(),
      parent,
    )
  })
  useEffect(() => {
    const parent = box.current
    if (parent === null) return undefined
    const made = make(parent)
    chart.current = made
    const observer = new ResizeObserver(() => made.setSize({ width: parent.clientWidth, height: heightPx }))
    observer.observe(parent)
    return () => {
      observer.disconnect()
      made.destroy()
      chart.current = undefined
    }
    // A canvas keeps its colors, and a chart the limit that it was made with.
  }, [isDark, max])
  const draw = useEffectEvent(() => chart.current?.setData(data()))
  useEffect(() => draw(), [times, lines])
  return (
    <div
      ref={box}
      role="img"
      aria-label={`${label} over the last hour; the table below has the values`}
      className="min-w-0"
    />
  )
}
