import type { Duplex, Readable } from 'node:stream'
import type { CreateOptions } from '../lib/creation.ts'
import type { Checkpoint } from './checkpoint.ts'
import type { VerificationRecord } from './custom-domain.ts'
import type { CheckpointKind } from './ports/runtime-driver.ts'
import type { Attachment, AttachOptions, DirectoryEntry, FileStat, ProcessInfo } from './ports/guest.ts'
import type { Patch, PatchStrategy } from './patch.ts'
import type { Preview } from './preview.ts'
import type { ProcessKind } from './process-id.ts'
import type { Sandbox, SandboxStatus } from './sandbox.ts'
import type { Page, TagKey } from './ports/sandbox-store.ts'

/**
 * Everything that can be done with sandboxes. Each call names the organisation that asks; what it does not own is `not_found`.
 * A call that needs a running sandbox wakes a hibernated one first and counts as activity; on a stopped one it throws
 * `sandbox_stopped`, in `error` it throws `conflict`. Input is checked here, whoever calls: `invalid_request` names the field.
 */
export interface SandboxService {
  create(orgId: string, input: CreateSandbox, options?: CreateOptions): Promise<StartedSandbox>
  get(orgId: string, sandboxId: string): Promise<Sandbox>
  list(orgId: string, query: ListSandboxes): Promise<Page<Sandbox>>
  /** Stops it for good. Repeating it is harmless. */
  delete(orgId: string, sandboxId: string): Promise<void>
  /** Replaces the rolling idle timeout and restarts its clock. */
  setTimeout(orgId: string, sandboxId: string, timeoutSeconds: number): Promise<void>
  hibernate(orgId: string, sandboxId: string): Promise<{ sizeBytes: number }>
  wake(orgId: string, sandboxId: string, timeoutSeconds?: number): Promise<Sandbox>
  /** Ends all processes and starts the sandbox again on its disk; a `powerCycle` gives them no time to end by themselves. */
  reboot(orgId: string, sandboxId: string): Promise<Sandbox>
  powerCycle(orgId: string, sandboxId: string): Promise<Sandbox>
  /** Changes memory, and CPU in step (one for each 4 GiB, at least what it has now), while it runs. */
  scale(orgId: string, sandboxId: string, memoryMb: number): Promise<Sandbox>
  /** Moment at which the idle timeout runs out as things stand; undefined when it never does. */
  endAt(sandbox: Sandbox): Date | undefined
  setTags(orgId: string, sandboxId: string, tags: Record<string, string>): Promise<Sandbox>
  tagKeys(orgId: string): Promise<TagKey[]>

  readonly checkpoints: CheckpointService
  readonly patches: PatchService
  readonly previews: PreviewService
  readonly files: FileService
  readonly exec: ExecService
}

export interface CreateSandbox {
  /** An id allocated before (`newId('sb-')`), for callers that announce it before the boot. */
  id?: string
  image?: string
  timeoutSeconds?: number
  cpuCount?: number
  memoryMb?: number
  diskMb?: number
  envs?: Record<string, string>
  metadata?: Record<string, string>
  previewAuth?: PreviewAuth
}

/** `token` is chosen by the caller (16 or more characters) or made (`auto` or absent). */
export interface PreviewAuth {
  scheme: 'bearer'
  token?: string
}

export interface StartedSandbox {
  sandbox: Sandbox
  /** Shown this once. */
  previewAuthToken?: string
}

export interface ListSandboxes {
  /** Default: all that are not stopped. */
  status?: SandboxStatus
  limit?: number
  cursor?: string
}

export interface CheckpointService {
  /** Returns while the checkpoint is `processing`; `settled` waits for its end. */
  create(orgId: string, sandboxId: string, input: CreateCheckpoint, options?: CreateOptions): Promise<Checkpoint>
  /** The checkpoint once it is `ready` or `failed`. */
  settled(orgId: string, checkpointId: string): Promise<Checkpoint>
  list(orgId: string, sandboxId: string): Promise<Checkpoint[]>
  /** Of all sandboxes and organisations, those whose name begins so: for sessions, which look for their own. */
  named(prefix: string): Promise<Checkpoint[]>
  delete(orgId: string, sandboxId: string, checkpointId: string): Promise<void>
  /** Puts the sandbox back to the checkpoint, in place. */
  restore(orgId: string, sandboxId: string, checkpointId: string): Promise<void>
  /** Starts a sandbox from it; waits for one that is `processing`. Patches run before it returns (`patch_failed`). */
  start(
    orgId: string,
    checkpointId: string,
    input: StartFromCheckpoint,
    options?: CreateOptions,
  ): Promise<StartedSandbox>
  /** Starts `count` sandboxes, each with a result of its own; throws what would fail every one of them. */
  startMany(
    orgId: string,
    checkpointId: string,
    input: StartFromCheckpoint,
    count: number,
    options?: CreateOptions,
  ): Promise<PromiseSettledResult<StartedSandbox>[]>
}

export interface CreateCheckpoint {
  /** Chosen by the caller, never by a client: of sessions, which know their own checkpoints by it. */
  id?: string
  name: string
  kind?: CheckpointKind
  /** Leaves at most `maxCount` of the kind once the new one is ready, and none less when it fails. */
  retentionPolicy?: { mode: 'delete_oldest'; maxCount: number }
}

export interface StartFromCheckpoint {
  id?: string
  timeoutSeconds?: number
  envs?: Record<string, string>
  memoryMb?: number
}

export interface PatchService {
  create(orgId: string, checkpointId: string, input: CreatePatch, options?: CreateOptions): Promise<Patch>
  list(orgId: string, checkpointId: string): Promise<Patch[]>
  delete(orgId: string, checkpointId: string, patchId: string): Promise<void>
}

export interface CreatePatch {
  script: string
  description?: string
  strategy?: PatchStrategy
}

export interface PreviewService {
  /**
   * `created` is false when the port had a preview, which is then updated. `token` is the one that this call has set. A domain leads
   * to the port once its record is seen; throws `conflict` when the domain is another preview's.
   */
  put(
    orgId: string,
    sandboxId: string,
    input: PutPreview,
    options?: CreateOptions,
  ): Promise<{ preview: Preview; created: boolean; token?: string }>
  list(orgId: string, sandboxId: string): Promise<Preview[]>
  delete(orgId: string, sandboxId: string, port: number): Promise<void>
  /** A new token for all ports of the sandbox that have none of their own. */
  rotate(orgId: string, sandboxId: string): Promise<string>
  /** The TXT record that proves the preview's domain; undefined when it has none. */
  verification(preview: Pick<Preview, 'orgId' | 'customHostname'>): VerificationRecord | undefined
  /** `<sandbox_id>-p<port>.<preview domain>` */
  hostname(sandboxId: string, port: number): string
  /**
   * Finds what a host name (lower case, without port) stands for; undefined when nothing. Wakes nothing and asks for no
   * key: whoever knows the name may knock, and the proxy asks for the token.
   */
  resolve(hostname: string): Promise<PreviewTarget | undefined>
  /**
   * Notes how the certificate of a host name fared: `active` when one was served, `failed` when none came. What is not a
   * declared preview, or not any more, is left alone.
   */
  recordCertificate(hostname: string, status: 'active' | 'failed'): Promise<void>
  /**
   * Opens a connection to the port, waking the sandbox (up to 30 s). Throws `nothing_listening`, `sandbox_stopped`, and `forbidden`
   * for what an internal process listens on.
   */
  dial(target: PreviewTarget, signal?: AbortSignal): Promise<Duplex>
  /** Counts as activity for as long as it is held; call the result once when the request or socket ends. */
  hold(sandboxId: string): () => void
}

/** Of a port that has a preview, what is absent stays as it was and `null` removes it. */
export interface PutPreview {
  port: number
  domain?: string | null
  auth?: PreviewAuth | null
}

export interface PreviewTarget {
  sandbox: Sandbox
  port: number
  /** SHA-256 in hex of the token to demand: the port's own, else the sandbox's; absent when the port is open. */
  tokenHash?: string
  /** A declared preview whose `sslStatus` is about this very host name and not `active` yet. Never without TLS. */
  awaitsCertificate?: true
}

export interface FileService {
  /** See `Guest.readFile`; the stream must be destroyed. */
  read(
    orgId: string,
    sandboxId: string,
    path: string,
    range?: { start?: number; end?: number },
  ): Promise<{ stat: FileStat; body: Readable }>
  stat(orgId: string, sandboxId: string, path: string): Promise<FileStat>
  write(orgId: string, sandboxId: string, path: string, body: Readable, bytesMax?: number): Promise<void>
  list(orgId: string, sandboxId: string, path: string): Promise<DirectoryEntry[]>
  mkdir(orgId: string, sandboxId: string, path: string): Promise<void>
  remove(orgId: string, sandboxId: string, path: string): Promise<void>
  /** The query string (without `?`) that authorises one operation on one path until `expiresAt`. */
  sign(orgId: string, sandboxId: string, input: SignFile): Promise<{ query: string; expiresAt: Date }>
  /**
   * Checks a signed query and returns whose it is. Throws `signature_invalid` or `signature_expired`.
   * `bytesMax` bounds an upload.
   */
  verify(operation: FileOperation, sandboxId: string, query: SignedQuery): Promise<{ orgId: string; bytesMax?: number }>
}

export type FileOperation = 'upload' | 'download'

export interface SignFile {
  operation: FileOperation
  path: string
  /** 1 to 86 400; default 3600. */
  expiresInSeconds?: number
  bytesMax?: number
}

/** As read from the URL, nothing checked. */
export interface SignedQuery {
  path?: string | undefined
  expires?: string | undefined
  signature?: string | undefined
  maxBytes?: string | undefined
}

export interface ExecService {
  /** Runs to the end; past the timeout the group dies and `exitCode` is 124. */
  run(orgId: string, sandboxId: string, input: RunCommand, options?: RunOptions): Promise<RunResult>
  /** Starts in the background; `result` has the outcome for ten minutes after its end. */
  runAsync(orgId: string, sandboxId: string, input: RunCommand, options?: CreateOptions): Promise<{ execId: string }>
  /** Waits a moment for the end. */
  result(orgId: string, sandboxId: string, execId: string, options?: ResultOptions): Promise<RunState>
  /** Starts an exec session that clients attach to. */
  start(orgId: string, sandboxId: string, input: StartExec, options?: CreateOptions): Promise<ProcessInfo>
  /** Those of one kind, exec sessions (default). It wakes: the processes themselves are asked, which sleep in the memory. */
  list(orgId: string, sandboxId: string, kind?: ProcessKind): Promise<ProcessInfo[]>
  /** The attachment keeps the sandbox awake until it is closed, except to an internal process. `not_found` for another kind. */
  attach(orgId: string, sandboxId: string, processId: string, options?: AttachExec): Promise<Attachment>
  /** `not_found` for another kind; default are signal 9 and exec sessions. */
  kill(orgId: string, sandboxId: string, processId: string, signal?: number, kind?: ProcessKind): Promise<void>
  startPty(orgId: string, sandboxId: string, input: StartPty, options?: CreateOptions): Promise<ProcessInfo>
  resizePty(orgId: string, sandboxId: string, ptyId: string, cols: number, rows: number): Promise<void>
  deletePty(orgId: string, sandboxId: string, ptyId: string): Promise<void>
  /** TCP ports on which something inside listens, ascending; none unless it runs. Wakes nothing and is no activity. */
  ports(orgId: string, sandboxId: string): Promise<number[]>
}

export interface AttachExec extends AttachOptions {
  /** What the id must be of. Default `exec`. */
  kind?: ProcessKind
  /** With `false` a sandbox that does not run is not woken: `conflict`. Default true. */
  wake?: boolean
}

export interface RunCommand {
  /** Without `args` and with a space in it, it runs under `sh -c`. */
  cmd: string
  args?: string[]
  envs?: Record<string, string>
  cwd?: string
  user?: string
  /** Default 60; 0 means none. */
  timeoutSeconds?: number
}

export interface RunOptions {
  /** Ends the command when it aborts. */
  signal?: AbortSignal
  /**
   * Settles when the caller has let go of the result. Of large outputs only so many are held at a time: with it, such a one
   * counts until then.
   */
  sent?: Promise<unknown>
}

export interface ResultOptions extends Pick<RunOptions, 'sent'> {
  /** At most 1000, the default. */
  waitMs?: number
}

export interface RunResult {
  exitCode: number
  stdout: string
  stderr: string
  /** Present and true when a stream passed 8 MiB and its beginning was dropped. */
  truncated?: true
}

export interface RunState extends Partial<Pick<RunResult, 'exitCode' | 'truncated'>> {
  running: boolean
  stdout: string
  stderr: string
}

export interface StartExec extends RunCommand {
  maxRunAfterDisconnectSeconds?: number
  /** `lossless` keeps all that was not acknowledged; default `tail`. */
  keep?: 'tail' | 'lossless'
  /** An internal process, such as an agent, is not listed, does not count as activity, and has its ports for itself. */
  internal?: boolean
  /**
   * Id of an internal process (`newId('ag-')`), for callers that write it down before the start. A repeat with the id of a
   * process that is known to the sandbox throws `conflict`.
   */
  id?: string
  /** Bytes kept of each stream; see `SpawnRequest.keepBytes`. */
  keepBytes?: number
}

export interface StartPty {
  cols?: number
  rows?: number
  shell?: string
  cwd?: string
  envs?: Record<string, string>
  user?: string
}
