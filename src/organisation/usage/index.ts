/**
 * What organisations use. What sandboxes are allowed is written by the database, with each change of their state; what their machines use is
 * read from their counters; tokens come with the commits of sessions.
 */
export { Budgets, computeUsd, type ComputePrices, noPrices, usdOf } from './budgets.ts'
export { Meter } from './meter.ts'
export { UsageReports, type UsageQuery, type UsageReport } from './reports.ts'
export type { UsageStore } from './store.ts'
export {
  type GroupBy,
  type MeasuredMinute,
  type ModelTotals,
  type Reading,
  type SandboxUsageItem,
  type SessionUsageItem,
  type Span,
  type UsageTotals,
  type Window,
} from './usage.ts'
