import { ServiceError } from '../errors.ts'
import { defined } from '../lib/defined.ts'
import { newId } from '../lib/id.ts'
import type { EgressInput } from './egress/input.ts'
import type { SandboxEgress } from './egress/state.ts'
import type { SandboxSpec } from './ports/runtime-driver.ts'
import type { MountedVolume, VolumeMount } from './volume.ts'

/** See docs/ARCHITECTURE.md § The life of a sandbox. `stopped` is final; its record stays readable for 24 hours. */
export const sandboxStatuses = ['creating', 'running', 'hibernated', 'stopped', 'error'] as const
export type SandboxStatus = (typeof sandboxStatuses)[number]

/**
 * All legal transitions; an illegal one is the error of {@link notUsable}. Two ways lead out of `error` beside them, for a record that
 * nobody uses: `recovery.ts` finds a lost disk again, and `boot.ts` tries an announced id again.
 */
const transitions: Record<SandboxStatus, readonly SandboxStatus[]> = {
  creating: ['running', 'stopped', 'error'],
  running: ['hibernated', 'stopped', 'error'],
  hibernated: ['running', 'stopped', 'error'],
  error: ['stopped'],
  stopped: [],
}

/** States with a transition to `to`, for a compare-and-set in the store. */
export function statusesBefore(to: SandboxStatus): SandboxStatus[] {
  return sandboxStatuses.filter((from) => transitions[from].includes(to))
}

/** Those of {@link assertAlive}. */
export const aliveStatuses = ['creating', 'running', 'hibernated'] as const satisfies SandboxStatus[]

/** The maximum age, or the idle timeout of one that stops then. */
export type EndOfLife = 'expired' | 'idle'

export type SandboxReason =
  | 'oom'
  | 'disk_full'
  | 'runtime_failed'
  | 'host_lost'
  | 'patch_failed'
  | 'memory_not_restorable'
  | 'hook_failed'
  | EndOfLife

/** What happens when the idle timeout runs out: the sandbox hibernates, or stops for good. */
export const idleActions = ['hibernate', 'stop'] as const
export type IdleAction = (typeof idleActions)[number]

export interface Sandbox {
  id: string
  orgId: string
  /** The installation whose host has its disk. The store fills it in; absent only until the installation has an id. */
  hostId?: string
  /** The key that made it, also by a session. The store fills it in. */
  keyId?: string
  /** Stands for the id in requests. Unique in its organisation until it stops; one in `error` keeps it, as a start may find it again. */
  name?: string
  status: SandboxStatus
  /**
   * Why it is in `error`, why the last hibernation was refused, that its memory does not come back, that hooks of a fork have failed, or
   * which end of its life stopped it.
   */
  reason?: SandboxReason
  reasonMessage?: string
  /** The image it was made from, `templateID` on the wire. */
  image: string
  cpuCount: number
  memoryMb: number
  diskMb: number
  /** Rolling idle timeout; 0 means never. */
  timeoutSeconds: number
  onIdle: IdleAction
  /** When its maximum age ends it, in whatever state it is. Absent: never. */
  expiresAt?: Date
  envs: Record<string, string>
  metadata: Record<string, string>
  tags: Record<string, string>
  tagsUpdatedAt?: Date
  /** The checkpoint it was started from, whose patches run at its transitions. */
  fromCheckpointId?: string
  /** SHA-256 in hex of the token that previews of this sandbox require. */
  previewTokenHash?: string
  createdAt: Date
  /** When it was last created or woken. */
  startedAt: Date
  /** The last operation, as far as it is recorded; exact within a minute. */
  activeAt: Date
  stoppedAt?: Date
  /** Those that it has had mounted since its first start. */
  volumes: MountedVolume[]
  /** Folder and user of commands that name none. */
  commandDefaults?: CommandDefaults
  /** Whether the autoscaler changes its memory, between these bounds, which are 0 until they are first set. */
  isAutoscaled: boolean
  autoscaleMinMb: number
  autoscaleMaxMb: number
  /** Whether nobody changes its sizes. */
  isScalingLocked: boolean
  /** What it may reach and which secrets it uses. Absent: nothing of its own. */
  egress?: SandboxEgress
  /** How often it was restored in place. After a restore its memory holds processes of the past. */
  restores: number
}

/** What a sandbox may have of its host; also changed while it runs. */
export type Sizes = Pick<Sandbox, 'cpuCount' | 'memoryMb'>

/** Whether it is one in which an image is built, by its id. */
export function isBuild(id: string): boolean {
  return id.startsWith('sb-build-')
}

/** What may change in a sandbox after its creation. */
export type SandboxChange = {
  [Key in keyof Omit<Sandbox, 'id' | 'orgId' | 'hostId' | 'volumes' | 'createdAt'>]?: Sandbox[Key] | undefined
}

/** As its image says. */
export interface CommandDefaults {
  /** Absolute. */
  cwd?: string
  /** A name or id, and a group behind a colon. */
  user?: string
}

/** The defaults of a new sandbox whose client may ask for another user. */
export function withUser(defaults: CommandDefaults | undefined, user: string | undefined): CommandDefaults | undefined {
  return user === undefined ? defaults : { ...defaults, user }
}

export interface CreateSandbox extends EgressInput {
  /** An id allocated before (`newId('sb-')`), for callers that announce it before the boot. */
  id?: string
  name?: string
  image?: string
  timeoutSeconds?: number
  onIdle?: IdleAction
  /** Counts from the creation, in every state; 0: none. */
  maxAgeSeconds?: number
  cpuCount?: number
  memoryMb?: number
  diskMb?: number
  envs?: Record<string, string>
  metadata?: Record<string, string>
  previewAuth?: PreviewAuth
  volumes?: readonly VolumeMount[]
  /** Runs commands and owns files where no other user is named; a name or id, and a group behind a colon. */
  user?: string
}

/** `token` is chosen by the caller (16 or more characters) or made (`auto` or absent). */
export interface PreviewAuth {
  scheme: 'bearer'
  token?: string
}

export interface StartedSandbox {
  sandbox: Sandbox
  /** Shown this once. */
  previewAuthToken?: string
}

type NewSandbox = {
  [Key in keyof Omit<CreateSandbox, 'previewAuth' | 'volumes' | 'user' | keyof EgressInput>]:
    | CreateSandbox[Key]
    | undefined
} & {
  egress?: SandboxEgress | undefined
  fromCheckpointId?: string
  volumes?: MountedVolume[]
  commandDefaults?: CommandDefaults | undefined
}

/** What a sandbox is started from, and its sizes, where nothing else is asked for. */
export const startDefaults = { image: 'base', cpuCount: 1, memoryMb: 1024, diskMb: 10_240 } as const

/** A record in `creating`, with defaults for what is not given. */
export function newSandbox(orgId: string, { maxAgeSeconds = 0, ...given }: NewSandbox): Sandbox {
  const now = new Date()
  return {
    id: newId('sb-'),
    orgId,
    status: 'creating',
    ...startDefaults,
    timeoutSeconds: 300,
    onIdle: 'hibernate',
    ...{ envs: {}, metadata: {}, tags: {}, volumes: [] },
    ...{ createdAt: now, startedAt: now, activeAt: now },
    ...{ isAutoscaled: false, autoscaleMinMb: 0, autoscaleMaxMb: 0, isScalingLocked: false },
    restores: 0,
    ...defined({ ...given, expiresAt: expiryOf(now, maxAgeSeconds) }),
  }
}

/** When a sandbox of this maximum age ends; undefined for 0, which is none. */
export function expiryOf(createdAt: Date, maxAgeSeconds: number): Date | undefined {
  return maxAgeSeconds === 0 ? undefined : new Date(createdAt.getTime() + maxAgeSeconds * 1000)
}

export function maxAgeSecondsOf({ createdAt, expiresAt }: Pick<Sandbox, 'createdAt' | 'expiresAt'>): number {
  return expiresAt === undefined ? 0 : Math.round((expiresAt.getTime() - createdAt.getTime()) / 1000)
}

/** Of the installation, for what a client does not ask for. */
export type SandboxDefaults = Pick<CreateSandbox, 'timeoutSeconds' | 'onIdle' | 'maxAgeSeconds'>

/** An announced id is of a session or a build, which ends its sandbox itself: no default does. */
export function withDefaults<Input extends CreateSandbox>(input: Input, defaults: SandboxDefaults): Input {
  const { timeoutSeconds } = defaults
  return { ...(input.id === undefined ? defaults : defined({ timeoutSeconds })), ...input }
}

/** The change of a record whose life ends by itself. */
export function endedBy(sandbox: Sandbox, reason: EndOfLife) {
  const reasonMessage =
    reason === 'expired'
      ? `it reached its maximum age of ${maxAgeSecondsOf(sandbox)} seconds`
      : `it was idle for ${sandbox.timeoutSeconds} seconds, after which it stops`
  return { reason, reasonMessage } as const
}

/** The change of a record whose sandbox has just started. */
export function runningNow() {
  return { status: 'running', startedAt: new Date(), reason: undefined, reasonMessage: undefined } as const
}

export function specOf(sandbox: Sandbox): SandboxSpec {
  const { id, orgId: owner, image, cpuCount, memoryMb, diskMb, fromCheckpointId } = sandbox
  const from = fromCheckpointId === undefined ? undefined : { checkpointId: fromCheckpointId }
  const mounted = sandbox.volumes.map(({ id: volumeId, path, readOnly }) => ({ id: volumeId, path, readOnly }))
  const volumes = mounted.length === 0 ? undefined : mounted
  return { id, owner, image, cpuCount, memoryMb, diskMb, ...defined({ from, volumes }) }
}

/** Throws {@link notUsable} for a sandbox that has ended: in `error` a delete alone is possible. */
export function assertAlive(sandbox: Sandbox): void {
  if (!aliveStatuses.some((status) => status === sandbox.status)) throw notUsable(sandbox)
}

/** The error of an operation that the state of the sandbox does not allow: `sandbox_stopped` after a stop, `conflict` otherwise. */
export function notUsable(sandbox: Sandbox): ServiceError {
  const why = sandbox.reasonMessage ? `: ${sandbox.reasonMessage}` : ''
  if (sandbox.status === 'stopped') {
    const ending = endOfLife(sandbox) === undefined ? '' : why
    return new ServiceError('sandbox_stopped', `sandbox ${sandbox.id} is stopped${ending}`)
  }
  return new ServiceError('conflict', `sandbox ${sandbox.id} is in state ${sandbox.status}${why}`, {
    details: sandbox.reason ? { reason: sandbox.reason } : {},
  })
}

/** Which end of its life stopped it; undefined for a deletion. */
export function endOfLife({ reason }: Pick<Sandbox, 'reason'>): EndOfLife | undefined {
  return reason === 'expired' || reason === 'idle' ? reason : undefined
}
