import { type ChildProcess, spawn } from 'node:child_process'
import { Socket } from 'node:net'
import type { Readable, Writable } from 'node:stream'
import { getSystemErrorName } from 'node:util'
import {
  hostdAnswerSchema,
  hostdGreetingSchema,
  hostdProtocol,
  hostdRequestSchema,
  type HostdRequest,
  type HostToolRequest,
  type ProgramRequest,
} from '../../protocol/hostd.ts'
import type { LaunchAnswer, Launched } from '../command.ts'
import type { ProcessIdentity } from '../process.ts'
import { encode } from './frame.ts'

/** Room for standard output and error of 4 MiB each, the bounds of hostd. */
const answerBytesMax = 9 * 1024 * 1024
const lineEnd = 0x0a
/** The greeting of hostd is waited for like the answer to a request with this id. */
const greetingId = 0
const startTimeoutMs = 10_000
/** Bound of its end, running programs included. */
const closeTimeoutMs = 10_000

/** Its streams are missing when no descriptors are left. */
type Process = ChildProcess & { stdin: Writable; stdout: Readable }

/**
 * One process of `atoll-hostd serve` (`src/protocol/hostd.ts` has its frames).
 *
 *     starting ──► serving ──► ended (by `close`, or by itself: the programs that it had started are lost)
 */
export class HostdProcess {
  /** Resolves when it serves; rejects with the reason when it cannot. */
  readonly serving: Promise<void>
  /** Why it ended, such as `was killed by SIGKILL`. */
  readonly ended: Promise<string>

  readonly #process: Process
  readonly #waiting = new Map<number, { answer: Promise<LaunchAnswer>; resolve: (answer: LaunchAnswer) => void }>()
  /** Connections that are made, and processes whose end is waited for: they do not keep this process alive. */
  readonly #pending = new Map<number, (outcome: Socket | LaunchAnswer) => void>()
  #lastId = greetingId
  #buffered: Buffer = Buffer.alloc(0)
  #isGreeted = false
  #isServing = false
  #hasEnded = false

  constructor(toolPath: string, socket: string, env: Record<string, string>) {
    // In a session of its own: a signal from the terminal must not end it before the server.
    this.#process = spawn(toolPath, ['serve', '--socket', socket], {
      // On `ipc` it hands sockets over.
      stdio: ['pipe', 'pipe', 'inherit', 'ipc'],
      env,
      detached: true,
    }) as Process
    this.#process.channel?.unref()
    this.#process.on('message', (message, handle) => this.#receive(message, handle))
    const { promise: ended, resolve: end } = Promise.withResolvers<string>()
    this.ended = ended
    this.#process.once('error', (error) => end(`cannot be started: ${error.message}`))
    this.#process.once('exit', (code, signal) =>
      end(signal === null ? `ended with status ${code}` : `was killed by ${signal}`),
    )
    void ended.then(() => this.#end())
    // Streams are missing when no descriptors are left.
    this.#process.stdin?.on('error', () => undefined)
    this.#process.stdout?.on('data', (chunk: Buffer) => this.#take(chunk))
    this.#process.unref()
    this.serving = this.#start()
  }

  get isServing(): boolean {
    return this.#isServing
  }

  /** Asks for a program, or for what hostd does as if it were one. */
  launch(request: ProgramRequest | HostToolRequest): Launched {
    const id = this.#nextId()
    // What it refuses is not waited for.
    const asked = frame(id, request)
    const answer = this.#answerTo(id)
    this.#process.stdin.write(asked)
    return { answer, kill: () => this.#process.stdin.write(frame(id, { op: 'kill-program' })) }
  }

  /**
   * Connects to a port of the loopback of a process's network namespace. Throws an error with the `code` of connect(2), `ESRCH` when
   * the process has ended, and `EPIPE` when hostd ends.
   */
  async connect({ pid, startTicks }: ProcessIdentity, port: number): Promise<Socket> {
    const outcome = await this.#ask({ op: 'connect-port', process: { pid, startTicks }, port })
    if (outcome instanceof Socket) return outcome
    const code = outcome.status !== 'not_started' ? 'EPIPE' : getSystemErrorName(-outcome.code)
    throw Object.assign(new Error(`connect ${code} to port ${port} of a sandbox`), { code })
  }

  /** Returns when a process has ended; false: hostd cannot tell, or has ended before. */
  async awaitEnd({ pid, startTicks }: ProcessIdentity): Promise<boolean> {
    const outcome = await this.#ask({ op: 'await-exit', process: { pid, startTicks } })
    return !(outcome instanceof Socket) && outcome.status === 'exited' && outcome.code === 0
  }

  /** Waits for running programs, up to a bound. */
  async close(): Promise<void> {
    this.#isServing = false
    this.#process.ref()
    const late = setTimeout(() => this.#process.kill('SIGKILL'), closeTimeoutMs)
    await Promise.all([...this.#waiting.values()].map(({ answer }) => answer))
    this.#process.stdin?.end()
    await this.ended
    clearTimeout(late)
  }

  async #start(): Promise<void> {
    const late = setTimeout(() => this.#process.kill('SIGKILL'), startTimeoutMs)
    const greeted = this.#answerTo(greetingId)
    this.#process.stdin?.write(encode({ protocol: hostdProtocol }))
    const { status, code } = await greeted
    clearTimeout(late)
    if (status === 'lost') throw new Error(await this.ended)
    if (code !== hostdProtocol) {
      this.#process.kill('SIGKILL')
      throw new Error(`speaks version ${code} of the protocol, this server ${hostdProtocol}: run npm run setup`)
    }
    this.#isServing = true
  }

  #ask(request: HostdRequest): Promise<Socket | LaunchAnswer> {
    const id = this.#nextId()
    const { promise, resolve } = Promise.withResolvers<Socket | LaunchAnswer>()
    if (this.#hasEnded) resolve(lost)
    else this.#pending.set(id, resolve)
    this.#process.stdin.write(frame(id, request))
    return promise
  }

  #nextId(): number {
    this.#lastId = (this.#lastId % (2 ** 32 - 1)) + 1
    return this.#lastId
  }

  #receive(message: unknown, socket: unknown): void {
    if (!(socket instanceof Socket)) return
    // An error of a connection must never end the server; its owner sees the close that follows.
    socket.on('error', () => undefined)
    const { id } = message as { id: number }
    const connected = this.#pending.get(id)
    this.#pending.delete(id)
    if (connected === undefined) socket.destroy()
    else connected(socket)
  }

  #answerTo(id: number): Promise<LaunchAnswer> {
    const { promise: answer, resolve } = Promise.withResolvers<LaunchAnswer>()
    if (this.#hasEnded) resolve(lost)
    else this.#waiting.set(id, { answer, resolve })
    this.#setBusy(true)
    return answer
  }

  #take(chunk: Buffer): void {
    this.#buffered = this.#buffered.length === 0 ? chunk : Buffer.concat([this.#buffered, chunk])
    try {
      while (this.#buffered.length >= 4) {
        const length = this.#buffered.readUInt32BE(0)
        if (length > answerBytesMax) throw new Error('too long')
        if (this.#buffered.length < 4 + length) return
        this.#settle(this.#buffered.subarray(4, 4 + length))
        this.#buffered = this.#buffered.subarray(4 + length)
      }
    } catch {
      // Nothing that follows can be told apart.
      this.#process.kill('SIGKILL')
    }
  }

  #settle(answer: Buffer): void {
    const end = answer.indexOf(lineEnd)
    const head: unknown = JSON.parse(answer.toString('utf8', 0, end))
    if (!this.#isGreeted) {
      this.#isGreeted = true
      const { protocol } = hostdGreetingSchema.parse(head)
      this.#resolve(greetingId, { ...lost, status: 'exited', code: protocol })
      return
    }
    const { id, status, code, stdoutBytes } = hostdAnswerSchema.parse(head)
    const tail = answer.subarray(end + 1)
    const [stdout, stderr] = [tail.subarray(0, stdoutBytes), tail.subarray(stdoutBytes)]
    this.#resolve(id, { status, code, stdout: Buffer.from(stdout), stderr: Buffer.from(stderr) })
  }

  #resolve(id: number, answer: LaunchAnswer): void {
    const resolve = this.#waiting.get(id)?.resolve ?? this.#pending.get(id)
    this.#pending.delete(id)
    this.#waiting.delete(id)
    this.#setBusy(this.#waiting.size > 0)
    resolve?.(answer)
  }

  #end(): void {
    this.#isServing = false
    this.#hasEnded = true
    for (const { resolve } of this.#waiting.values()) resolve(lost)
    for (const resolve of this.#pending.values()) resolve(lost)
    this.#waiting.clear()
    this.#pending.clear()
    this.#setBusy(false)
  }

  /** A running program keeps this process alive; idle streams do not. */
  #setBusy(busy: boolean): void {
    for (const stream of [this.#process.stdin, this.#process.stdout] as (Socket | undefined)[]) {
      if (busy) stream?.ref()
      else stream?.unref()
    }
  }
}

const lost: LaunchAnswer = { status: 'lost', code: 0, stdout: Buffer.alloc(0), stderr: Buffer.alloc(0) }

function frame(id: number, request: HostdRequest): Buffer {
  return encode({ id, ...hostdRequestSchema.parse(request) })
}
