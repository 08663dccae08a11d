import type { organisationStatuses } from '../protocol/organisation.ts'
import type { OrganisationLimits } from './limits.ts'
import type { Scope } from './scopes.ts'

/**
 * The owner of sandboxes, checkpoints and sessions. A key of one sees nothing of another.
 *
 *     active ⇄ suspended
 *        └──────┴──► deleting ──► gone
 */
export interface Organisation {
  id: string
  name: string
  /** The one of a fresh installation. It cannot be deleted. */
  isDefault: boolean
  /** Those that differ from the defaults of the installation. */
  limits: Partial<OrganisationLimits>
  /** Since then all calls are refused and nothing of it runs. */
  suspendedAt?: Date
  suspendedReason?: string
  /** Since then all that it has goes; what a crash cuts off goes on at the next start. */
  deletingAt?: Date
  createdAt: Date
}

/** What an organisation has at this moment. */
export interface OrganisationUse {
  /** In `creating` or `running`; of these the sum of memory and CPUs. */
  runningSandboxes: number
  memoryMb: number
  cpuCount: number
  /** That are not stopped. */
  sandboxes: number
  checkpoints: number
  /** That have not ended. */
  sessions: number
  volumes: number
  images: number
  keys: number
}

/** `status` on the wire. */
export type OrganisationStatus = (typeof organisationStatuses)[number]

export function statusOf({ suspendedAt, deletingAt }: Organisation): OrganisationStatus {
  if (deletingAt !== undefined) return 'deleting'
  return suspendedAt === undefined ? 'active' : 'suspended'
}

/** The secret itself is shown once, when the key is made; its SHA-256 in hex is kept. */
export interface ApiKey {
  /** Public: it names the key in logs, events and the audit. */
  id: string
  orgId: string
  keyHash: string
  /** The first characters of the secret, for people. */
  keyPrefix?: string
  name: string
  /** Absent: all, those of later versions too. */
  scopes?: Scope[]
  expiresAt?: Date
  /** At most a minute old. */
  lastUsedAt?: Date
  /** See `KeyReach` in `lib/key-reach.ts`. */
  namePrefix?: string
  /** Sandboxes of this key that are not stopped. */
  sandboxesMax?: number
  /** Id of the key that made it, and ends it when it ends itself; absent: the operator or the server did. */
  madeBy?: string
  /** The one that the first start made, or that is configured (`ATOLL_API_KEY`). */
  isDefault: boolean
  createdAt: Date
}
