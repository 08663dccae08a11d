import { randomUUID } from 'node:crypto'
import type { Duplex, Readable } from 'node:stream'
import type { z } from 'zod'
import {
  attachSchema,
  configureSchema,
  type GuestProcess,
  type GuestSystemProcess,
  helloSchema,
  inspectSchema,
  listenersSchema,
  okSchema,
  portsSchema,
  processAnswerSchema,
  processSchema,
  runAnswerSchema,
  statAnswerSchema,
  systemProcessSchema,
} from '../../protocol/guest.ts'
import type {
  AttachOptions,
  Attachment,
  Guest,
  ProcessInfo,
  ProcessOutput,
  RunProcessOptions,
  SpawnRequest,
  SystemProcess,
  WriteFileOptions,
} from '../../sandbox/ports/guest.ts'
import { isServiceError } from '../../errors.ts'
import type { FreezeReason } from '../../sandbox/ports/runtime-driver.ts'
import type { BodyBudget } from '../../lib/body-budget.ts'
import { defined } from '../../lib/defined.ts'
import { packTree, unpackTree } from './archive.ts'
import { GuestAttachment, type Join } from './attachment.ts'
import { asleep, GuestConnection, type Timeouts } from './connection.ts'
import { openFile } from './download.ts'
import { type Collection, type Items, listFolder, processListings, readEntries } from './listings.ts'
import { acknowledge, readOutput, readOutputFrames } from './output.ts'
import { fileStat, pathField, processInfo, systemProcess } from './port-values.ts'
import { storeFile } from './upload.ts'
import { watchFolder } from './watch.ts'

/** Opens one connection to the guest of a sandbox. Throws `unavailable`. */
export type GuestDial = (signal?: AbortSignal) => Promise<Duplex>

/** Connects to a port of a sandbox without its guest. Undefined where only the guest can connect. Throws `nothing_listening` and `unavailable`. */
export type PortConnect = (port: number, signal?: AbortSignal) => Promise<Duplex | undefined>

export interface GuestClientOptions {
  /** Default: through the guest. */
  connect?: PortConnect
  /** Longest wait for an answer. Default 30 s. */
  answerTimeoutMs?: number
  /** Longest wait for one frame of a stream that is ready for it. Default 60 s. */
  idleTimeoutMs?: number
  /** Longest wait for a collected answer in frames (a listing, retained output). Default 5 min. */
  collectTimeoutMs?: number
  /** Who is charged for collected answers, which are bounded for each owner, and for all together. Default `''`. */
  owner?: string
  /** Default: one budget for the process. */
  listings?: BodyBudget
}

const answerTimeoutMs = 30_000
const idleTimeoutMs = 60_000
const collectTimeoutMs = 5 * 60_000
/** The removal or the copy of a large tree takes minutes. */
const treeTimeoutMs = 10 * 60_000
const processItems: Items<GuestProcess, ProcessInfo> = {
  schema: processSchema,
  convert: processInfo,
  // A guest has up to 1024 live processes, and retains some 3300 ended ones.
  countMax: 8192,
}

const systemProcessItems: Items<GuestSystemProcess, SystemProcess> = {
  schema: systemProcessSchema,
  convert: systemProcess,
  countMax: 4096,
}

/** The client of the guest of one sandbox. */
export function createGuest(dial: GuestDial, options: GuestClientOptions = {}): Guest {
  const timeouts: Timeouts = {
    answerMs: options.answerTimeoutMs ?? answerTimeoutMs,
    idleMs: options.idleTimeoutMs ?? idleTimeoutMs,
    collectMs: options.collectTimeoutMs ?? collectTimeoutMs,
  }

  const collection: Collection = {
    timeouts,
    listings: options.listings ?? processListings,
    owner: options.owner ?? '',
  }

  async function ask<T>(request: object, schema: z.ZodType<T>, signal?: AbortSignal, extraMs = 0): Promise<T> {
    const wait = { timeoutMs: timeouts.answerMs + extraMs, signal }
    return connectOnce(dial, (connection) => connection.ask(request, schema, wait), signal)
  }

  /** For requests that change nothing: one that a freeze cut off is repeated. */
  const look = <T>(use: Use<T>) => reopen((connection) => useUp(connection, use))

  const lookUp = <T>(request: object, schema: z.ZodType<T>, signal?: AbortSignal): Promise<T> =>
    reopen(
      (connection) => useUp(connection, (on) => on.ask(request, schema, { timeoutMs: timeouts.answerMs, signal })),
      signal,
    )

  /** Like `connect`, for a repeatable request: after a freeze for a checkpoint it opens another connection. */
  async function reopen<T>(use: Use<T>, signal?: AbortSignal): Promise<T> {
    for (;;) {
      let taken: GuestConnection | undefined
      try {
        return await connect(
          dial,
          (connection) => {
            taken = connection
            return use(connection)
          },
          signal,
        )
      } catch (error) {
        if (taken?.frozen === undefined || !isServiceError(error, 'unavailable')) throw error
        if (taken.frozen === 'hibernate') throw asleep()
      }
    }
  }

  async function runProcess(
    connection: GuestConnection,
    { request, waitMs, bytesMax, signal }: RunProcessOptions & { request: SpawnRequest },
  ): Promise<{ process: ProcessInfo; output?: ProcessOutput }> {
    connection.onFreeze(() => connection.close())
    const wait = { timeoutMs: timeouts.answerMs + waitMs, signal }
    const answer = await connection.ask({ op: 'run', ...request, waitMs, bytesMax }, runAnswerSchema, wait)
    const process = processInfo(answer.process)
    if (!answer.output) {
      connection.close()
      return { process }
    }
    const output = await readOutputFrames(connection, timeouts, bytesMax)
    const isReleased = await acknowledge(connection, timeouts)
    connection.close()
    if (!isReleased) await command({ op: 'release', id: request.id }).catch(() => undefined)
    return { process, output }
  }

  /**
   * Connects, and then asks the guest whether it allows the port: by then the guest sees who listens, and no byte has passed. A freeze for a
   * checkpoint in between begins it again. Undefined where only the guest can connect.
   */
  async function connectDirectly(port: number, signal?: AbortSignal): Promise<Duplex | undefined> {
    for (;;) {
      const connection = await options.connect?.(port, signal)
      if (connection === undefined) return undefined
      let frozen: FreezeReason | undefined
      const onFreeze = (reason: FreezeReason) => {
        frozen = reason
        connection.destroy()
      }
      connection.once('freeze', onFreeze)
      try {
        await lookUp({ op: 'check-port', port }, okSchema, signal)
      } catch (error) {
        connection.destroy()
        throw error
      }
      connection.off('freeze', onFreeze)
      if (frozen === undefined) return connection
      if (frozen === 'hibernate') throw asleep()
    }
  }

  async function command(request: object, extraMs = 0): Promise<void> {
    await ask(request, okSchema, undefined, extraMs)
  }

  return {
    async hello(signal) {
      const { version } = await lookUp({ op: 'hello' }, helloSchema, signal)
      return { version }
    },

    async spawn(request: SpawnRequest) {
      return processInfo((await ask({ op: 'spawn', ...request }, processAnswerSchema)).process)
    },

    async run(request, { waitMs, bytesMax, signal }) {
      return reopen((connection) => runProcess(connection, { request, waitMs, bytesMax, signal }), signal)
    },

    async processes() {
      return look(async (connection) => {
        await connection.ask({ op: 'processes' }, okSchema, { timeoutMs: timeouts.answerMs })
        return readEntries(connection, processItems, collection)
      })
    },

    async process(processId, waitMs = 0, signal) {
      const until = performance.now() + waitMs
      return reopen(async (connection) => {
        const leftMs = Math.max(0, Math.round(until - performance.now()))
        if (leftMs > 0) connection.onFreeze(() => connection.close())
        const request = { op: 'process', id: processId, waitMs: leftMs }
        const wait = { timeoutMs: timeouts.answerMs + leftMs, signal }
        const { process } = await connection.ask(request, processAnswerSchema, wait)
        connection.close()
        return processInfo(process)
      }, signal)
    },

    output: (processId, bytesMax) => look((connection) => readOutput(connection, processId, timeouts, bytesMax)),

    async attach(processId: string, { offset = 0, stallMs, signal }: AttachOptions = {}): Promise<Attachment> {
      const client = randomUUID()
      const join: Join = (position, end) =>
        reopen(async (connection) => {
          const request = { op: 'attach', id: processId, client, ...position, ...defined({ stallMs }) }
          const wait = { timeoutMs: timeouts.answerMs, signal: end }
          return { connection, answer: await connection.ask(request, attachSchema, wait) }
        }, end)
      return GuestAttachment.open(join, offset, signal)
    },

    signal: (processId, signal) => command({ op: 'signal', id: processId, signal }),
    resize: (processId, cols, rows) => command({ op: 'resize', id: processId, cols, rows }),
    release: (processId) => command({ op: 'release', id: processId }),

    async stat(path, user) {
      return fileStat(
        (await lookUp({ op: 'stat', ...pathField('path', path), ...defined({ user }) }, statAnswerSchema)).stat,
      )
    },

    list: (path, user) =>
      look((connection) => listFolder(connection, { ...pathField('path', path), ...defined({ user }) }, collection)),
    mkdir: (path, user) => command({ op: 'mkdir', ...pathField('path', path), ...defined({ user }) }),
    remove: (path, user) => command({ op: 'remove', ...pathField('path', path), ...defined({ user }) }, treeTimeoutMs),

    async inspect(path, user) {
      return fileStat(
        (await lookUp({ op: 'inspect', ...pathField('path', path), ...defined({ user }) }, inspectSchema)).entry,
      )
    },

    move: (from, to, moving = {}) =>
      command({ op: 'move', ...pathField('from', from), ...pathField('to', to), ...moving }, treeTimeoutMs),

    watch: (path, watching = {}) => watchFolder(reopen, path, watching, timeouts),
    readFile: (path, reading = {}) => openFile(reopen, path, reading, timeouts),

    writeFile: (path: string, body: Readable, writeOptions: WriteFileOptions = {}) =>
      storeFile(reopen, path, body, writeOptions, timeouts),

    pack: (entries, packing = {}) => packTree(reopen, entries, packing, timeouts),
    unpack: (tar, unpacking) => unpackTree(reopen, tar, unpacking, timeouts),

    async ports() {
      return (await lookUp({ op: 'ports' }, portsSchema)).ports.toSorted((a, b) => a - b)
    },

    async listeners() {
      const { listeners } = await lookUp({ op: 'ports', listeners: true }, listenersSchema)
      return listeners.map(({ port, address, pid, command: line }) => {
        return { port, address, ...defined({ pid, command: line?.toWellFormed() }) }
      })
    },

    systemProcesses: () =>
      look(async (connection) => {
        await connection.ask({ op: 'system-processes' }, okSchema, { timeoutMs: timeouts.answerMs })
        return readEntries(connection, systemProcessItems, collection)
      }),

    systemSignal: (pid, signal) => command({ op: 'system-signal', pid, signal }),

    async dial(port, signal) {
      const direct = await connectDirectly(port, signal)
      if (direct !== undefined) return direct
      const detached = async (connection: GuestConnection) => {
        await connection.ask({ op: 'dial', port }, okSchema, { timeoutMs: timeouts.answerMs, signal })
        return connection.detach()
      }
      return connect(dial, detached, signal)
    },
  }
}

/**
 * Replaces what a fork must not share with its source; for drivers, after a start or a restore. `seed`: at most 4096 random bytes in hex,
 * mixed into the generator of the sandbox's kernel. `fork`: no output is held for clients that come back to the source. Returns, by field,
 * why the sandbox's rights did not allow a replacement.
 */
export async function configureGuest(
  dial: GuestDial,
  configuration: { seed: string; fork?: boolean },
  signal?: AbortSignal,
): Promise<Record<string, string>> {
  const request = { op: 'configure', ...configuration }
  const wait = { timeoutMs: answerTimeoutMs, signal }
  return (await connectOnce(dial, (connection) => connection.ask(request, configureSchema, wait), signal)).failed
}

/**
 * Returns the number of connections that the guest serves, this one included, once this one is closed on both sides. If it is 1 and no
 * other was dialled meanwhile, memory can be saved.
 */
export async function guestConnections(dial: GuestDial, signal?: AbortSignal): Promise<number> {
  const wait = { timeoutMs: answerTimeoutMs, signal }
  const count = async (connection: GuestConnection) => {
    const { connections } = await connection.ask({ op: 'hello', close: true }, helloSchema, wait)
    // The guest closes after its answer, so the end of the connection is the end of its side.
    await connection.readFrame(wait).catch(() => undefined)
    return connections
  }
  return connectOnce(dial, count, signal)
}

type Use<T> = (connection: GuestConnection) => Promise<T>

/** Opens a connection for `use`, which owns it; a failure closes it. */
async function connect<T>(dial: GuestDial, use: Use<T>, signal?: AbortSignal): Promise<T> {
  signal?.throwIfAborted()
  const connection = new GuestConnection(await dial(signal))
  try {
    return await use(connection)
  } catch (error) {
    connection.close()
    throw error
  }
}

/** Like `connect`, and closes the connection at the end of `use`. */
function connectOnce<T>(dial: GuestDial, use: Use<T>, signal?: AbortSignal): Promise<T> {
  return connect(dial, (connection) => useUp(connection, use), signal)
}

async function useUp<T>(connection: GuestConnection, use: Use<T>): Promise<T> {
  const result = await use(connection)
  connection.close()
  return result
}
