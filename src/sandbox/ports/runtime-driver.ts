import type { Duplex } from 'node:stream'
import { ServiceError } from '../../errors.ts'

/**
 * The port to the runtime: where sandboxes run.
 *
 * Terms. A *sandbox* is a machine with a disk and a guest as PID 1. A *checkpoint* is a frozen disk (`disk_only`), or disk
 * and memory (`full`), from which any number of sandboxes can start.
 *
 * Hosts. The port names sandboxes, checkpoints and images by id only. Callers know no path, pid, root file system or address, and do
 * not assume that sandboxes run on this machine: a driver may place them on several hosts. So capabilities are asked per sandbox,
 * the gateway's address is what hosts can reach, `sandboxAt` maps an address that the driver vouches for, and the report of `open`
 * tells sandboxes on hosts that do not answer (`unreachable`) from lost ones.
 *
 * Life cycle of a sandbox:
 *
 *     create ──► running ⇄ hibernated        delete removes it from every state
 *                  │  hibernate / wake       restore puts running, hibernated and exited ones back to a checkpoint
 *                  └──► exited (reported once through `onExit`; the disk stays until delete, `wake` starts it again)
 *
 * The caller serialises calls on one sandbox, except `dial`, which may come at any time and fails with `unavailable` when
 * the sandbox does not run. All methods are safe to repeat after a crash of this process at any moment.
 *
 * Example, a fork: `create(source)`, `checkpoint(source.id, 'cp-1', 'disk_only')`,
 * `create({...spec, id: 'sb-2', from: {checkpointId: 'cp-1'}})`, then `delete('sb-2')` and `deleteCheckpoint('cp-1')`.
 */
export interface RuntimeDriver {
  /** The value of `ATOLL_RUNTIME` that selects this driver. */
  readonly name: string

  /** What the host on which this process runs can do. */
  readonly capabilities: DriverCapabilities

  /** What the host of this sandbox can do. */
  capabilitiesOf(sandboxId: string): DriverCapabilities

  /**
   * Prepares the host (disk pool, links, packet rules, DNS) and reconciles it with the records: sandboxes in
   * `known` that still run are adopted, abandoned ones are removed, and unknown ones are stopped and moved to quarantine with the
   * disks below them. Known ones in quarantine are taken back. Sandboxes on hosts that do not answer are reported as `unreachable`
   * and left alone. Throws `unavailable` with a remedy when the host cannot run sandboxes, and, before anything is stopped or removed,
   * when a large part of its data would go to quarantine.
   */
  open(known: KnownResources): Promise<ReconcileReport>

  /** Releases the host. Running sandboxes run on and are adopted by the next `open`; shared host resources go when none runs. */
  close(): Promise<void>

  /**
   * Creates a sandbox and returns when its guest answers. Throws `no_capacity` when the host is out of ids, addresses or
   * disk, `not_found` for an unknown image or checkpoint, `full_checkpoint_unavailable` where memory cannot be
   * restored, `conflict` where it does not fit into `memoryMb` (a `wake` likewise).
   * After a failure or an abort nothing of it is left.
   */
  create(spec: SandboxSpec, signal?: AbortSignal): Promise<void>

  /**
   * Releases CPU and memory and keeps the disk; with `capabilities.fullCheckpoints` the memory is kept too. Repeating it is
   * harmless. A failure leaves the sandbox running: `conflict` with the reason when its memory cannot be saved,
   * `no_capacity` when there is no room for it; `unavailable` when it ends by itself before its exit was reported. `sizeBytes` is what the state takes on disk.
   */
  hibernate(sandboxId: string): Promise<{ sizeBytes: number }>

  /**
   * Brings a hibernated or exited sandbox back and returns when its guest answers: one whose memory was saved goes on where
   * it was, under the same address; any other starts on its disk. On a running one it does nothing. A failure keeps the saved state, to be tried again; `full_checkpoint_unavailable` with the reason when
   * the memory could not be restored. One that comes when its processes have gone on already costs the memory, as the disk is
   * newer by then: the error says so, and the next wake starts on the disk. An abort costs it never: it may come too late.
   */
  wake(spec: SandboxSpec, signal?: AbortSignal): Promise<void>

  /**
   * Puts a running, hibernated or exited sandbox back to a checkpoint of its own, in place: the same id and address, the
   * disk (and memory, for a full one) of the checkpoint. Returns when its guest answers. What it wrote since is gone.
   * Throws `not_found`, `no_capacity`, `full_checkpoint_unavailable`, and `conflict` for a memory larger than the sandbox may
   * have, before anything is touched. A failure after that, or an abort, leaves its disk as it was. A sandbox that ran is restarted on
   * it ({@link RestartedOnDiskError}); a hibernated one stays so with its memory. The checkpoint
   * stays whatever happens; a repeat restores once more. After a crash in the middle it is dormant, before or after the restore but never between.
   */
  restore(spec: SandboxSpec, checkpointId: string, signal?: AbortSignal): Promise<void>

  /**
   * Ends all processes and starts the sandbox anew on its disk; a saved memory is given up. Returns when its guest answers.
   * With `graceMs` processes are asked first (SIGTERM) and killed after that time. A failure leaves it stopped with its
   * disk, for `wake`. A repeat restarts it once more.
   */
  restart(spec: SandboxSpec, options?: { graceMs?: number; signal?: AbortSignal }): Promise<void>

  /**
   * Gives a sandbox new limits of CPU, memory and disk; a running one at once and without a pause. `conflict` when its
   * processes hold more memory than the new limit; nothing has changed then. Repeating it is harmless. The limits of a
   * sandbox that does not run are those that `wake` is given.
   */
  resize(spec: SandboxSpec): Promise<void>

  /** Removes the sandbox with all that it holds. Repeating it, or naming an unknown id, is harmless. */
  delete(sandboxId: string): Promise<void>

  /**
   * Freezes the state of a sandbox under a new checkpoint id; the sandbox runs on, `full` pauses it for the dump alone. A
   * failure leaves nothing. `full` throws `full_checkpoint_unavailable` without `capabilities.fullCheckpoints`, and
   * `conflict` with the reason when the sandbox does not run or holds what cannot be saved; both throw `conflict` for an
   * id that is taken and `no_capacity` when the disk pool is full. `sizeBytes` counts disk and memory.
   */
  checkpoint(sandboxId: string, checkpointId: string, kind: CheckpointKind): Promise<{ sizeBytes: number }>

  /** Removes a checkpoint; disks that other sandboxes still stand on stay until the last of them goes. Repeating is harmless. */
  deleteCheckpoint(checkpointId: string): Promise<void>

  /**
   * Opens one connection to the guest of a running sandbox. The caller destroys it. Throws `unavailable`.
   *
   * Memory cannot be saved while a connection is open, so before a full checkpoint or a hibernation with memory the driver
   * emits `freeze` on each open connection, with a {@link FreezeReason}. Its owner has `freezeGraceMs` to finish and close
   * it; then the driver destroys it. A dial that comes during a checkpoint waits for its end; during a hibernation it fails.
   */
  dial(sandboxId: string, signal?: AbortSignal): Promise<Duplex>

  /**
   * Registers the one listener for sandboxes that ended by themselves (not by `delete` or `hibernate`), or that the driver ended because
   * their guest had not answered for long without an operation under way.
   */
  onExit(listener: (exit: SandboxExit) => void): void

  /**
   * Where the model gateway listens so that the hosts of this driver reach it, and the name under which sandboxes reach it. With
   * sandboxes on other hosts this is an address that those hosts forward to.
   */
  gateway(): { listenHost: string; listenPort: number; insideHost: string }

  /**
   * The sandbox behind the peer address of a connection to the gateway's listener. The driver vouches for it: its network, or its
   * forwarder on another host, lets no sandbox use the address of another.
   */
  sandboxAt(peerAddress: string): string | undefined
}

export interface DriverCapabilities {
  /** Memory is kept by `full` checkpoints and by hibernation. */
  fullCheckpoints: boolean
  /** Why not, for the client and for `doctor`. */
  fullCheckpointsReason?: string
}

/** What a connection's `freeze` event carries: after a checkpoint the sandbox goes on at once, after a hibernation it does not. */
export type FreezeReason = 'checkpoint' | 'hibernate'

export const freezeGraceMs = 2000

/**
 * A `restore` failed after it had ended the processes of a running sandbox. The driver has restarted the sandbox on the disk that it
 * had; its memory is lost.
 */
export class RestartedOnDiskError extends ServiceError {}

export type CheckpointKind = 'full' | 'disk_only'

export interface SandboxSpec {
  id: string
  /** Name of an installed image, such as `base`. */
  image: string
  /** Start from this checkpoint's disk (and memory, for a full one) instead of from the bare image. */
  from?: { checkpointId: string }
  cpuCount: number
  memoryMb: number
  diskMb: number
}

export interface KnownResources {
  /** Sandboxes that should exist: running ones are adopted, hibernated ones keep their disk. */
  sandboxIds: readonly string[]
  checkpointIds: readonly string[]
  /** Deleted sandboxes and checkpoints, and interrupted starts and dumps: a crash may have left remains of them. */
  abandoned: { sandboxIds: readonly string[]; checkpointIds: readonly string[] }
}

export interface ReconcileReport {
  /** Known sandboxes that run. A guest that stopped answering is reported later, as an exit. */
  running: string[]
  /** Known sandboxes that do not run but whose disk (and memory, if hibernated with it) is whole. */
  dormant: string[]
  /** Dormant ones whose memory was lost: they start anew on their disks. */
  forgotten: string[]
  /**
   * Known sandboxes whose host does not answer. They are neither running nor lost: their records stay as they are, and their
   * operations throw `unavailable`. A driver for this machine alone reports none.
   */
  unreachable: string[]
  /** Known sandboxes of which nothing usable is left. */
  lost: string[]
  /** Known checkpoints of which nothing usable is left. */
  lostCheckpoints: string[]
  /** Ids of abandoned ones whose remains were removed, for the log. */
  removed: string[]
  /** Moved to quarantine. Known ones among them are lost too. */
  quarantined: Quarantined[]
  /** Known sandboxes and checkpoints that lay in quarantine and are back. */
  takenBack: string[]
}

export interface Quarantined {
  kind: 'sandbox' | 'checkpoint'
  id: string
  reason: QuarantineReason
}

/** Why it is in quarantine: the database does not know it, its record is unreadable, it has none, or a disk below it is not whole. */
export type QuarantineReason = 'unknown' | 'unreadable' | 'unrecorded' | 'damaged'

export interface SandboxExit {
  sandboxId: string
  reason: 'oom' | 'disk_full' | 'runtime_failed' | 'host_lost'
  message: string
}
