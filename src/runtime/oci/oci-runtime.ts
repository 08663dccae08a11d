import type { HostTool } from '../hostd/index.ts'
import type { ProcessIdentity } from '../process.ts'
import type { ContainerResources } from './container-config.ts'

/**
 * A program that runs containers from OCI bundles, such as runc: everything that the driver asks of it. A driver for another
 * program is one implementation of this interface and one entry in `ociRuntimes`; `test/conformance/oci-runtime.ts` holds
 * what it promises.
 *
 * A container goes by the id of its sandbox. Its bundle is a folder with a `config.json` (`container-config.ts`), a mounted
 * `root`, and `criu.conf`, which the annotation `org.criu.config` names. Containers outlive this process: an instance that is
 * made later for the same folders knows them.
 */
export interface OciRuntime {
  /** Used in messages and in `stateDir`. */
  readonly name: string

  /** The command that runs containers: when its file changes, CRIU is tested again. */
  readonly program: string

  /** Holds what the runtime knows of its containers. The driver makes it (mode 0700) and empties it after a reboot. */
  readonly stateDir: string

  /** Whether `checkpoint` and `restore` work; they are not called otherwise. CRIU does the work, with its own options file. */
  readonly canCheckpoint: boolean

  /**
   * Creates and starts the container of a bundle. Returns its first process, which is no child of this server. Throws
   * `OciRuntimeError`; the caller then removes with `delete` what is left of the container.
   */
  run(id: string, bundle: string): Promise<ProcessIdentity>

  /**
   * Saves the processes of a container that was started from this bundle into the existing folder `images`. Throws `OciRuntimeError`;
   * CRIU's `dump.log` in that folder has the cause, and a CRIU may still work there. `groups`: the folders of a control group in which
   * the call runs.
   */
  checkpoint(
    id: string,
    bundle: string,
    options: CriuCall & { leaveRunning: boolean; groups?: readonly string[] },
  ): Promise<void>

  /**
   * Starts the container of a bundle with the processes in `images`. Returns its first process when all run. With `lazyPages` a daemon
   * that listens in that folder serves their memory. Throws like `checkpoint` (`restore.log`).
   */
  restore(id: string, bundle: string, options: CriuCall & { lazyPages: boolean }): Promise<ProcessIdentity>

  /** Changes the limits of a running container. Throws `conflict` when its processes hold more memory than the limit. */
  update(id: string, resources: ContainerResources): Promise<void>

  /**
   * Forgets a container whose processes have ended and detaches what is mounted in its state. Harmless when repeated, and for an
   * unknown id. The driver removes the control group.
   */
  delete(id: string): Promise<void>

  /** The first process as recorded, whether it still runs or not; undefined for an unknown id. */
  state(id: string): Promise<ProcessIdentity | undefined>

  /** The ids of all containers that have state, those included that `run` or `restore` left behind. */
  list(): Promise<string[]>

  /**
   * Waits for checkpoints and restores that a dead server has begun: their processes would not survive an interruption.
   * Returns how many there were.
   */
  awaitStrays(timeoutMs: number): Promise<number>
}

export interface CriuCall {
  /** Path of the program. */
  criu: string
  /** Absolute path of the folder of images, in which CRIU works. */
  images: string
  timeoutMs: number
}

/** What an instance works with: one data directory on one host. */
export interface OciHost {
  /** The folder of the data directory below `/run`. */
  runDir: string
  /** The folder of the bundles. A call for one of them does not see the mounts of the others. */
  sandboxesDir: string
  dataDir: string
  hostd: HostTool
  /** The folders of the control group in which containers are started and restored; they leave it for their own. Absent: this server's. */
  startGroups?: () => Promise<readonly string[]>
}

/** Makes an instance, without touching the host. */
export type CreateOciRuntime = (host: OciHost) => OciRuntime

/** A call of the runtime failed. */
export class OciRuntimeError extends Error {
  /** One bounded line without folders of the host. */
  readonly reason: string
  readonly isTimeout: boolean

  constructor(call: string, reason: string, { cause, isTimeout = false }: { cause: unknown; isTimeout?: boolean }) {
    super(`${call} failed: ${reason}`, { cause })
    this.reason = reason
    this.isTimeout = isTimeout
  }
}
