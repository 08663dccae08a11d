import type { OrganisationLimits, OwnLimits } from 'atoll-sdk'
import { formatBytes, formatCount, formatUsd } from '../../lib/format.ts'

export type LimitName = keyof OrganisationLimits
type Use = OwnLimits['usage']

export interface LimitFacts {
  label: string
  /** What a number of it counts, where the label does not say. */
  unit?: string
  format: (value: number) => string
  /** What counts against it. */
  used?: (use: Use) => number
}

const mib = 2 ** 20
/** What stands for «no bound» in the answers of the server. */
const unlimited = 1_000_000_000
const unlimitedBytesPerSecond = 2 ** 40

const megabytes = (value: number) => formatBytes(value * mib)
const perSecond = (value: number) => `${formatBytes(value)}/s`

/** The limits of an organisation, those against which something is counted first. */
export const limitFacts: Record<LimitName, LimitFacts> = {
  runningSandboxesMax: {
    label: 'Sandboxes that run',
    format: formatCount,
    used: ({ runningSandboxes }) => runningSandboxes,
  },
  memoryMbMax: { label: 'Memory of those', unit: 'MiB', format: megabytes, used: ({ memoryMB }) => memoryMB },
  cpuCountMax: { label: 'CPUs of those', format: formatCount, used: ({ cpuCount }) => cpuCount },
  sandboxesMax: { label: 'Sandboxes', format: formatCount, used: ({ sandboxes }) => sandboxes },
  sessionsMax: { label: 'Sessions', format: formatCount, used: ({ sessions }) => sessions },
  checkpointsMax: { label: 'Checkpoints', format: formatCount, used: ({ checkpoints }) => checkpoints },
  keysMax: { label: 'API keys', format: formatCount, used: ({ keys }) => keys },
  diskMbMax: { label: 'Disk', unit: 'MiB', format: megabytes },
  budgetUsdPerMonth: { label: 'Budget of a month', unit: 'USD', format: formatUsd },
  webhooksMax: { label: 'Destinations of webhooks', format: formatCount },
  buildsAtOnce: { label: 'Builds at a time', format: formatCount },
  startsAtOnce: { label: 'Starts at a time', format: formatCount },
  eventStreamsMax: { label: 'Open event streams', format: formatCount },
  socketsMax: { label: 'Open WebSockets', format: formatCount },
  requestsPerSecond: { label: 'Requests per second', format: formatCount },
  requestsPerSecondPerKey: { label: 'Requests per second of one key', format: formatCount },
  diskBytesPerSecondMax: { label: 'Disk traffic, each way', unit: 'bytes/s', format: perSecond },
  networkBytesPerSecondMax: { label: 'Network traffic, each way', unit: 'bytes/s', format: perSecond },
  weight: { label: 'Weight against others', unit: '1 to 1000', format: formatCount },
}

export const limitNames = Object.keys(limitFacts) as LimitName[]

/** The bound, or undefined where there is none. */
export function boundOf(limits: OrganisationLimits, name: LimitName): number | undefined {
  const value = limits[name]
  if (value === null || value === undefined) return undefined
  const isNone =
    name === 'diskBytesPerSecondMax' || name === 'networkBytesPerSecondMax'
      ? value >= unlimitedBytesPerSecond
      : value >= unlimited
  return isNone ? undefined : value
}

export function limitText(limits: OrganisationLimits, name: LimitName): string {
  const bound = boundOf(limits, name)
  return bound === undefined ? 'no bound' : limitFacts[name].format(bound)
}

/** What is typed; empty or absent: the default of the installation. */
export type LimitDraft = Partial<Record<LimitName, string>>

/** The limits that differ from those of before. `null` is the default again. */
export function changedLimits(draft: LimitDraft, before: OrganisationLimits): OrganisationLimits {
  const changed: OrganisationLimits = {}
  for (const name of limitNames) {
    const text = draft[name] ?? ''
    const value = text === '' ? null : Number(text)
    if (value !== (before[name] ?? null)) changed[name] = value
  }
  return changed
}
