/** Bounds of the sandbox half. All of them are configuration (`ATOLL_LIMITS`). */
export interface SandboxLimits {
  /** Sandboxes of one organisation in `creating` or `running`. */
  runningSandboxesMax: number
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
  /** How long an operation or a preview request waits for a sandbox to wake. */
  wakeWaitMs: number
}

export const defaultSandboxLimits: SandboxLimits = {
  runningSandboxesMax: 200,
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
  wakeWaitMs: 30_000,
}
