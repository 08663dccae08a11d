import { formatBytes, formatCount, formatUsd } from '../../../lib/format.ts'
import type { Amounts } from './amounts.ts'
import type { Measure } from './search.ts'

export interface Series {
  label: string
  of: (amounts: Amounts) => number
}

export interface MeasureFacts {
  label: string
  /** Stacked from the lower edge on. */
  series: readonly Series[]
  format: (value: number) => string
}

/** What can be drawn by day, and how its numbers are written. */
export const measureFacts: Record<Measure, MeasureFacts> = {
  cost: {
    label: 'Cost',
    series: [
      { label: 'Sandboxes', of: ({ computeUsd }) => computeUsd },
      { label: 'Models', of: ({ modelUsd }) => modelUsd },
    ],
    format: formatUsd,
  },
  memory: {
    label: 'Memory',
    series: [{ label: 'Memory', of: ({ memoryGbHours }) => memoryGbHours }],
    format: (value) => `${formatAmount(value)} GiB·h`,
  },
  cpu: {
    label: 'Processor time',
    series: [{ label: 'Processor time', of: ({ cpuHours }) => cpuHours }],
    format: (value) => `${formatAmount(value)} h`,
  },
  disk: {
    label: 'Disk',
    series: [{ label: 'Disk', of: ({ diskGbHours }) => diskGbHours }],
    format: (value) => `${formatAmount(value)} GiB·h`,
  },
  network: {
    label: 'Network',
    series: [
      { label: 'Sent', of: ({ egressBytes }) => egressBytes },
      { label: 'Received', of: ({ ingressBytes }) => ingressBytes },
    ],
    format: formatBytes,
  },
  tokens: {
    label: 'Tokens',
    series: [
      { label: 'Read by models', of: ({ inputTokens }) => inputTokens },
      { label: 'Written by models', of: ({ outputTokens }) => outputTokens },
    ],
    format: formatCount,
  },
}

const fine = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 3 })
const coarse = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 })

/** Three digits that say something, without an exponent. */
export function formatAmount(value: number): string {
  return Math.abs(value) < 1000 ? fine.format(value) : coarse.format(value)
}
