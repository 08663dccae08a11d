import type { Creation } from '../lib/creation.ts'

/** What a link to a moment allows: `read` shows the transcript up to it, `fork` also begins sessions from its disk. */
export type CapsuleScope = 'read' | 'fork'

/** A moment of a session that is shown to whoever has its link. It lives until it expires, is revoked, or its session is purged. */
export interface Capsule {
  id: string
  orgId: string
  sessionId: string
  scope: CapsuleScope
  /** The number of the newest event that it shows. */
  event: number
  /** Of scope `fork`: the point from whose disk sessions begin. It is kept for as long as the capsule lives. */
  checkpointId?: string
  /** The turn of that moment failed, and the session has made the capsule itself. */
  reason?: 'error'
  /** Sessions that were begun from it. */
  forks: number
  createdAt: Date
  expiresAt: Date
  revokedAt?: Date
}

export interface NewCapsule extends Omit<Capsule, 'forks' | 'revokedAt'> {
  /** SHA-256 in hex. */
  tokenHash: string
}

/** The port behind which capsules are kept; see `SessionStore`. Deleting a session deletes its capsules. */
export interface CapsuleStore {
  /**
   * Inserts a capsule. Throws `conflict` when the session has `livingMax` of clients that live, and `not_found` when it is gone. With a creation, as
   * `SessionStore.createSession`.
   */
  insert(capsule: NewCapsule, options: { livingMax: number; creation?: Creation | undefined }): Promise<void>
  /** Inserts one that the session has made itself, and deletes the oldest of these but `keptMax`. */
  insertOwn(capsule: NewCapsule, keptMax: number): Promise<void>
  /** Also one that does not live. */
  find(sessionId: string, id: string): Promise<Capsule | undefined>
  /** The capsule of a token that lives now. */
  living(tokenHash: string, now: Date): Promise<Capsule | undefined>
  /** Those that live now, newest first. */
  list(sessionId: string, now: Date): Promise<Capsule[]>
  /** Returns it as it is then; undefined when it is unknown. The first revocation stays. */
  revoke(sessionId: string, id: string, now: Date): Promise<Capsule | undefined>
  /** Counts a fork of a capsule that lives now and has had fewer than `max`; returns false for any other. */
  addFork(id: string, now: Date, max: number): Promise<boolean>
  /** Takes a fork back that was counted and not made. */
  removeFork(id: string): Promise<void>
  /** Of these checkpoints, those that a capsule needs that lives now. */
  neededCheckpoints(checkpointIds: readonly string[], now: Date): Promise<ReadonlySet<string>>
  /** Deletes those that have expired, and those that were revoked before. Returns at most `limit`. */
  deleteOver(times: { expiredBy: Date; revokedBy: Date }, limit: number): Promise<Capsule[]>
}
