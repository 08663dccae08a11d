import { ServiceError } from '../errors.ts'

/**
 * States of a sandbox (docs/ARCHITECTURE.md § The life of a sandbox):
 *
 *     creating ──► running ⇄ hibernated
 *         └──────────┴───────────┴──► stopped | error ──► stopped
 *
 * `stopped` is final and kept for 24 hours so that clients can read it.
 */
export const sandboxStatuses = ['creating', 'running', 'hibernated', 'stopped', 'error'] as const
export type SandboxStatus = (typeof sandboxStatuses)[number]

export type SandboxReason = 'oom' | 'disk_full' | 'runtime_failed' | 'host_lost' | 'patch_failed'

export interface Sandbox {
  id: string
  orgId: string
  status: SandboxStatus
  /** Why it is in `error`, or why the last hibernation was refused. */
  reason?: SandboxReason
  /** The reason in words, for the client. */
  reasonMessage?: string
  /** The image it was made from, `templateID` on the wire. */
  image: string
  cpuCount: number
  memoryMb: number
  diskMb: number
  /** Rolling idle timeout; 0 means never. */
  timeoutSeconds: number
  envs: Record<string, string>
  metadata: Record<string, string>
  tags: Record<string, string>
  tagsUpdatedAt?: Date
  /** The checkpoint it was started from, whose `on_resume` patches run at each wake. */
  fromCheckpointId?: string
  /** SHA-256 in hex of the token that previews of this sandbox demand. */
  previewTokenHash?: string
  createdAt: Date
  /** When it was last created or woken. */
  startedAt: Date
  /** The last operation, as far as it was written down; exact within a minute. */
  activeAt: Date
  stoppedAt?: Date
  /** How often it was put back to a checkpoint in place: processes in its memory may be of its past since the last time. */
  restores: number
}

/** What may change in a sandbox after its creation. */
export type SandboxChange = {
  [Key in keyof Omit<Sandbox, 'id' | 'orgId' | 'createdAt'>]?: Sandbox[Key] | undefined
}

const transitions: Record<SandboxStatus, readonly SandboxStatus[]> = {
  creating: ['running', 'stopped', 'error'],
  running: ['hibernated', 'stopped', 'error'],
  hibernated: ['running', 'stopped', 'error'],
  error: ['stopped'],
  stopped: [],
}

export function canMove(from: SandboxStatus, to: SandboxStatus): boolean {
  return transitions[from].includes(to)
}

/** Statuses from which `to` may be reached, for a compare-and-set in the store. */
export function statusesBefore(to: SandboxStatus): SandboxStatus[] {
  return sandboxStatuses.filter((from) => canMove(from, to))
}

/** Throws for what has ended: in `error` nothing is left to do but to delete it. */
export function demandAlive(sandbox: Sandbox): void {
  if (sandbox.status === 'stopped' || sandbox.status === 'error') throw notUsable(sandbox)
}

/** The error that an operation answers when the sandbox cannot serve it: 410 after a stop, 409 otherwise. */
export function notUsable(sandbox: Sandbox): ServiceError {
  if (sandbox.status === 'stopped') return new ServiceError('sandbox_stopped', `sandbox ${sandbox.id} is stopped`)
  const why = sandbox.reasonMessage ? `: ${sandbox.reasonMessage}` : ''
  return new ServiceError('conflict', `sandbox ${sandbox.id} is in state ${sandbox.status}${why}`, {
    details: sandbox.reason ? { reason: sandbox.reason } : {},
  })
}
