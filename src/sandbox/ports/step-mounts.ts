/**
 * The part of a driver that mounts something in a running sandbox for one step of a build. What is mounted is no part of the sandbox: while
 * anything is, the sandbox is neither checkpointed nor hibernated nor restored (`conflict`). The end of the sandbox ends all of its mounts.
 *
 * The folders of caches outlive sandboxes and the server. A scratch folder goes with its mount, also after a crash.
 */
export interface StepMounts {
  /**
   * Mounts on top of what is at `target`, which is absolute and normal, and leads where it leads inside. A missing target is made with the
   * folders above it, all of the sandbox's root. Throws `invalid_request` for a target that is or leads to `/`, or into `/proc`, `/sys`,
   * `/dev` or `/.atoll`; `conflict` for one of another kind, as a folder where a file belongs; `no_capacity`; and `unavailable` when the
   * sandbox does not run, or its runtime cannot do it. A failure leaves nothing.
   */
  attach(sandboxId: string, target: string, source: MountSource): Promise<AttachedMount>

  /**
   * Kills all processes of a sandbox but its guest, with those that they start meanwhile, so that nothing of one step lives on in the next.
   * Harmless where there is none. Throws `unavailable` when the sandbox does not run, or they do not end.
   */
  endProcesses(sandboxId: string): Promise<void>

  /** The folder of a cache, with its mode and owner, is made when it is missing. A repeat changes nothing. Throws `no_capacity`. */
  makeCache(id: string, owner: MountOwner): Promise<void>

  /** What the cache may hold; a write beyond it fails inside with EDQUOT. */
  limitCache(id: string, bytes: number): Promise<void>

  /** The caches of the host whose ids begin so. */
  listCaches(prefix: string): Promise<CacheState[]>

  /** Removes a cache that no sandbox has. Repeating it is harmless. */
  removeCache(id: string): Promise<void>
}

export type MountSource =
  /** Counts as used now, and again at its `detach`. */
  | { type: 'cache'; id: string; readOnly: boolean }
  /** In the memory of the sandbox, and charged to it. */
  | { type: 'tmpfs'; bytes: number }
  /** A new empty folder on the disk. */
  | { type: 'scratch'; bytes: number }
  /** A file or folder in the scratch folder of another mount of the sandbox, whose part it stays. */
  | { type: 'part'; of: AttachedMount; path: string; readOnly: boolean }
  /** A file in memory, which is read-only, and a program when its mode has `x`. Its content is in no argument, error or log, and on no disk. */
  | ({ type: 'secret'; content: Uint8Array } & MountOwner)

/** Ids as the sandbox has them. */
export interface MountOwner {
  mode: number
  uid: number
  gid: number
}

export interface AttachedMount {
  /** Of a scratch folder or a part. */
  setReadOnly(): Promise<void>

  /**
   * Unmounts, also when processes still use it (they keep what they have open), and removes what was made for the target and is empty.
   * Mounts on top of it and below it go first. A repeat is harmless, as is one after the end of the sandbox.
   */
  detach(): Promise<void>
}

export interface CacheState {
  id: string
  usedBytes: number
  lastUsedAt: Date
}
