import { availableParallelism } from 'node:os'

/** Bounds of the sandbox half. All of them are configuration (`ATOLL_LIMITS`). */
export interface SandboxLimits {
  /** Sandboxes of one organisation in `creating` or `running`. */
  runningSandboxesMax: number
  /**
   * Starts, wakes, dumps and restores of one organisation at a time; more wait. Fewer than the runtime does for all
   * together, so that slow ones of one organisation leave a place to the others.
   */
  startsAtOnce: number
  timeoutSecondsMax: number
  cpuCountMax: number
  memoryMbMin: number
  memoryMbMax: number
  diskMbMin: number
  diskMbMax: number
  patchScriptBytesMax: number
  patchTimeoutMs: number
  fullCheckpointsMax: number
  diskOnlyCheckpointsMax: number
  /** Custom domains of one organisation that wait for their TXT record. */
  unverifiedDomainsMax: number
  /** A domain that waits for its record is looked at after this long, then at growing intervals, and never more often. */
  domainCheckMs: number
  /** How long an operation or a preview request waits for a sandbox to wake. */
  wakeWaitMs: number
}

export const defaultSandboxLimits: SandboxLimits = {
  runningSandboxesMax: 200,
  startsAtOnce: Math.max(3, 2 * availableParallelism() - 1),
  timeoutSecondsMax: 2_592_000,
  cpuCountMax: 64,
  memoryMbMin: 64,
  memoryMbMax: 65_536,
  diskMbMin: 64,
  diskMbMax: 1_048_576,
  patchScriptBytesMax: 256 * 1024,
  patchTimeoutMs: 600_000,
  fullCheckpointsMax: 10,
  diskOnlyCheckpointsMax: 100,
  unverifiedDomainsMax: 100,
  domainCheckMs: 3000,
  wakeWaitMs: 30_000,
}
