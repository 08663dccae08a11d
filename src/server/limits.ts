import { z } from 'zod'
import type { AuditLimits } from '../organisation/audit/index.ts'
import { organisationLimitBounds } from '../organisation/index.ts'
import type { LogLimits } from '../events/index.ts'
import type { HttpLimits } from '../http/server/config.ts'
import type { ImageLimits } from '../image/index.ts'
import type { SecretLimits } from '../secret/index.ts'
import type { SandboxLimits } from '../sandbox/index.ts'
import type { SessionLimits } from '../session/index.ts'
import type { DatabaseLimits } from './cluster.ts'

const kib = 1024
const mib = 1024 * kib
const gib = 1024 * mib
const tib = 1024 * gib

type Bounds = readonly [lowest: number, highest: number]

/**
 * The limits of `ATOLL_LIMITS` with their lowest and highest value. The bounds allow the defaults of a sandbox, and keep what is sent to
 * the agent within one line, and all else within memory. A limit without a row does not compile.
 */
export const limitBounds = {
  sandbox: {
    startsAtOnce: [1, 1000],
    startsWaitingMax: [1, 100_000],
    startWaitMs: [100, 600_000],
    startMemoryMb: [1, 65_536],
    memoryReserveMb: [0, 1024 * 1024],
    timeoutSecondsMax: [300, 2_592_000],
    cpuCountMax: [1, 1024],
    memoryMbMin: [64, 1024],
    memoryMbMax: [1024, 4 * 1024 * 1024],
    diskMbMin: [64, 10_240],
    diskMbMax: [10_240, 64 * 1024 * 1024],
    diskMbPerOrganisationMax: [10_240, 1024 * 1024 * 1024],
    diskReadBytesPerSecondMax: [mib, tib],
    diskWriteBytesPerSecondMax: [mib, tib],
    diskReadsPerSecondMax: [100, 1_000_000_000],
    diskWritesPerSecondMax: [100, 1_000_000_000],
    patchScriptBytesMax: [kib, 16 * mib],
    patchTimeoutMs: [1000, 86_400_000],
    fullCheckpointsMax: [1, 1000],
    diskOnlyCheckpointsMax: [1, 10_000],
    volumesMax: [1, 10_000],
    snapshotsPerVolumeMax: [1, 10_000],
    volumesPerSandboxMax: [1, 64],
    volumeMbMin: [1, 10_240],
    volumeMbMax: [10_240, 64 * 1024 * 1024],
    unverifiedDomainsMax: [1, 10_000],
    domainCheckMs: [100, 600_000],
    domainAnswerWaitMs: [100, 60_000],
    wakeWaitMs: [1000, 600_000],
  },
  image: {
    stepsMax: [1, 1000],
    filesMax: [1, 40_000],
    snapshotsMax: [1, 100_000],
    buildsAtOnce: [1, 8],
    buildMs: [1000, 86_400_000],
    stepMs: [1000, 86_400_000],
    builderDiskMb: [64, 64 * 1024 * 1024],
    cacheMb: [64, 64 * 1024 * 1024],
    unusedDays: [1, 36_500],
    contextFilesMax: [1, 200_000],
    contextBytesMax: [mib, tib],
    contextsMax: [1, 10_000],
    contextsBytesMax: [mib, 64 * tib],
  },
  secret: {
    storesMax: [1, 10_000],
    secretsPerStoreMax: [1, 1000],
    valueBytesMax: [64, 512 * kib],
    hostsMax: [1, 1000],
    egressHostsMax: [1, 1000],
  },
  session: {
    messageBytesMax: [kib, 512 * kib],
    systemPromptBytesMax: [kib, mib],
    skillFilesMax: [1, 200],
    skillBytesMax: [kib, 64 * mib],
    queuedMessagesMax: [1, 10_000],
    turnLinesMax: [100, 10_000_000],
    turnBytesMax: [mib, 4 * gib],
    idleLinesMax: [10, 1_000_000],
    idleErrorsMax: [1, 10_000],
    streamBytesMax: [mib, tib],
    historyBytesMax: [mib, 256 * mib],
    turnCheckpointsMax: [20, 1000],
    agentStartsAtOnce: [1, 1000],
    shortageWaitMs: [1000, 86_400_000],
    shortageFirstMs: [1, 60_000],
    shortageMaxMs: [1, 3_600_000],
  },
  events: {
    eventsMax: [1000, 100_000_000],
    eventDays: [1, 36_500],
  },
  http: {
    bodyBytesMax: [64 * kib, 64 * mib],
    sessionBodyBytesMax: [64 * kib, 96 * mib],
    manifestBytesMax: [64 * kib, 256 * mib],
    uploadBytesMax: [kib, 64 * tib],
    requestBurst: [1, 1_000_000],
    streamStallMs: [1000, 3_600_000],
    eventStreamsPerTokenMax: [1, 10_000],
    eventStreamsPerSessionMax: [1, 100_000],
    eventStreamsPerOrganisationMax: [1, 100_000],
    eventStreamsMax: [1, 100_000],
    socketsPerSandboxMax: [1, 10_000],
    socketsPerOrganisationMax: [1, 100_000],
    tunnelsPerSandboxMax: [1, 10_000],
    tunnelsPerOrganisationMax: [1, 100_000],
    exportsPerOrganisationMax: [1, 1000],
    fileTransfersPerOrganisationMax: [1, 10_000],
  },
  audit: {
    days: [1, 36_500],
    rowsMax: [1000, 1_000_000_000],
  },
  database: {
    connectionsMax: [2, 200],
    waitingMax: [10, 100_000],
    statementMs: [1000, 3_600_000],
    slowStatementMs: [0, 3_600_000],
    memoryMb: [256, 1024 * 1024],
  },
} as const satisfies {
  /** Limits with a variable of their own are not here. */
  sandbox: Record<Exclude<keyof SandboxLimits, 'runningSandboxesMax'>, Bounds>
  image: Record<keyof ImageLimits, Bounds>
  secret: Record<keyof SecretLimits, Bounds>
  session: Record<keyof SessionLimits, Bounds>
  events: Record<keyof LogLimits, Bounds>
  http: Record<Exclude<keyof HttpLimits, 'requestsPerSecond'>, Bounds>
  audit: Record<keyof AuditLimits, Bounds>
  database: Record<keyof DatabaseLimits, Bounds>
}

const limits = z.strictObject({
  sandbox: shape(limitBounds.sandbox).default({}),
  image: shape(limitBounds.image).default({}),
  secret: shape(limitBounds.secret).default({}),
  session: shape(limitBounds.session).default({}),
  events: shape(limitBounds.events).default({}),
  http: shape(limitBounds.http).default({}),
  audit: shape(limitBounds.audit).default({}),
  database: shape(limitBounds.database).default({}),
  /** What an organisation has whose operator has set nothing else. */
  organisation: shape(organisationLimitBounds).default({}),
})

/** `ATOLL_LIMITS`: a JSON object of the nine groups, each from limit to number. */
export function readLimits(text: string, faults: string[]): z.output<typeof limits> {
  return readJson('ATOLL_LIMITS', text, limits, faults) ?? limits.parse({})
}

/** A variable with a JSON value; undefined and the faults, each with its path, when it is wrong. */
export function readJson<Schema extends z.ZodType>(
  variable: string,
  text: string,
  schema: Schema,
  faults: string[],
): z.output<Schema> | undefined {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    faults.push(`${variable} must be JSON`)
    return undefined
  }
  const parsed = schema.safeParse(value)
  if (parsed.success) return parsed.data
  for (const issue of parsed.error.issues) {
    const path = issue.path.map(String).join('.')
    const message = issue.code === 'invalid_key' ? issue.issues[0]?.message : issue.message
    faults.push(`${variable} ${path === '' ? '' : `${path}: `}${message ?? 'is wrong'}`)
  }
  return undefined
}

function shape<Name extends string>(bounds: Record<Name, Bounds>) {
  const numbers = Object.entries<Bounds>(bounds).map(([name, [lowest, highest]]) => {
    const rule = `must be a whole number from ${lowest} to ${highest}`
    return [name, z.int(rule).min(lowest, rule).max(highest, rule).exactOptional()]
  })
  return z.strictObject(Object.fromEntries(numbers) as Record<Name, z.ZodExactOptional<z.ZodInt>>)
}
