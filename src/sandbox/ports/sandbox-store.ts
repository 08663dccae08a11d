import type { Creation, CreationNote } from '../../lib/creation.ts'
import type { Checkpoint, CheckpointChange } from '../checkpoint.ts'
import type { Patch } from '../patch.ts'
import type { Preview, PreviewDeclaration, SslStatus } from '../preview.ts'
import type { Sandbox, SandboxChange, SandboxStatus } from '../sandbox.ts'

/**
 * The port behind which sandboxes and what belongs to them are kept. Stores only read and write: rules are the service's.
 * Every method is one transaction: it happens whole or not at all, and what it acknowledged survives a crash.
 * A lookup with `orgId` answers `undefined` for a row of another organisation.
 *
 * With a creation, the same transaction writes into the row of its `Idempotency-Key` what was made. Throws `conflict` when an earlier
 * run of the request has made it, and makes nothing.
 */
export interface SandboxStore {
  /** Throws `conflict` when the id is taken. */
  insertSandbox(sandbox: Sandbox): Promise<void>
  sandbox(id: string, orgId?: string): Promise<Sandbox | undefined>
  /** Newest first; see {@link SandboxQuery}. */
  listSandboxes(query: SandboxQuery): Promise<Page<Sandbox>>
  /** All of them in any of these states, for reconciliation and timers. */
  sandboxesIn(statuses: readonly SandboxStatus[]): Promise<Sandbox[]>
  countSandboxes(orgId: string, statuses: readonly SandboxStatus[]): Promise<number>
  /** Of all organisations, every state. */
  sandboxCounts(): Promise<SandboxCounts>
  /**
   * Compare and set: applies the change when the sandbox is in one of `from` (any state when absent), else returns
   * `undefined` and changes nothing. A key whose value is `undefined` clears the field; an absent key leaves it. The note says what
   * the change means for the request that makes the sandbox: it is made, or what was made of it is undone.
   */
  updateSandbox(
    id: string,
    change: SandboxChange,
    from?: readonly SandboxStatus[],
    note?: CreationNote,
  ): Promise<Sandbox | undefined>
  /** Ids of stopped sandboxes: of those that stopped before the moment, or of all. */
  stoppedSandboxIds(stoppedBefore?: Date): Promise<string[]>
  /** Forgets those of these sandboxes that are stopped, with their previews. Checkpoints stay. Returns how many. */
  purgeSandboxes(ids: readonly string[]): Promise<number>
  /** Keys of the tags of an organisation's sandboxes that are not stopped, by key. */
  tagKeys(orgId: string): Promise<TagKey[]>

  /** Throws `conflict` when the sandbox has a checkpoint of this name. */
  insertCheckpoint(checkpoint: Checkpoint, creation?: Creation): Promise<void>
  checkpoint(id: string, orgId?: string): Promise<Checkpoint | undefined>
  /** Of one sandbox, oldest first. */
  listCheckpoints(sandboxId: string, orgId: string): Promise<Checkpoint[]>
  /** Of all sandboxes, those whose name begins so, oldest first. */
  checkpointsNamed(prefix: string): Promise<Checkpoint[]>
  /** Ids of all checkpoints, for reconciliation. */
  checkpointIds(): Promise<string[]>
  checkpointsIn(status: Checkpoint['status']): Promise<Checkpoint[]>
  updateCheckpoint(id: string, change: CheckpointChange): Promise<Checkpoint | undefined>
  /** Removes it with its patches; false when there was none. Its id is remembered until `forgetCheckpoint`. */
  deleteCheckpoint(id: string): Promise<boolean>
  /** Ids of deleted checkpoints of which the driver may still have something. */
  deletedCheckpointIds(): Promise<string[]>
  /** The driver has nothing of these deleted checkpoints any more. */
  forgetCheckpoints(ids: readonly string[]): Promise<void>

  /** Assigns the next `sequence` of the checkpoint, also above deleted ones. Throws `not_found` for an unknown checkpoint. */
  insertPatch(patch: Omit<Patch, 'sequence'>, creation?: Creation): Promise<Patch>
  /** In sequence order. */
  listPatches(checkpointId: string): Promise<Patch[]>
  deletePatch(checkpointId: string, patchId: string): Promise<boolean>

  /**
   * Inserts the preview, or, where the sandbox has one for this port, updates that one and keeps its id and creation time.
   * The given `sslStatus` is for a new host name: a preview whose custom host name stays keeps its own, and keeps it verified.
   * Throws `conflict` when another preview of the organisation has the custom host name.
   */
  putPreview(declaration: PreviewDeclaration, creation?: Creation): Promise<{ preview: Preview; created: boolean }>
  /** Sets the status of a preview that still has this (or no) custom host name and one of the statuses `from`; says whether. */
  setSslStatus(preview: PreviewDomainKey, sslStatus: SslStatus, from: readonly SslStatus[]): Promise<boolean>
  /**
   * Marks a preview that still has this custom host name as verified; says whether it has. The `holder`, verified for the same
   * name so far, loses that. Throws `conflict` when yet another preview is verified for it.
   */
  verifyPreview(preview: PreviewDomainKey, verifiedAt: Date, holder?: PreviewDomainKey): Promise<boolean>
  preview(sandboxId: string, port: number): Promise<Preview | undefined>
  /** The one that is verified for it; with an organisation, the one of that organisation, verified or not. */
  previewByHostname(customHostname: string, orgId?: string): Promise<Preview | undefined>
  /** Those with a custom host name that is not verified, of sandboxes that are not stopped, oldest first. */
  unverifiedPreviews(limit: number, orgId?: string): Promise<Preview[]>
  /** By port. */
  listPreviews(sandboxId: string): Promise<Preview[]>
  deletePreview(sandboxId: string, port: number): Promise<boolean>
}

export type PreviewDomainKey = Pick<Preview, 'sandboxId' | 'port' | 'customHostname'>

export type SandboxCounts = Record<SandboxStatus, number>

export interface SandboxQuery {
  orgId: string
  statuses: readonly SandboxStatus[]
  limit: number
  /** The `nextCursor` of the page before; an unreadable one throws `invalid_request`. */
  cursor?: string
}

export interface Page<Item> {
  items: Item[]
  /** Absent on the last page. */
  nextCursor?: string
}

export interface TagKey {
  key: string
  sandboxCount: number
  valueCount: number
}
