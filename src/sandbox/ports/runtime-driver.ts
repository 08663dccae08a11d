import type { Duplex } from 'node:stream'
import { ServiceError } from '../../errors.ts'
import type { DiskReport } from './disk-report.ts'
import type { DiskTrees } from './disk-trees.ts'
import type { DriverEgress } from './egress.ts'
import type { ImageSource, ImageTarget, ImportedImage } from './image-import.ts'
import type { KnownResources, ReconcileReport } from './reconcile-report.ts'
import type { StepMounts } from './step-mounts.ts'

export * from './disk-report.ts'
export * from './disk-trees.ts'
export type * from './egress.ts'
export type * from './image-import.ts'
export type * from './reconcile-report.ts'
export type * from './step-mounts.ts'

/**
 * The port to the runtime: where sandboxes run.
 *
 * Terms. A *sandbox* is a machine with a disk and a guest as PID 1. A *checkpoint* is a frozen disk (`disk_only`), or disk
 * and memory (`full`), from which any number of sandboxes can start. A *volume* is a folder with a size of its own that outlives
 * sandboxes and is mounted in them; no checkpoint contains it.
 *
 * Hosts. A driver may run sandboxes on several hosts, so the port names sandboxes, checkpoints and images by id only: callers know
 * no path, pid or address, and ask for capabilities per sandbox.
 *
 * Life cycle of a sandbox:
 *
 *     create ──► running ⇄ hibernated        delete removes it from every state
 *                  │  hibernate / wake       restore puts running, hibernated and exited ones back to a checkpoint
 *                  └──► exited (reported once through `onExit`; the disk stays until delete, `wake` starts it again)
 *
 * The caller serialises calls on one sandbox, except `dial` and `usage`, which may come at any time; `dial` fails with `unavailable`
 * when the sandbox does not run. All methods are safe to repeat after a crash of this process at any moment.
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
   * Prepares the host (disk pool, links, packet rules, DNS) and reconciles it with the records: adopts known sandboxes that run,
   * removes abandoned ones, and stops unknown ones and moves them to quarantine with the disks below them. Known ones in quarantine
   * are taken back; those on hosts that do not answer are left alone. Throws `unavailable` with a remedy when the host cannot run
   * sandboxes, or, before it stops or removes anything, when a large part of its data would go to quarantine.
   */
  open(known: KnownResources): Promise<ReconcileReport>

  /** Releases the host. Sandboxes run on for the next `open`; shared host resources go when none runs. */
  close(): Promise<void>

  /**
   * Starts a warm sandbox, like `create`. A later `create` of its id takes it over and only sets its limits. An `open` removes those that
   * nobody has taken over. Beside `create`, only `isPrepared`, `delete` and `onExit` take a warm one.
   */
  prepare(spec: SandboxSpec, signal?: AbortSignal): Promise<void>

  /**
   * Whether the prepared sandbox of this id runs and is what a `create` would start now. Its image may have been replaced or removed
   * meanwhile, its checkpoint deleted. A `create` removes one that does not fit and starts another.
   */
  isPrepared(spec: SandboxSpec): Promise<boolean>

  /**
   * Creates a sandbox, or takes over a prepared one, and returns when its guest answers. Throws `no_capacity` when the host is out of ids, addresses or disk,
   * `not_found` for an unknown image or checkpoint, `full_checkpoint_unavailable` when memory cannot be restored here or now,
   * `memory_not_restorable` when it never can as it was saved, and `conflict` when it exceeds `memoryMb` (a `wake` likewise). A failure or an abort leaves nothing.
   */
  create(spec: SandboxSpec, signal?: AbortSignal): Promise<void>

  /**
   * Releases CPU and memory and keeps the disk, and the memory with `capabilities.fullCheckpoints`. Repeating it is harmless.
   * `sizeBytes` is the size of the state on disk. A failure leaves the sandbox running: `conflict` with the reason when its memory
   * cannot be saved, `no_capacity` when the disk is full. `unavailable`: it ended by itself, and its exit was not reported yet.
   */
  hibernate(sandboxId: string): Promise<{ sizeBytes: number }>

  /**
   * Starts a hibernated or exited sandbox and returns when its guest answers: from its saved memory under the same address, else on
   * its disk. Does nothing to a running one. A failure or an abort keeps the saved state for a retry; `full_checkpoint_unavailable`
   * or `memory_not_restorable` with the reason when the memory cannot be restored. A failure after its processes have resumed loses the memory, because the
   * disk is newer by then: the error says so, and the next wake starts on the disk. An abort never loses it; it may come too late.
   */
  wake(spec: SandboxSpec, signal?: AbortSignal): Promise<void>

  /** Whether the next `wake` of a sandbox that does not run is from saved memory. */
  hasMemory(sandboxId: string): boolean

  /**
   * What failed, in words, of the programs in `/etc/atoll/on-fork.d` when a `create` from a checkpoint or a `restore` started this sandbox;
   * undefined from its next start on.
   */
  hookFailure?(sandboxId: string): string | undefined

  /** Whether a checkpoint was made of the saved memory that a sandbox still has, with the disk that belongs to it. */
  isMemoryKept(sandboxId: string, checkpointId: string): boolean

  /**
   * Restores a running, hibernated or exited sandbox to a checkpoint of its own, under the same id and address, and returns when its
   * guest answers. Before it touches anything, it throws `not_found`, `no_capacity`, `full_checkpoint_unavailable`, `memory_not_restorable`, and `conflict` for
   * a memory above the sandbox's limit, or for a present that cannot be saved. A later failure or an abort leaves the present: a sandbox
   * that ran goes on from its memory, or hibernates with it when that fails too, and a hibernated one keeps its own. Without
   * `capabilities.fullCheckpoints` one that ran is restarted on its disk ({@link RestartedOnDiskError}). After a crash it is dormant,
   * restored wholly or not at all. The checkpoint always stays; a repeat restores again.
   */
  restore(spec: SandboxSpec, checkpointId: string, signal?: AbortSignal): Promise<void>

  /**
   * Ends all processes, discards a saved memory, starts the sandbox on its disk, and returns when its guest answers. With `graceMs`
   * processes get SIGTERM and that time first. A failure leaves it stopped with its disk, for `wake`. A repeat restarts it again.
   */
  restart(spec: SandboxSpec, options?: { graceMs?: number; signal?: AbortSignal }): Promise<void>

  /**
   * Sets CPU, memory and disk limits of a running sandbox without a pause; others get theirs from `wake`. Throws `conflict` and
   * changes nothing when its processes hold more memory than the new limit. Repeating it is harmless.
   */
  resize(spec: SandboxSpec): Promise<void>

  /**
   * Compares a running sandbox with its spec, in what the kernel and the disk say, and brings it to the spec without a pause: a server
   * may have ended in the middle of a change. Nothing ends for it: where less memory would not be enough, the sandbox keeps the memory
   * that it has. Returns nothing different for one that does not run. A repeat finds only what cannot be mended.
   */
  align(spec: SandboxSpec): Promise<Alignment>

  /** Removes the sandbox with all its data. Repeating it, or an unknown id, is harmless. */
  delete(sandboxId: string): Promise<void>

  /**
   * Saves the state of a sandbox under a new id; only `full` pauses it, for the dump. A failure leaves nothing. Throws `conflict` for
   * a taken id and `no_capacity` when the disk pool is full; `full` also throws `full_checkpoint_unavailable` without
   * `capabilities.fullCheckpoints`, and `conflict` with the reason when the sandbox does not run or its memory cannot be saved. Of a
   * hibernated sandbox it keeps the saved memory, on any host.
   * `sizeBytes` counts disk and memory.
   */
  checkpoint(sandboxId: string, checkpointId: string, kind: CheckpointKind): Promise<{ sizeBytes: number }>

  /** Removes a checkpoint; its disk stays while other sandboxes use it. Repeating it is harmless. */
  deleteCheckpoint(checkpointId: string): Promise<void>

  /** Removes what has been in quarantine for as long as this driver keeps it; an `open` does so too. A failed removal is tried again by the next call. */
  emptyQuarantine?(): Promise<void>

  /**
   * Makes an empty volume, or a clone of `from`, a volume or snapshot, as it is now; both take the same time whatever it holds. Root of
   * every sandbox owns what root of another has written. A write beyond `sizeMb` fails inside with EDQUOT. Throws `conflict` for a taken
   * id, `no_capacity`, and `unavailable` when the data of `from` is gone. A failure leaves nothing.
   */
  createVolume(spec: VolumeSpec): Promise<void>

  /** Removes a volume or a snapshot that no sandbox has. Its clones stay. Repeating it is harmless. */
  deleteVolume(id: string): Promise<void>

  /** Freezes a volume as it is now, under a new id, whether or not a sandbox writes to it. Throws like `createVolume`. */
  snapshotVolume(volumeId: string, snapshotId: string): Promise<void>

  /** The state of a volume or a snapshot; undefined when there is none. With `flush` all that was written before counts. */
  volumeState(id: string, options?: { flush?: boolean }): Promise<VolumeState | undefined>

  /**
   * Makes a `disk_only` checkpoint of an OCI image, from which sandboxes start as from any other, and which `deleteCheckpoint` removes.
   * Images that begin alike share layers on the disk. A failure, an abort or a crash leaves nothing. Undefined where the driver cannot.
   *
   * Throws `invalid_request` with what is wrong with the image (`details.field` is `image.oci` or `archive`), `too_large` when it passes a
   * bound, `conflict` for a taken id, `no_capacity` when the disk pool is full, and `unavailable` when the registry does not answer or
   * this host lacks a program. One `owner` leaves others a place among those that unpack at once.
   */
  importImage?(checkpointId: string, source: ImageSource, signal?: AbortSignal, owner?: string): Promise<ImportedImage>

  /**
   * Throws the `invalid_request` of `importImage`, or of `pushImage` with `reference`, for a reference that is wrong in itself, or in a registry
   * that is not allowed.
   */
  assertImportable?(reference: string, field?: 'image.oci' | 'reference'): void

  /** Mounts in a running sandbox for a step of a build. Undefined where the driver cannot. */
  readonly stepMounts?: StepMounts

  /**
   * Sends an OCI archive to a registry and returns the digest that it has there. Undefined where the driver cannot. Throws `invalid_request` for a
   * reference that is wrong or not allowed, and when the registry refuses it, `too_large`, `no_capacity`, and `unavailable` when the registry
   * does not answer. A failure leaves nothing on this host.
   */
  pushImage?(archive: AsyncIterable<Uint8Array>, target: ImageTarget, signal?: AbortSignal): Promise<{ digest: string }>

  /**
   * Opens a connection to the guest of a running sandbox, which the caller destroys. Throws `unavailable`. A dial during a
   * checkpoint waits for its end; during a hibernation it fails.
   *
   * Memory cannot be saved while a connection is open, so the driver first emits `freeze` on each with a {@link FreezeReason}, and
   * destroys those that their owners have not closed within `freezeGraceMs`.
   *
   * Connections are bounded for each sandbox, for each `owner`, and for all together, such that one owner leaves others theirs.
   */
  dial(sandboxId: string, signal?: AbortSignal, owner?: string): Promise<Duplex>

  /**
   * Opens a TCP connection to a port of the loopback of a running sandbox, past its guest, for {@link Guest.dial}. Undefined where only
   * the guest can. Like `dial`, it waits for the end of a checkpoint, and its connections get `freeze`. Throws `nothing_listening`
   * when a listener does not answer, and `unavailable`. These leave some of the connections of a sandbox to `dial`.
   */
  connect?(sandboxId: string, port: number, signal?: AbortSignal, owner?: string): Promise<Duplex | undefined>

  /**
   * What a sandbox uses, as its host sees it: nothing inside is asked. A few reads, so that hundreds of sandboxes can be asked each
   * 15 seconds. Undefined while it does not run, which includes some transitions, and for an unknown id. Throws `unavailable`.
   */
  usage(sandboxId: string): Promise<SandboxUsage | undefined>

  /** Holds what sandboxes reach, as `EgressContext` says. Undefined where the driver cannot. */
  readonly egress?: DriverEgress

  /** Reads disks at rest. Undefined where the driver cannot. */
  readonly trees?: DiskTrees

  /** Divides the host among its running sandboxes. Undefined where the driver cannot. */
  readonly shares?: SandboxShares

  /**
   * What the disks of the hosts can take. While the state is not `ok`, what makes data (`prepare`, `create`, `hibernate`, `checkpoint`,
   * `restore`, `createVolume`, `snapshotVolume`, `importImage`) throws `no_capacity` with the reason; while sandboxes are frozen or cannot
   * write, `wake`, `restart`, `dial` and `connect` do too. What gives back space always goes. Undefined where the driver cannot tell.
   */
  disk?(): DiskReport

  /** Registers the one listener for sandboxes that ended by themselves, or that the driver ended after a long silence of their guest. */
  onExit(listener: (exit: SandboxExit) => void): void

  /** Where the model gateway listens for the hosts of this driver (others forward to it), and its host name inside sandboxes. */
  gateway(): { listenHost: string; listenPort: number; insideHost: string }

  /** Where the metadata service listens for the hosts of this driver. Sandboxes reach it at port 80 of 169.254.169.254, and nobody else does. */
  metadata(): { listenHost: string; listenPort: number }

  /** The sandbox at the peer address of a connection to one of these. The driver lets no sandbox use the address of another. */
  sandboxAt(peerAddress: string): string | undefined
}

export interface DriverCapabilities {
  /** Memory is kept by `full` checkpoints and by hibernation. */
  fullCheckpoints: boolean
  /** Why not, for the client and for `doctor`. */
  fullCheckpointsReason?: string
}

/** After a checkpoint the sandbox goes on at once; after a hibernation it does not. */
export type FreezeReason = 'checkpoint' | 'hibernate'

export const freezeGraceMs = 2000

/** A `restore` failed after it had ended the processes of a sandbox. The driver has restarted it on its old disk, without memory. */
export class RestartedOnDiskError extends ServiceError {}

export type CheckpointKind = 'full' | 'disk_only'

export interface SandboxSpec {
  id: string
  /** Whose start it is: one owner leaves others a place among those that start at once. Absent: of nobody yet. */
  owner?: string
  /** Name of an installed image, such as `base`. */
  image: string
  /** Starts from this checkpoint's disk (and memory, for a full one, unless that is `false`) instead of the image. */
  from?: { checkpointId: string; memory?: false }
  cpuCount: number
  memoryMb: number
  diskMb: number
  /**
   * Mounted before the guest starts; every start of the sandbox gets the same. A start from a full checkpoint needs volumes at the paths
   * that the source had. Throws `conflict` for a path that leads over a link.
   */
  volumes?: readonly SandboxVolume[]
}

export interface Alignment {
  differences: readonly Difference[]
  /** The memory limit in force, if it is not that of the spec. */
  keptMemoryMb?: number
}

/** Something in which a running sandbox was not what it should be. */
export interface Difference {
  what:
    | 'memory'
    | 'processor time'
    | 'processors'
    | 'processes'
    | 'disk'
    | 'disk rates'
    | 'limits that it sees'
    | 'volumes'
    | 'network'
  had: string
  wanted: string
  isMended: boolean
}

export interface SandboxVolume {
  id: string
  /** Absolute, as the sandbox sees it, and normal; no volume of a sandbox lies in another. */
  path: string
  readOnly: boolean
}

export interface VolumeSpec {
  id: string
  sizeMb: number
  /** Id of the volume or snapshot to clone. */
  from?: string
}

export interface VolumeState {
  /** What it holds, shared with clones or not. */
  usedBytes: number
  /** Grows with the changes that have reached the disk: two equal ones show the same content. */
  generation: number
}

/** Counters begin at 0 with each start and wake. */
export interface SandboxUsage {
  /** Processor time, in microseconds. */
  cpuUs: number
  /** Memory that the kernel cannot take back, as it can the cache of files. */
  memoryBytes: number
  /** What it has written to its disk, as its limit counts; undefined while the host does not know. */
  diskBytes: number | undefined
  networkReceivedBytes: number
  networkSentBytes: number
  processCount: number
}

export interface SandboxShares {
  /** What a sandbox has taken of what all share; a few reads without yielding. Undefined while it does not run. */
  consumed(sandboxId: string): Consumed | undefined

  /**
   * Sets what running sandboxes may take; of those that are not named, the limit of the network ends. A start begins without. Throws what
   * failed after it has set the rest; the next call tries again.
   */
  set(shares: ReadonlyMap<string, SandboxShare>): Promise<void>
}

/** Counters that begin at 0 with each start and wake. */
export interface Consumed {
  cpuUs: number
  /** Read and written, as far as the kernel charges the sandbox. */
  diskBytes: number
}

/** Holds on one host, against the sandboxes there. */
export interface SandboxShare {
  /** Of processors and disk, from 1 to 10 000. */
  weight: number
  /** Each way; what the host lets a sandbox do holds besides. */
  diskBytesPerSecond: number
  /** Sandboxes of one group have the rate together, each way; undefined: no limit. */
  network: { group: string; bytesPerSecond: number } | undefined
}

export interface SandboxExit {
  sandboxId: string
  reason: 'oom' | 'disk_full' | 'runtime_failed' | 'host_lost'
  message: string
}
