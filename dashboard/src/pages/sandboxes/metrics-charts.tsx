import type { SandboxInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { formatBytes } from '../../lib/format.ts'
import { Panel } from '../../ui/page.tsx'
import type { Sample } from './metrics.tsx'
import { type Line, TimeChart } from './time-chart.tsx'

/** Between samples that lie further apart the sandbox did not run. */
const gapMs = 45_000
const mebibyte = 1024 * 1024

/** CPU, memory, disk and network of the last hour. */
export function MetricsCharts({
  samples,
  info,
  diskLimitBytes,
}: {
  samples: readonly Sample[]
  info: SandboxInfo
  diskLimitBytes: number | undefined
}): ReactNode {
  const points = withGaps(samples)
  const times = points.map(({ atMs }) => atMs / 1000)
  const chart = (title: string, lines: readonly Line[], format: (value: number) => string, max?: number) => (
    <Panel title={title}>
      <TimeChart
        label={title}
        times={times}
        lines={lines}
        format={format}
        isBytes={title !== 'CPU'}
        {...(max === undefined ? {} : { max })}
      />
    </Panel>
  )
  const values = (of: (sample: Sample) => number | null) =>
    points.map(({ sample }) => (sample === undefined ? null : of(sample)))
  const rates = (of: (sample: Sample) => number) => points.map((point, index) => rateOf(points[index - 1], point, of))
  const perSecond = (value: number) => `${formatBytes(value)}/s`
  return (
    <div className="grid grid-cols-1 gap-4 lg:grid-cols-2">
      {chart(
        'CPU',
        [{ label: 'CPU', tone: 'accent', values: values(({ cpuPercent }) => cpuPercent) }],
        (value) => `${Math.round(value)} %`,
        info.cpuCount * 100,
      )}
      {chart(
        'Memory',
        [{ label: 'Memory', tone: 'accent', values: values(({ memoryBytes }) => memoryBytes) }],
        formatBytes,
        info.memoryMB * mebibyte,
      )}
      {chart(
        diskLimitBytes === undefined ? 'Disk' : `Disk, of ${formatBytes(diskLimitBytes)}`,
        [{ label: 'Disk', tone: 'accent', values: values(({ diskBytes }) => diskBytes) }],
        formatBytes,
      )}
      {chart(
        'Network',
        [
          { label: 'Received', tone: 'accent', values: rates(({ networkReceivedBytes }) => networkReceivedBytes) },
          { label: 'Sent', tone: 'warn', values: rates(({ networkSentBytes }) => networkSentBytes) },
        ],
        perSecond,
      )}
    </div>
  )
}

interface Point {
  atMs: number
  sample: Sample | undefined
}

/** A point without a sample breaks the lines. */
function withGaps(samples: readonly Sample[]): Point[] {
  const points: Point[] = []
  for (const sample of samples) {
    const atMs = Date.parse(sample.at)
    const before = points.at(-1)
    if (before !== undefined && atMs - before.atMs > gapMs) points.push({ atMs: before.atMs + 1000, sample: undefined })
    points.push({ atMs, sample })
  }
  return points
}

/** Bytes a second of a counter, which begins anew when the sandbox wakes. */
function rateOf(before: Point | undefined, now: Point, of: (sample: Sample) => number): number | null {
  if (before?.sample === undefined || now.sample === undefined) return null
  const bytes = of(now.sample) - of(before.sample)
  const seconds = (now.atMs - before.atMs) / 1000
  return bytes < 0 || seconds <= 0 ? null : bytes / seconds
}
