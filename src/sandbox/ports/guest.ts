import type { Duplex, Readable } from 'node:stream'

/**
 * The port to the guest, the program inside a sandbox. A value speaks to one sandbox and holds nothing: each method opens its own
 * connection. All methods throw `unavailable` when the answer is late, malformed or missing, `not_found` for an unknown process or
 * path, and `invalid_request` for a path or argument that the guest refuses.
 */
export interface Guest {
  /** Resolves when the guest answers. */
  hello(signal?: AbortSignal): Promise<GuestInfo>

  /** Starts a process. Throws `conflict` for an id that the sandbox knows. */
  spawn(request: SpawnRequest): Promise<ProcessInfo>

  /**
   * Starts a process and waits up to `waitMs` for its end. When it has ended with at most `bytesMax` of output, the result has that and
   * the process is released. After a freeze for a checkpoint the wait goes on, and the process is not started again.
   */
  run(request: SpawnRequest, options: RunProcessOptions): Promise<{ process: ProcessInfo; output?: ProcessOutput }>

  processes(): Promise<ProcessInfo[]>

  /** State of a process, after its end or after `waitMs`. */
  process(processId: string, waitMs?: number, signal?: AbortSignal): Promise<ProcessInfo>

  /** The retained output. Above `bytesMax` it throws `too_large` and keeps it. */
  output(processId: string, bytesMax?: number): Promise<ProcessOutput>

  /** Follows the output of a process from an offset and writes to its input. */
  attach(processId: string, options?: AttachOptions): Promise<Attachment>

  /** Signals the process group. Harmless after its end. */
  signal(processId: string, signal: number): Promise<void>

  resize(processId: string, cols: number, rows: number): Promise<void>

  /** Kills a process that runs and forgets it with its output. */
  release(processId: string): Promise<void>

  /*
   * Operations on files have the rights of `user`, root's by default, who also owns what they make. Throw `forbidden` where that user may
   * not.
   */

  stat(path: string, user?: string): Promise<FileStat>
  list(path: string, user?: string): Promise<DirectoryEntry[]>
  /** The entry itself, a link too. */
  inspect(path: string, user?: string): Promise<FileEntry>
  /** Renames an entry, or copies and removes it where a rename cannot. Throws `conflict` where `to` exists, unless it may be replaced. */
  move(from: string, to: string, options?: { overwrite?: boolean; user?: string }): Promise<void>
  /**
   * Tells changes in a folder, in batches and in order, until `ended`, the abort of the signal (throws its reason) or a failure (throws).
   * What is told between two batches waits in the sandbox; when its kernel has no room for more, `lost` is told. Throws `too_large` for
   * more folders, `unavailable` for more watches than a sandbox may have. Resolves when changes from now on are seen.
   */
  watch(path: string, options?: WatchOptions): Promise<AsyncIterable<FileChange[]>>
  mkdir(path: string, user?: string): Promise<void>
  /** Removes a file, or a directory with its content. */
  remove(path: string, user?: string): Promise<void>

  /**
   * Opens a file. `start` and `end` are byte offsets, both inclusive (RFC 9110 ranges). Throws `invalid_request` for a directory.
   * The caller destroys the stream.
   */
  readFile(path: string, options?: ReadFileOptions): Promise<{ stat: FileStat; body: Readable }>

  /**
   * Writes a temporary file and renames it at the end of `body`; creates parents. A body that breaks off or exceeds `bytesMax`
   * (`too_large`) leaves the old file. Returns the bytes written.
   */
  writeFile(path: string, body: Readable, options?: WriteFileOptions): Promise<number>

  /**
   * A tar (ustar and pax) of entries, with root's rights, in an order that depends on the names alone. Sockets, what is mounted below an entry
   * (of a folder the empty folder stays) and the folder of the guest are left out. The stream fails with `not_found` for an entry that is not
   * there, `too_large` beyond `bytesMax`, `conflict` where a file becomes shorter while it is read, and `unavailable` at a checkpoint. The
   * caller destroys it.
   */
  pack(entries: readonly PackEntry[], options?: PackOptions): Promise<Readable>

  /**
   * Unpacks a tar with root's rights, and merges it into what is there. What was unpacked before a failure stays. Throws `conflict` for a
   * file in the place of a folder or the reverse, `invalid_request` for a damaged archive, a name that leads out of the target and an unknown
   * owner, `too_large` and `disk_full`; the messages name the path. A checkpoint ends it with `unavailable`.
   */
  unpack(tar: AsyncIterable<Uint8Array>, options: UnpackOptions): Promise<Unpacked>

  /** TCP ports with a listener, ascending. */
  ports(): Promise<number[]>

  /** What listens, by port and address, without private ports. */
  listeners(): Promise<Listener[]>

  /** All processes of the sandbox by pid, whoever started them. */
  systemProcesses(): Promise<SystemProcess[]>

  /** Signals one process by its pid. Throws `forbidden` for PID 1 and what belongs to a process with `privatePorts`. */
  systemSignal(pid: number, signal: number): Promise<void>

  /** Connects to a port of the sandbox, loopback first. Throws `nothing_listening`; `forbidden` for a port under `privatePorts`. */
  dial(port: number, signal?: AbortSignal): Promise<Duplex>
}

export interface Listener {
  port: number
  address: string
  pid?: number
  command?: string
}

export interface SystemProcess {
  pid: number
  parentPid: number
  user: string
  command: string
  state: 'running' | 'sleeping' | 'waiting' | 'stopped' | 'zombie' | 'unknown'
  memoryBytes: number
  cpuSeconds: number
  startedAt: string
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
  /** A user name or numeric id of the sandbox; `USER:GROUP` for that group alone. Default root. */
  user?: string
  /** Kills the process group after this time, with exit code 124. 0 or absent: never. */
  timeoutMs?: number
  /** Kills the process group after this time without an attached client. Absent: never. */
  maxRunAfterDisconnectMs?: number
  pty?: { cols: number; rows: number }
  /** Keeps standard input open for `attach`; otherwise it is empty. */
  stdin?: boolean
  /** `dial` refuses the ports of the process, of its process group, and of children that have a pipe from it as standard input. */
  privatePorts?: boolean
  /** Retained bytes of each stream. Default 1 MiB. */
  keepBytes?: number
  /** `tail` (default) drops the oldest output; `lossless` drops acknowledged output alone and stops reading at `keepBytes`. */
  keep?: 'tail' | 'lossless'
  /** How long a `tail` holds back output beyond `keepBytes` for its first reader. At most 60 000. Default: not at all. */
  readerMs?: number
}

export interface ProcessInfo {
  id: string
  pid: number
  argv: string[]
  running: boolean
  /** 128 + n for a signal n, 124 after a timeout. Absent while it runs. */
  exitCode?: number
  /** Its time limit ended it. */
  timedOut?: boolean
  /** ISO 8601, to the second. */
  startedAt: string
  endedAt?: string
  attachedClients: number
  pty: boolean
}

export interface RunProcessOptions {
  waitMs: number
  bytesMax: number
  /** Ends the wait, not the process. */
  signal?: AbortSignal | undefined
}

export interface ProcessOutput {
  stdout: Buffer
  stderr: Buffer
  truncated: boolean
}

export interface AttachOptions {
  /** Absolute byte offset in the log of both streams; dropped bytes are skipped. Default 0. */
  offset?: number
  /** How long the process waits for this reader while it reads nothing. At most 60 000, the default. */
  stallMs?: number
  signal?: AbortSignal
}

/**
 * Yields retained output, `replayed`, live output, and `exit` last. The guest stops sending while the reader does not read, and the
 * process waits: for the slowest of its readers, as a writer waits for a pipe. A reader that reads nothing for `stallMs` meanwhile gets
 * `unavailable` behind what was sent to it.
 */
export interface Attachment extends AsyncIterable<AttachmentEvent>, AsyncDisposable {
  /** Resolves when the guest has taken the bytes. */
  write(data: Uint8Array): Promise<void>
  /** End of input. */
  end(): Promise<void>
  /** Lets a `lossless` process drop the output before this offset. */
  acknowledge(offset: number): Promise<void>
  /** The process waits for a reader that comes back, by another attachment, up to 30 s more. */
  close(options?: { comesBack?: boolean }): void
}

export type AttachmentEvent = OutputEvent | { type: 'replayed'; offset: number } | ExitEvent

export interface ExitEvent extends Pick<ProcessInfo, 'timedOut'> {
  type: 'exit'
  exitCode: number
}

export interface OutputEvent {
  type: 'output'
  stream: 'stdout' | 'stderr'
  offset: number
  data: Buffer
  /** `data` behind one byte that its reader may set: a frame without a copy. */
  headed: Buffer
}

/**
 * A path that the sandbox tells is printable: a byte that is no UTF-8 is `\xff` in it, and `pathBase64` has the bytes. A path that it is
 * asked for is a string as in `lib/byte-path.ts`.
 */
export interface FileStat {
  path: string
  pathBase64?: string | undefined
  isDir: boolean
  size: number
  /** Permission bits, such as 0o644. */
  mode: number
  modifiedAt: string
}

export interface DirectoryEntry extends FileStat {
  name: string
}

export interface FileEntry {
  path: string
  pathBase64?: string | undefined
  name: string
  type: 'file' | 'directory' | 'symlink' | 'other'
  size: number
  mode: number
  uid: number
  gid: number
  user?: string | undefined
  modifiedAt: string
  target?: string | undefined
}

export interface WatchOptions {
  /** With all folders below. */
  recursive?: boolean
  user?: string
  signal?: AbortSignal
}

interface ChangedPath {
  path: string
  pathBase64?: string | undefined
  isDir: boolean
}

export type FileChange =
  | ({ type: 'created' | 'modified' | 'removed' } & ChangedPath)
  | ({ type: 'moved'; from: string; fromBase64?: string | undefined } & ChangedPath)
  /** Changes were not seen: read the folder again. */
  | { type: 'lost' }
  /** The last one: the folder is gone, or what runs in the sandbox has ended. */
  | { type: 'ended'; reason: 'removed' | 'moved' | 'hibernated' | 'stopped' }

export interface ReadFileOptions {
  start?: number
  end?: number
  user?: string
}

export interface PackEntry {
  path: string
  /** In the archive, without a leading slash. Empty: what a folder holds lies at the top, behind an entry `./` of the folder itself. */
  name: string
  /** A folder without what is in it. */
  shallow?: boolean
}

export interface PackOptions {
  /** Left out with all below: paths of entries, or what is below them as the entries name them. */
  skip?: readonly string[]
  /** An entry that is a link stands for what it leads to. Links below stay links. */
  followsFirst?: boolean
  /** Of the archive. A sparse file counts with its whole length. */
  bytesMax?: number
  signal?: AbortSignal
}

export interface UnpackOptions {
  /**
   * A folder. Links to it are followed; it is made with the missing ones above it, with mode 0755 and as `owner`'s. What the archive says of
   * it, in an entry `./`, does not count.
   */
  target: string
  /** `USER`, `USER:GROUP` or `:GROUP`, by name or number, for all that is unpacked. A number alone is the group's too. */
  owner?: string
  /** Octal, or symbolic as of chmod(1), for files and folders, and for a new target with an entry `./`. */
  mode?: string
  /**
   * As `ADD` unpacks an archive: what comes later takes the place of what is there, a folder's too, and links on the way are followed with
   * the target as the root. Otherwise as `COPY`: neither is done.
   */
  asArchive?: boolean
  /** Of all files together. */
  bytesMax?: number
  signal?: AbortSignal
}

export interface Unpacked {
  /** Entries of any kind. */
  files: number
  /** Of the contents of files. */
  bytes: number
  /** Entries that were left out, as a sandbox makes no devices. */
  devices: number
  /** Extended attributes that were left out: all but `user.*` and `security.capability`, and those that the file system has no place for. */
  attributes: number
  /** Entries that were left out, as something of the sandbox's own is mounted there: `/proc`, `/etc/hosts`, the folder of the guest. */
  hidden: number
}

export interface WriteFileOptions {
  bytesMax?: number
  /** Permission bits of a new file; an existing one keeps its own. Default 0o644. */
  mode?: number
  user?: string
}
