import type { PlannedPlaceholder } from './placeholders.ts'
import type { EgressPolicy } from './policy.ts'

/** What the record of a sandbox, and of a checkpoint, says of its egress. It holds no value of a secret. */
export interface SandboxEgress {
  /** Of its creation, or of the last change. */
  policy?: EgressPolicy
  /** Of the image that it was made from. */
  imagePolicy?: EgressPolicy
  /** Hosts of the creation, united with those of the stores. */
  hosts?: string[]
  /** Narrows the hosts of secrets, by name. */
  secretHosts?: Record<string, string[]>
  /** Names of stores, inherited ones first. */
  stores: string[]
  /** How many of the names are inherited through a checkpoint. */
  inheritedStores: number
  /** Ids of the secrets of creations. */
  inline: string[]
  /** By the name of the secret. */
  placeholders: Record<string, PlannedPlaceholder>
  /** The certificate authority of its lineage. */
  authorityId?: string
}

export const none: SandboxEgress = { stores: [], inheritedStores: 0, inline: [], placeholders: {} }

/** Whether the record need not say anything. */
export function isNothing({ inheritedStores: _count, stores, inline, placeholders, ...rest }: SandboxEgress): boolean {
  const lists = [stores, inline, Object.keys(placeholders)]
  return lists.every(({ length }) => length === 0) && Object.values(rest).every((part) => part === undefined)
}
