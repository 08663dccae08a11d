import type { EgressPolicy } from '../egress/policy.ts'
import type { EgressEntry } from './egress.ts'

export interface StoredAuthority {
  id: string
  orgId: string
  /** PEM. */
  certificate: string
  sealedKey: string
}

/** An entry of the log of a sandbox. */
export interface LoggedEntry {
  /** From 1 on for each sandbox; the oldest go first. */
  number: number
  entry: EgressEntry
}

export interface EntryQuery {
  after?: number
  /** In place of `after`: the newest. */
  newest?: boolean
  limit: number
  decision?: EgressEntry['decision']
}

export interface EgressStore {
  authority(id: string): Promise<StoredAuthority | undefined>
  insertAuthority(authority: StoredAuthority): Promise<void>

  organisationPolicy(orgId: string): Promise<EgressPolicy | undefined>
  setOrganisationPolicy(orgId: string, policy: EgressPolicy | undefined): Promise<void>

  /** Of the images that have this checkpoint: those with the same content share it. */
  imagePolicy(checkpointId: string): Promise<EgressPolicy | undefined>
  setImagePolicy(checkpointId: string, policy: EgressPolicy | undefined): Promise<void>

  /** The number of its newest entry; 0 when there is none. */
  lastNumber(sandboxId: string): Promise<number>
  /** Writes entries, and events of the organisation that tell the refused ones. Those of sandboxes without a record are left out. */
  append(entries: readonly (LoggedEntry & { orgId: string; isTold: boolean })[]): Promise<void>
  /** In the order of their numbers. */
  entries(sandboxId: string, query: EntryQuery): Promise<LoggedEntry[]>
  /** Deletes entries up to a number. */
  trim(sandboxId: string, upTo: number): Promise<void>

  /** Deletes authorities, and stores of creations, that no sandbox and no checkpoint has any more. Returns how many. */
  removeUnused(madeBefore: Date): Promise<number>
}
