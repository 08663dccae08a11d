/** What one organisation may have and do. The row of an organisation names those that differ from the defaults of the installation. */
export interface OrganisationLimits {
  /** Sandboxes in `creating` or `running`. */
  runningSandboxesMax: number
  /** Sandboxes that are not stopped. */
  sandboxesMax: number
  /** Of the sandboxes that run, together. */
  memoryMbMax: number
  cpuCountMax: number
  /** Promised and stored; see `DiskQuota`. */
  diskMbMax: number
  checkpointsMax: number
  /** Sessions that have not ended. */
  sessionsMax: number
  eventStreamsMax: number
  socketsMax: number
  buildsAtOnce: number
  /** Boots, wakes, dumps and restores at a time. */
  startsAtOnce: number
  requestsPerSecond: number
  requestsPerSecondPerKey: number
  /** Of all its sandboxes together, each way. */
  diskBytesPerSecondMax: number
  networkBytesPerSecondMax: number
  /** Its share of what is scarce, against the weights of others. */
  weight: number
  webhooksMax: number
  keysMax: number
  /** USD of one calendar month (UTC); null: no bound. */
  budgetUsdPerMonth: number | null
}

const unlimited = 1_000_000_000

/** `ATOLL_LIMITS.organisation` changes them. An installation of one organisation is bounded by its machine. */
export const defaultOrganisationLimits: OrganisationLimits = {
  runningSandboxesMax: 200,
  sandboxesMax: 10_000,
  memoryMbMax: unlimited,
  cpuCountMax: unlimited,
  diskMbMax: 67_108_864,
  checkpointsMax: 10_000,
  sessionsMax: 10_000,
  eventStreamsMax: 2048,
  socketsMax: 512,
  buildsAtOnce: 8,
  startsAtOnce: 1000,
  requestsPerSecond: 1000,
  requestsPerSecondPerKey: 1000,
  diskBytesPerSecondMax: 1024 ** 4,
  networkBytesPerSecondMax: 1024 ** 4,
  weight: 100,
  webhooksMax: 20,
  keysMax: 1000,
  budgetUsdPerMonth: null,
}

type Bounds = readonly [lowest: number, highest: number]

/** What an operator may set. A limit without a row does not compile. */
export const organisationLimitBounds: Record<keyof OrganisationLimits, Bounds> = {
  runningSandboxesMax: [0, 100_000],
  sandboxesMax: [0, 1_000_000],
  memoryMbMax: [0, unlimited],
  cpuCountMax: [0, unlimited],
  diskMbMax: [0, 1024 ** 3],
  checkpointsMax: [0, 1_000_000],
  sessionsMax: [0, 1_000_000],
  eventStreamsMax: [0, 100_000],
  socketsMax: [0, 100_000],
  buildsAtOnce: [1, 8],
  startsAtOnce: [1, 1000],
  requestsPerSecond: [1, 1_000_000],
  requestsPerSecondPerKey: [1, 1_000_000],
  diskBytesPerSecondMax: [1024 ** 2, 1024 ** 4],
  networkBytesPerSecondMax: [64 * 1024, 1024 ** 4],
  weight: [1, 1000],
  webhooksMax: [0, 1000],
  keysMax: [1, 10_000],
  budgetUsdPerMonth: [0, unlimited],
}
