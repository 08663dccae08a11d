import { z } from 'zod'

/**
 * The wire between the server and hostd, its helper on the same host (`hostd/src/protocol/`). Frames go both ways: a length of 32 bits,
 * big-endian, then one line of JSON. The line of an answer is followed by the output of a program. The first frame of each side is its
 * greeting. One request may also be the argument of a process of its own (`atoll-hostd perform`).
 */

/** A change of requests or answers changes it, and `VERSION` in `hostd/src/protocol.rs`. */
export const hostdProtocol = 2

const text = z
  .string()
  .refine((value) => !value.includes('\0') && value.isWellFormed(), 'holds a NUL or half a character')
const path = text.refine((value) => value.startsWith('/'), 'is not absolute')
const paths = z.array(path).readonly()
const somePaths = z.array(path).min(1).readonly()
const uint32 = z.int().min(0).max(0xffffffff)
const integer = z.int().min(0)
const pid = z.int().min(0).max(0x7fffffff)
/** `startTicks`: field 22 of `/proc/<pid>/stat`, which tells a process from a later one with its number. */
const process = z.strictObject({ pid, startTicks: integer })
/** Ids from `start` on. */
const range = z.strictObject({ start: uint32, count: uint32 })
const address = z.ipv4()
const mac = z.string().regex(/^[0-9a-f]{2}(:[0-9a-f]{2}){5}$/)

/** Where something is mounted in a sandbox, by its first process; what is made there belongs to `owner`. */
const place = { process, owner: uint32, target: path }
const mount = z.int().min(0)

function request<Op extends string, Fields extends z.ZodRawShape>(op: Op, fields: Fields) {
  return z.strictObject({ op: z.literal(op), ...fields })
}

/** Requests that the resident hostd and one for a single request do alike. `groups` are the folders of one control group. */
const toolRequests = [
  request('adopt-index', { work: path }),
  /** Answers the number of the mount, and how many entries were made for its target, as do the next two. Ids from 0 on disk are those of `range`. */
  request('attach-folder', { ...place, source: path, part: text.optional(), range, readOnly: z.boolean() }),
  /** Never the argument of a process, which others can read. `content`: in hexadecimal. */
  request('attach-secret', {
    ...place,
    hide: path,
    content: z.string().regex(/^([0-9a-f]{2})*$/),
    mode: uint32,
    uid: uint32,
    gid: uint32,
  }),
  request('attach-tmpfs', { ...place, hide: path, bytes: integer }),
  request('create-subvolume', { path }),
  request('delete-link', { link: text }),
  request('delete-subvolume', { path }),
  request('detach-mount', { process, owner: uint32, mount, made: integer }),
  request('exchange-paths', { one: path, other: path }),
  request('forget-origins', { dir: path }),
  request('forget-sizes', { from: path, to: path, files: somePaths }),
  request('join-network', {
    process,
    link: text,
    address,
    mac,
    gateway: address,
    gatewayMac: mac,
    /** Where restored connections are; `close` ends those to the outside. */
    held: z.strictObject({ address, close: z.boolean() }).optional(),
  }),
  request('limit-subvolume', { path, bytes: integer }),
  request('make-run-folder', { dir: path }),
  request('make-source', { dir: path }),
  request('mount-overlay', {
    target: path,
    /** Both, or neither: then there are two layers at least, and the overlay cannot be written. */
    upper: path.optional(),
    work: path.optional(),
    range,
    /** Newest first; `start` is the first id of the range that owns one on disk. */
    layers: z
      .array(z.strictObject({ start: uint32, path }))
      .min(1)
      .readonly(),
    /** No layer is on a mount below it. */
    hide: path.optional(),
  }),
  request('mount-tmpfs', { target: path, bytes: integer, inodes: integer, owner: uint32 }),
  request('mount-volume', { source: path, target: path, range, readOnly: z.boolean() }),
  request('raise-inode-numbers', { dir: path, from: integer }),
  request('remove-folders', { dirs: somePaths }),
  /** Answers `replaced`, or `held` if one of the files is in use. */
  request('replace-files', { process, source: path, files: somePaths, groups: somePaths }),
  request('seal-mount', { process, mount }),
  request('show-limits', { process, source: path, owner: uint32 }),
  request('snapshot-subvolume', { from: path, path, writable: z.boolean() }),
  request('write-fork-generation', { process, owner: uint32, value: z.string().regex(/^[0-9a-fA-F]{32}$/) }),
  /** Answers how many there were, as do the next requests that end something. */
  request('await-dumps', { runcRoot: path, timeoutMs: integer }),
  request('await-unconnected', { pid }),
  request('check-dump', {
    images: path,
    beside: path,
    keepsPosixLocks: z.boolean(),
    keepsSemaphores: z.boolean(),
    groups: somePaths,
  }),
  request('empty-robust-lists', { groups: somePaths }),
  request('end-criu', { dirs: somePaths, lazyPages: z.boolean() }),
  request('end-tools', { paths: somePaths }),
  /** Answers `frozen` or `vfork`. */
  request('freeze', { groups: somePaths }),
  request('hold-back', { first: pid, hooks: path, groups: somePaths }),
  /** Answers five numbers, see `hostd/src/reserve.rs`. */
  request('reserve-space', { pool: path, file: path, aheadBytes: integer, chunkBytes: integer, leaveBytes: integer }),
  /** Answers a number of bytes. */
  request('share-pages', { like: path, dir: path }),
  /** Answers a line of JSON. */
  request('unpack-layer', {
    blob: path,
    bytesMax: integer,
    filesMax: integer,
    depthMax: integer,
    target: path.optional(),
    lowers: paths,
    plain: z.boolean(),
  }),
] as const

/** Becomes that program in a process for a single request; the resident hostd starts it. */
const startProgram = request('start-program', {
  argv: z.array(text).min(1).readonly(),
  input: text,
  /** Without pipes, which a process that it leaves running would hold. */
  detached: z.boolean(),
  /** The program has no mounts below `hide`, but those below `keep`. */
  hide: path.optional(),
  keep: path.optional(),
  /** Folders of the control group of the program. */
  groups: paths,
})

export const hostdRequestSchema = z.discriminatedUnion('op', [
  ...toolRequests,
  startProgram,
  /** Kills the program of the request with the same id. */
  request('kill-program', {}),
  /** The answer is a socket on the channel of `child_process`. */
  request('connect-port', { process, port: z.int().min(0).max(0xffff) }),
  request('await-exit', { process }),
  /** Comes on the socket of the relay, as does the next one. The answer is an error number of 32 bits. */
  request('connect-guest', { path }),
  request('cut-guest', { path }),
])
export type HostdRequest = z.infer<typeof hostdRequestSchema>

/** Requests of the server beside connections and ends of processes. */
export type HostToolRequest = z.infer<(typeof toolRequests)[number]>
export type ProgramRequest = z.infer<typeof startProgram>

export const hostdGreetingSchema = z.strictObject({ protocol: z.int(), version: z.string() })

export const hostdAnswerSchema = z.strictObject({
  id: uint32,
  status: z.enum(['exited', 'signalled', 'not_started', 'too_much']),
  /** Exit status, signal number, or error number. */
  code: z.int(),
  /** Bytes of standard output in what follows; the rest is standard error. */
  stdoutBytes: integer,
})

export type HostdStatus = z.infer<typeof hostdAnswerSchema>['status']

/** Codes by which the server tells failures of hostd apart. */
export const hostdFaultCodes = [
  'invalid_request',
  'unsupported_protocol',
  'busy',
  'no_space',
  'read_only',
  'target',
  'too_large',
  'not_installed',
  'failed',
] as const
export type HostdFaultCode = (typeof hostdFaultCodes)[number]

/** The line on standard error of a request that has failed, with exit status 1. */
export const hostdFaultSchema = z.strictObject({ code: z.enum(hostdFaultCodes), message: z.string() })
