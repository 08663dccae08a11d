import { z } from 'zod'
import type { ErrorCode } from '../errors.ts'

/** The wire between server and guest (`docs/internals/guest-protocol.md`). Guests are hostile: lengths are bounded, schemas check all answers. */

/** Longest request and answer line, in bytes without the line end. */
export const lineBytesMax = 1024 * 1024
/** Longest payload of a frame. */
export const payloadBytesMax = 256 * 1024
/** One byte type, four bytes length (big-endian). */
export const frameHeaderBytes = 5

export const frameKind = {
  data: 0x01,
  end: 0x02,
  acknowledge: 0x03,
  credit: 0x04,
  pause: 0x05,
  leave: 0x06,
  stdout: 0x11,
  stderr: 0x12,
  replayed: 0x13,
  exit: 0x14,
  taken: 0x15,
  entries: 0x20,
  result: 0x21,
} as const

const integer = z.number().int().min(0).max(Number.MAX_SAFE_INTEGER)
/** Four characters for each byte of a name that is no UTF-8. */
const path = z.string().max(16_384)
/** The bytes of such a path. */
const pathBase64 = z
  .string()
  .min(4)
  .max(8192)
  .regex(/^[A-Za-z0-9+/]+={0,2}$/)
  .optional()
/** The years 0 to 9999, in seconds. */
const seconds = z.number().int().min(-62_167_219_200).max(253_402_300_799)

/** Codes that a guest may answer with, as in its source. */
export const guestFaultCodes = [
  'invalid_request',
  'not_found',
  'conflict',
  'nothing_listening',
  'forbidden',
  'too_large',
  'disk_full',
  'unavailable',
] as const satisfies readonly ErrorCode[]

export const guestFaultSchema = z.object({
  ok: z.literal(false),
  code: z.enum(guestFaultCodes),
  message: z.string().max(4000),
})

export const okSchema = z.object({ ok: z.literal(true) })

export const helloSchema = okSchema.extend({
  version: z.string().max(64),
  protocol: integer,
  /** Connections that are open, this one included. */
  connections: integer,
})

export const configureSchema = okSchema.extend({
  /** Failed fields of the request → reason. */
  failed: z.record(z.string().max(64), z.string().max(4000)),
})

export const processSchema = z.object({
  id: z.string().min(1).max(128),
  pid: integer.max(0x7fffffff),
  argv: z.array(z.string().max(16_384)).max(8192),
  running: z.boolean(),
  exitCode: integer.max(255).optional(),
  timedOut: z.boolean().optional(),
  startedSeconds: seconds,
  endedSeconds: seconds.optional(),
  attachedClients: integer.max(100_000),
  pty: z.boolean(),
})

export const processAnswerSchema = okSchema.extend({ process: processSchema })
/** `output`: frames of all of it follow. */
export const runAnswerSchema = processAnswerSchema.extend({ output: z.boolean() })
export const attachSchema = okSchema.extend({
  input: z.boolean(),
  /** Bytes of this client's input that the process has taken. */
  taken: integer,
  inputEnded: z.boolean(),
})
export const outputEndSchema = z.object({ truncated: z.boolean() })

export const statSchema = z.object({
  path,
  pathBase64,
  isDir: z.boolean(),
  size: integer,
  mode: integer.max(0o7777),
  modifiedSeconds: z.number().int(),
})

export const statAnswerSchema = okSchema.extend({ stat: statSchema })
export const entrySchema = statSchema.extend({ name: z.string().min(1).max(1024) })
export const inspectSchema = okSchema.extend({
  entry: z.object({
    path,
    pathBase64,
    name: z.string().min(1).max(16_384),
    type: z.enum(['file', 'directory', 'symlink', 'other']),
    size: integer,
    mode: integer.max(0o7777),
    uid: integer.max(0xffffffff),
    gid: integer.max(0xffffffff),
    user: z.string().min(1).max(64).optional(),
    modifiedSeconds: z.number().int(),
    target: path.optional(),
  }),
})
const changedPath = { path, pathBase64, isDir: z.boolean() }
/** One item of a `watch`. */
export const changeSchema = z.discriminatedUnion('type', [
  z.object({ type: z.enum(['created', 'modified', 'removed']), ...changedPath }),
  z.object({ type: z.literal('moved'), ...changedPath, from: path, fromBase64: pathBase64 }),
  z.object({ type: z.literal('lost') }),
])
export const watchEndSchema = okSchema.extend({ ended: z.enum(['removed', 'moved']) })
export const readSchema = okSchema.extend({
  stat: statSchema,
  length: integer,
  /** Differs for another file or other contents. */
  version: z.string().max(256),
})
/** `bytes`: of the continued upload. */
export const writeSchema = okSchema.extend({ bytes: integer })
/** With `paused` the upload can be continued under that token. */
export const writtenSchema = okSchema.extend({ bytes: integer, paused: z.string().min(1).max(64).optional() })
export const unpackedSchema = okSchema.extend({
  files: integer,
  bytes: integer,
  devices: integer,
  attributes: integer,
  hidden: integer,
})
/** More than any sandbox needs. All of them are checked at once. */
const portsMax = 16_384

export const portsSchema = okSchema.extend({ ports: z.array(integer.min(1).max(65_535)).max(portsMax) })

export const listenersSchema = portsSchema.extend({
  listeners: z
    .array(
      z.object({
        port: integer.min(1).max(65_535),
        address: z.union([z.ipv4(), z.ipv6()]),
        pid: integer.max(0x7fffffff).optional(),
        command: z.string().max(512).optional(),
      }),
    )
    .max(512),
})

export const systemProcessSchema = z.object({
  pid: integer.min(1).max(0x7fffffff),
  parentPid: integer.max(0x7fffffff),
  user: z.string().max(128),
  command: z.string().max(512),
  /** The letter of proc_pid_stat(5). */
  state: z.string().max(2),
  memoryBytes: integer,
  cpuMs: integer,
  startedSeconds: seconds,
})

export type GuestSystemProcess = z.infer<typeof systemProcessSchema>
export type AttachAnswer = z.infer<typeof attachSchema>
export type GuestProcess = z.infer<typeof processSchema>
export type GuestEntry = z.infer<typeof entrySchema>
export type GuestStat = z.infer<typeof statSchema>
