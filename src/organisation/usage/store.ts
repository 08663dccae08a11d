import type {
  MeasuredMinute,
  ModelTotals,
  Reading,
  SandboxUsageItem,
  SessionUsageItem,
  Span,
  UsageTotals,
  Window,
} from './usage.ts'

/** The port to what was used. Spans of sandboxes and tokens of sessions are written by the database itself, with what they follow from. */
export interface UsageStore {
  /**
   * Counts what the counters have risen by since the last reading of each machine, in one transaction with the readings. A reading that is not
   * newer changes nothing.
   */
  countReadings(readings: readonly Reading[]): Promise<void>
  /** By sandbox. `tags`: each must have one of these values; an empty list stands for the absence of the key. */
  sandboxUsage(orgId: string, window: Window, tags: ReadonlyMap<string, readonly string[]>): Promise<SandboxUsageItem[]>
  sessionUsage(orgId: string, window: Window): Promise<SessionUsageItem[]>
  /** Undefined for a sandbox that the organisation has never had. */
  sandbox(orgId: string, sandboxId: string): Promise<{ name?: string } | undefined>
  spans(sandboxId: string, window: Window): Promise<Span[]>
  minutes(sandboxId: string, window: Window): Promise<MeasuredMinute[]>
  /** Of several organisations at once. */
  organisationUsage(
    window: Window,
    orgIds?: readonly string[],
  ): Promise<(UsageTotals & ModelTotals & { orgId: string })[]>
  /** The end of a machine that nobody has seen is that of its last reading. */
  closeLost(sandboxId: string): Promise<void>
  /** Notes once for a month that a share of the budget is used. False when it was noted before. */
  tellBudget(orgId: string, month: Date, share: 80 | 100, usd: { usedUsd: number; budgetUsd: number }): Promise<boolean>
  purge(minutesBefore: Date, spansBefore: Date): Promise<number>
}
