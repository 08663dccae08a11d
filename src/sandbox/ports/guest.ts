import type { Duplex, Readable } from 'node:stream'

/**
 * What the domain asks of the program inside a sandbox. One value of this type speaks to one sandbox; every method opens
 * its own connection, so values are cheap and hold nothing. `runtime/guest-client` implements it over `RuntimeDriver.dial`.
 *
 * All methods throw `unavailable` when the sandbox does not answer, or too slowly, or with nonsense, `not_found` for an
 * unknown process or path, and `invalid_request` for a path or argument that the guest refuses.
 */
export interface Guest {
  /** Resolves when the guest answers. */
  hello(signal?: AbortSignal): Promise<GuestInfo>

  /** Starts a process under a caller-chosen id, unique in this sandbox. A repeat with a live id throws `conflict`. */
  spawn(request: SpawnRequest): Promise<ProcessInfo>

  processes(): Promise<ProcessInfo[]>

  /** State of one process; with `waitMs` it returns at its end, or after that time, whichever is first. */
  process(processId: string, waitMs?: number, signal?: AbortSignal): Promise<ProcessInfo>

  /**
   * The kept output of a process, both streams apart, and whether anything of it was dropped. One that has more than `bytesMax` is
   * `too_large` and stays retained. A guest of an earlier version sends it all the same.
   */
  output(processId: string, bytesMax?: number): Promise<ProcessOutput>

  /** Follows the output log of a process from an offset and writes to its input. */
  attach(processId: string, options?: AttachOptions): Promise<Attachment>

  /** Sends a signal to the whole process group. Harmless after the end. */
  signal(processId: string, signal: number): Promise<void>

  resize(processId: string, cols: number, rows: number): Promise<void>

  /** Forgets a process and its output; one that runs is killed first. */
  release(processId: string): Promise<void>

  stat(path: string): Promise<FileStat>
  list(path: string): Promise<DirectoryEntry[]>
  mkdir(path: string): Promise<void>
  /** Removes a file or a directory with all below it. */
  remove(path: string): Promise<void>

  /**
   * Opens a file for reading. `start` and `end` are byte offsets, `end` inclusive (as in RFC 9110 ranges). The file's stat
   * comes first, then its bytes. A directory throws `invalid_request`. The caller destroys the stream.
   */
  readFile(path: string, range?: { start?: number; end?: number }): Promise<{ stat: FileStat; body: Readable }>

  /**
   * Writes a file under a temporary name beside it and renames it at the end of `body`; parents are made. A body that
   * breaks off or passes `bytesMax` (`too_large`) leaves the old file. Returns the bytes written.
   */
  writeFile(path: string, body: Readable, options?: WriteFileOptions): Promise<number>

  /** TCP ports on which something inside listens, ascending. */
  ports(): Promise<number[]>

  /**
   * A connection to what listens on a port of the sandbox, its loopback first. Throws `nothing_listening`, and `forbidden` for a
   * port of a process with `privatePorts`.
   */
  dial(port: number, signal?: AbortSignal): Promise<Duplex>
}

export interface GuestInfo {
  version: string
}

export interface SpawnRequest {
  id: string
  argv: string[]
  envs: Record<string, string>
  /** Default `/`. */
  cwd?: string
  /** A user name or numeric id of the sandbox. Default root. */
  user?: string
  /** Kills the process group after this time; its exit code is then 124. 0 or absent: never. */
  timeoutMs?: number
  /** Kills the process group when no client has been attached for this long. Absent: never. */
  maxRunAfterDisconnectMs?: number
  pty?: { cols: number; rows: number }
  /** Whether standard input stays open for `attach`; otherwise it is empty. */
  stdin?: boolean
  /**
   * `dial` refuses what the process listens on, and what belongs to it: its process group, and children that it has given a pipe as
   * standard input. A guest of an earlier version refuses nothing.
   */
  privatePorts?: boolean
  /** Bytes kept of each stream. Default 1 MiB. */
  keepBytes?: number
  /**
   * `tail` (default) drops the oldest output beyond `keepBytes`. `lossless` drops only what was acknowledged and stops
   * reading the process while `keepBytes` are waiting.
   */
  keep?: 'tail' | 'lossless'
}

export interface ProcessInfo {
  id: string
  pid: number
  argv: string[]
  running: boolean
  /** 128 + n for a signal n, 124 after a timeout. Absent while it runs. */
  exitCode?: number
  /** ISO 8601, to the second. */
  startedAt: string
  endedAt?: string
  attachedClients: number
  pty: boolean
}

export interface ProcessOutput {
  stdout: Buffer
  stderr: Buffer
  truncated: boolean
}

export interface AttachOptions {
  /** Absolute byte offset in the log of both streams; bytes before what is kept are skipped. Default 0. */
  offset?: number
  signal?: AbortSignal
}

/**
 * Reading it yields, in order: kept output, `replayed`, live output, and `exit` last. A reader that stops reading stops the
 * guest from sending; it costs nothing but the kept output.
 */
export interface Attachment extends AsyncIterable<AttachmentEvent>, AsyncDisposable {
  /** Resolves when the guest has taken the bytes. */
  write(data: Uint8Array): Promise<void>
  /** End of input. */
  end(): Promise<void>
  /** Tells a `lossless` process that everything before this offset may be dropped. */
  acknowledge(offset: number): Promise<void>
  close(): void
}

export type AttachmentEvent =
  | { type: 'output'; stream: 'stdout' | 'stderr'; offset: number; data: Buffer }
  | { type: 'replayed'; offset: number }
  | { type: 'exit'; exitCode: number }

export interface FileStat {
  path: string
  isDir: boolean
  size: number
  /** Permission bits, such as 0o644. */
  mode: number
  modifiedAt: string
}

export interface DirectoryEntry extends FileStat {
  name: string
}

export interface WriteFileOptions {
  bytesMax?: number
  /** Permission bits of a new file; an existing one keeps its own. Default 0o644. */
  mode?: number
  user?: string
}
