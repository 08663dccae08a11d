/** What was used, as clients read it. Times are `[from, to)`. */
export interface Window {
  from: Date
  to: Date
}

/** Amounts of one window. GiB are 2^30 bytes. */
export interface UsageTotals {
  /** Memory that was allowed, over time. */
  memoryGbSeconds: number
  /** Disk beyond the first 20 GiB of each sandbox, over time while it ran. */
  diskOverageGbSeconds: number
  /** Disk that was allowed, over time while it ran. */
  diskGbSeconds: number
  /** CPUs that were allowed, over time. */
  cpuAllocatedSeconds: number
  /** Processor time that was used. */
  cpuUsedSeconds: number
  egressBytes: number
  ingressBytes: number
}

export interface ModelTotals {
  inputTokens: number
  outputTokens: number
  cacheReadTokens: number
  cacheWriteTokens: number
  /** USD; of models without a price nothing, and then `isCostKnown` is false. */
  modelUsd: number
  isCostKnown: boolean
}

export const noUsage: UsageTotals = {
  ...{ memoryGbSeconds: 0, diskOverageGbSeconds: 0, diskGbSeconds: 0, cpuAllocatedSeconds: 0, cpuUsedSeconds: 0 },
  ...{ egressBytes: 0, ingressBytes: 0 },
}

/** `sandbox`, `key`, `session`, or the value of a tag. */
export type GroupBy = { of: 'sandbox' | 'key' | 'session' } | { of: 'tag'; key: string }

export interface SandboxUsageItem extends UsageTotals {
  sandboxId: string
  name?: string
  status: string
  tags: Record<string, string>
  tagsUpdatedAt?: Date
  keyId?: string
}

export interface SessionUsageItem extends ModelTotals {
  sessionId: string
  model: string
  keyId?: string
}

/** A reading of the counters of a running machine. `epoch`: when the machine was started, from which they count. */
export interface Reading {
  sandboxId: string
  orgId: string
  epoch: Date
  readAt: Date
  cpuUs: number
  sentBytes: number
  receivedBytes: number
  memoryBytes: number
}

/** One UTC minute of a sandbox, as it was measured. */
export interface MeasuredMinute {
  minute: Date
  memoryMbSeconds: number
  measuredSeconds: number
  memoryPeakMb: number
}

/** A time with one size. `endedAt` is absent while it goes on. */
export interface Span {
  startedAt: Date
  endedAt?: Date
  memoryMb: number
}
