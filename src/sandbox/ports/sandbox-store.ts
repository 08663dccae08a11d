import type { KeyReach } from '../../lib/key-reach.ts'
import type { Creation, CreationNote } from '../../lib/creation.ts'
import type { Checkpoint, CheckpointChange, CheckpointDependents, CheckpointOwner } from '../checkpoint-records.ts'
import type { Patch } from '../patch.ts'
import type { Preview, PreviewDeclaration, SslStatus } from '../preview.ts'
import type { Sandbox, SandboxChange, SandboxStatus } from '../sandbox.ts'
import type { VolumeStore } from './volume-store.ts'

export interface UpdateOptions {
  /** Records that the creating request has made the sandbox, or undone it. */
  creationNote?: CreationNote | undefined
  /** The record as the caller knows it, in a state of `from`: where it is so, the change is quicker. */
  expected?: Sandbox | undefined
  /** Changes it only where its maximum age ends by this moment. */
  expiresBy?: Date | undefined
}

/**
 * The port to the records of sandboxes, checkpoints, patches and previews. A store reads and writes; the service has the rules. Each
 * method is one transaction, durable when it returns. A lookup with `orgId` returns `undefined` for a row of another organisation.
 *
 * A change of state is in the log of its organisation by the same transaction (`log-entries.ts` says what).
 *
 * With a creation, the same transaction records the result under the request's `Idempotency-Key`. It throws `conflict` and writes
 * nothing when an earlier run of the request has recorded one.
 */
export interface SandboxStore extends VolumeStore {
  /** Attaches its volumes. Throws `conflict` when the id or the name is taken, and see {@link VolumeStore}. */
  insertSandbox(sandbox: Sandbox): Promise<void>
  sandbox(id: string, orgId?: string): Promise<Sandbox | undefined>
  /** The id of the sandbox of this name that is not stopped. */
  sandboxNamed(name: string, orgId: string): Promise<string | undefined>
  /** The names of those that have one and are not stopped. */
  sandboxNames(ids: readonly string[]): Promise<Map<string, string>>
  /** Newest first. */
  listSandboxes(query: SandboxQuery): Promise<Page<Sandbox>>
  /** Of all organisations. */
  sandboxesIn(statuses: readonly SandboxStatus[]): Promise<Sandbox[]>
  countSandboxes(orgId: string, statuses: readonly SandboxStatus[]): Promise<number>
  /**
   * The bound of sandboxes that are not stopped which the key that acts has reached, or one of those that it descends from: each counts for all
   * keys below it. Undefined while there is room. The sandbox `exceptId` is not counted.
   */
  reachedKeyBound(exceptId: string): Promise<number | undefined>
  /** What an organisation has of sandboxes, without the one `exceptId`. */
  sandboxUse(orgId: string, exceptId?: string): Promise<SandboxUse>
  /** What an organisation has of disk, without the sandbox `exceptId`. */
  diskUse(orgId: string, exceptId?: string): Promise<DiskUse>
  /** Of all organisations, every state. */
  sandboxCounts(): Promise<SandboxCounts>
  /**
   * Compare and set: changes a sandbox in one of the states `from` (default: any), else returns `undefined`. A key with the value
   * `undefined` clears its field. Throws `conflict` for a name that is taken.
   */
  updateSandbox(
    id: string,
    change: SandboxChange,
    from?: readonly SandboxStatus[],
    options?: UpdateOptions,
  ): Promise<Sandbox | undefined>
  /** Those with a maximum age that are not stopped, of all organisations, that which ends first first. */
  nextExpiring(limit: number): Promise<{ id: string; expiresAt: Date }[]>
  /** Those that stopped before the moment, or all. */
  stoppedSandboxIds(stoppedBefore?: Date): Promise<string[]>
  /** Deletes the stopped ones among these, with their previews. Checkpoints stay. Returns how many. */
  purgeSandboxes(ids: readonly string[]): Promise<number>
  /** Of sandboxes that are not stopped, by key. */
  tagKeys(orgId: string, reach?: KeyReach): Promise<TagKey[]>

  /** Throws `conflict` when the sandbox has a checkpoint of this name. */
  insertCheckpoint(checkpoint: Checkpoint, creation?: Creation): Promise<void>
  checkpoint(id: string, orgId?: string): Promise<Checkpoint | undefined>
  /** The id of the checkpoint of this name that a sandbox has. */
  checkpointNamed(name: string, sandboxId: string, orgId: string): Promise<string | undefined>
  /** Of one sandbox, oldest first. */
  listCheckpoints(sandboxId: string, orgId: string): Promise<Checkpoint[]>
  /** Of all sandboxes, oldest first. */
  checkpointsOwnedBy(owner: CheckpointOwner): Promise<Checkpoint[]>
  /**
   * The sandboxes and checkpoints that have their beginning where this sandbox has it, at most `limit` of them: its ancestors first, then
   * level by level. A parent stands before its children. A sandbox without a record has no node, and its checkpoints are without a parent.
   * Those of images, and with `reach` what is beyond it, neither have nodes nor lead on.
   */
  sandboxTree(sandboxId: string, query: TreeQuery & { limit: number }): Promise<TreeNodes>
  /** The sandbox, with or without a record, at which that tree begins. Undefined for one that is beyond `reach`. */
  treeRoot(sandboxId: string, query: TreeQuery): Promise<string | undefined>
  /** Of clients. */
  countCheckpoints(orgId: string): Promise<number>
  checkpointIds(): Promise<string[]>
  checkpointsIn(status: Checkpoint['status']): Promise<Checkpoint[]>
  updateCheckpoint(id: string, change: CheckpointChange): Promise<Checkpoint | undefined>
  /**
   * Deletes it with its patches; false when there was none. Its id stays in `deletedCheckpointIds` until `forgetCheckpoints`. With
   * `expiredBy` only one whose time was over by then.
   */
  deleteCheckpoint(id: string, expiredBy?: Date): Promise<boolean>
  /** Newest first. */
  checkpointPage(query: CheckpointQuery): Promise<Page<Checkpoint>>
  /** By id of the checkpoint; none for one without any. */
  checkpointDependents(ids: readonly string[]): Promise<Map<string, CheckpointDependents>>
  /**
   * Those whose time was over `before`, of all organisations, by id. It leaves out one that is `processing`, one from which a
   * session will start its sandbox, and one with `on_resume` patches and a sandbox that was started from it.
   */
  expiredCheckpointIds(query: { before: Date; after: string; limit: number }): Promise<string[]>
  /** Deleted checkpoints whose data the driver may still have. */
  deletedCheckpointIds(): Promise<string[]>
  forgetCheckpoints(ids: readonly string[]): Promise<void>

  /** Assigns the next `sequence` of the checkpoint; never reuses one. Throws `not_found` for an unknown checkpoint. */
  insertPatch(patch: Omit<Patch, 'sequence'>, creation?: Creation): Promise<Patch>
  /** In sequence order. */
  listPatches(checkpointId: string): Promise<Patch[]>
  deletePatch(checkpointId: string, patchId: string): Promise<boolean>

  /**
   * Inserts the preview of this port, or updates it and keeps its id and creation time. With an unchanged custom host name it also
   * keeps `sslStatus` and `verifiedAt`. `url` is where clients reach it, for the log. Throws `conflict` when another preview of the organisation has the host name.
   */
  putPreview(
    declaration: PreviewDeclaration,
    url: string,
    creation?: Creation,
  ): Promise<{ preview: Preview; created: boolean }>
  /** Compare and set, for a preview with this (or no) custom host name and a status in `from`; returns whether it was set. */
  setSslStatus(preview: PreviewDomainKey, sslStatus: SslStatus, from: readonly SslStatus[]): Promise<boolean>
  /**
   * Verifies a preview that still has this custom host name and unverifies its `holder`; returns whether it has. Throws `conflict`
   * when a third preview is verified for the name.
   */
  verifyPreview(preview: PreviewDomainKey, verifiedAt: Date, holder?: PreviewDomainKey): Promise<boolean>
  preview(sandboxId: string, port: number): Promise<Preview | undefined>
  /** The preview verified for the name; with `orgId`, that organisation's, verified or not. */
  previewByHostname(customHostname: string, orgId?: string): Promise<Preview | undefined>
  /** Unverified custom domains of sandboxes that are not stopped, oldest first. */
  unverifiedPreviews(limit: number, orgId?: string): Promise<Preview[]>
  /** By port. */
  listPreviews(sandboxId: string): Promise<Preview[]>
  deletePreview(sandboxId: string, port: number): Promise<boolean>
}

export type PreviewDomainKey = Pick<Preview, 'sandboxId' | 'port' | 'customHostname'>

export interface SandboxUse {
  /** Not stopped. */
  all: number
  /** In `creating` or `running`, with their sizes together. */
  running: number
  memoryMb: number
  cpuCount: number
}

export interface DiskUse {
  /** Sizes of sandboxes that are not stopped, of volumes and of snapshots of volumes. */
  promisedMb: number
  /** Sizes of checkpoints, those of images too. */
  storedBytes: number
}

export type SandboxCounts = Record<SandboxStatus, number>

export interface SandboxQuery {
  orgId: string
  statuses: readonly SandboxStatus[]
  name?: string
  /** Each of these must be so. */
  metadata?: Readonly<Record<string, string>>
  tags?: Readonly<Record<string, string>>
  /** Keys of tags, with any value. */
  tagKeys?: readonly string[]
  /** Only those of it. */
  reach?: KeyReach
  limit: number
  /** `nextCursor` of the previous page; an unreadable one throws `invalid_request`. */
  cursor?: string
}

export interface CheckpointQuery {
  orgId: string
  sandboxId?: string
  owner?: CheckpointOwner
  /** Leaves those of turns out. */
  withoutTurns?: boolean
  /** Only those of sandboxes of it that have a record. */
  reach?: KeyReach
  limit: number
  cursor?: string
}

export interface TreeQuery {
  orgId: string
  reach?: KeyReach | undefined
}

export interface TreeNodes {
  nodes: TreeNode[]
  /** There are more. */
  isCut: boolean
}

/** Of a sandbox, the checkpoint that it was started from is the parent; of a checkpoint, its sandbox. */
export type TreeNode = { parentId: string | null } & (
  | { type: 'sandbox'; sandbox: Pick<Sandbox, 'id' | 'name' | 'status' | 'reason' | 'createdAt'>; sessionId?: string }
  | {
      type: 'checkpoint'
      checkpoint: Pick<Checkpoint, 'id' | 'name' | 'status' | 'error' | 'kind' | 'owner' | 'sizeBytes' | 'createdAt'>
      sessionId?: string
    }
)

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
