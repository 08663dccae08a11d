import type { ClientOptions, RequestOptions } from './atoll.ts'
import type { EgressOptions } from './egress-policy.ts'
import type { TerminalSize } from './terminal.ts'
import type { CheckpointKind, ImageManifest, SandboxStatus } from './types.ts'
import type { VolumeMount } from './volumes.ts'

export interface CreateSandboxOptions extends ClientOptions, EgressOptions {
  /** Serves wherever its id does, while it lives: `Sandbox.connect(name)`. */
  name?: string | undefined
  /** Name of an image. Default `base`. */
  template?: string | undefined
  /** Name of an image of your own. */
  snapshot?: string | undefined
  /** Builds this image first, unless it is there. Give `requestTimeoutMs` the time that takes. */
  image?: ImageManifest | undefined
  /** Idle timeout in seconds, after which `onIdle` happens; 0: never. It has nothing to do with `requestTimeoutMs`. Default 300. */
  ttlSeconds?: number | undefined
  /** `hibernate` keeps it, and the next use wakes it with its processes; `stop` deletes it. Default `hibernate`, or the server's. */
  onIdle?: 'hibernate' | 'stop' | undefined
  /** Seconds after its creation at which it is deleted, whatever it does; 0: never, the default, or the server's. */
  maxAgeSeconds?: number | undefined
  cpuCount?: number | undefined
  memoryMB?: number | undefined
  diskMB?: number | undefined
  envs?: Record<string, string> | undefined
  metadata?: Record<string, string> | undefined
  volumes?: readonly VolumeMount[] | undefined
  /** Name or id of the user that runs commands and owns new files by default. Default `root`. */
  user?: string | undefined
  /** Demands a token of visitors of its previews; `auto` makes one, see `previewToken`. */
  previewToken?: string | undefined
}

export interface UpdateSandboxOptions extends Pick<CreateSandboxOptions, 'ttlSeconds' | 'onIdle' | 'maxAgeSeconds'> {
  name?: string | null | undefined
}

export interface ListSandboxesOptions extends ClientOptions {
  /** Default: all that are not stopped. */
  status?: SandboxStatus | undefined
  name?: string | undefined
  /** What it was created with. All must match. */
  metadata?: Record<string, string> | undefined
  /** Its tags. All must match; `true` matches any value. */
  tags?: Record<string, string | true> | undefined
}

export interface ConnectOptions extends ClientOptions {
  /** A longer idle timeout. A shorter one than the sandbox has changes nothing. */
  ttlSeconds?: number | undefined
}

export interface WakeOptions extends RequestOptions {
  /**
   * `false`: from its disk as it is; its memory and a copy of that disk stay as a full checkpoint. `true`: from memory that could not be
   * restored before (`MemoryNotRestorableError`), which is not tried again otherwise.
   */
  memory?: boolean | undefined
}

export interface TerminalOptions extends RequestOptions, Partial<TerminalSize> {
  /** Absolute path of the program. Default `/bin/bash`. */
  shell?: string | undefined
  args?: readonly string[] | undefined
  cwd?: string | undefined
  envs?: Record<string, string> | undefined
  user?: string | undefined
}

export interface CheckpointOptions extends RequestOptions {
  name?: string | undefined
  /** `full`: with memory, the default where the machine can; `disk_only`. */
  kind?: CheckpointKind | undefined
  /** Keeps this number of checkpoints of the sandbox and deletes the oldest beyond. */
  keep?: number | undefined
  /** Seconds after which it is deleted by itself. Default: it stays, also when its sandbox is gone. */
  expiresInSeconds?: number | undefined
}

export interface PreviewOptions extends RequestOptions {
  /** A host name of your own; `null` removes it. */
  domain?: string | null | undefined
  /** Demands this token of visitors; `auto` makes one; `null` demands none. */
  token?: string | null | undefined
}
