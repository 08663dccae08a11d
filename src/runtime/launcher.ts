import { type ChildProcessByStdio, spawn } from 'node:child_process'
import type { Readable, Writable } from 'node:stream'
import type { Socket } from 'node:net'

const headerBytes = 13
/** Standard output and error of 4 MiB each, the most that the launcher keeps. */
const answerBytesMax = 9 * 1024 * 1024

export interface LaunchRequest {
  argv: readonly string[]
  input: string
  detached: boolean
}

export interface LaunchAnswer {
  status: 'exited' | 'signalled' | 'not_started' | 'too_much'
  /** Exit status, signal number, or error number. */
  code: number
  stdout: Buffer
  stderr: Buffer
}

const statuses = ['exited', 'signalled', 'not_started', 'too_much'] as const

interface Waiting {
  resolve(answer: LaunchAnswer): void
  reject(error: Error): void
}

/**
 * Starts programs through `atoll-mount launch` (see `mount/src/launch.rs` for its frames): a fork of this process copies the
 * page tables of all its memory while nothing else runs, tens of milliseconds for each command; a fork of that one does not.
 *
 *     running ──► ended (by `close`, or by itself: what waits is rejected)
 */
export class Launcher {
  readonly #process: ChildProcessByStdio<Writable, Readable, null>
  readonly #waiting = new Map<number, Waiting>()
  #lastId = 0
  #buffered: Buffer = Buffer.alloc(0)
  #ended: Error | undefined

  constructor(toolPath: string, env: Record<string, string>) {
    // In a session of its own, so that a signal from the terminal leaves it to the server's orderly end.
    this.#process = spawn(toolPath, ['launch'], { stdio: ['pipe', 'pipe', 'inherit'], env, detached: true })
    this.#process.once('error', (error) => this.#end(error))
    this.#process.once('exit', () => this.#end(new Error('the launcher of host programs has ended')))
    this.#process.stdin.on('error', (error) => this.#end(error))
    this.#process.stdout.on('data', (chunk: Buffer) => this.#take(chunk))
    this.#process.unref()
    this.#hold(false)
  }

  get isRunning(): boolean {
    return this.#ended === undefined
  }

  /** Starts one program; `kill` ends it and its process group with SIGKILL, after which `answer` still tells its end. */
  launch({ argv, input, detached }: LaunchRequest): { answer: Promise<LaunchAnswer>; kill: () => void } {
    const { promise: answer, resolve, reject } = Promise.withResolvers<LaunchAnswer>()
    if (this.#ended !== undefined) {
      reject(this.#ended)
      return { answer, kill: () => undefined }
    }
    this.#lastId = (this.#lastId + 1) % 2 ** 32
    const id = this.#lastId
    this.#waiting.set(id, { resolve, reject })
    this.#hold(true)
    this.#process.stdin.write(frame(id, 0, detached, Buffer.from(input), argv))
    return { answer, kill: () => this.#process.stdin.write(frame(id, 1, false, Buffer.alloc(0), [])) }
  }

  close(): void {
    this.#process.stdin.end()
  }

  #take(chunk: Buffer): void {
    this.#buffered = this.#buffered.length === 0 ? chunk : Buffer.concat([this.#buffered, chunk])
    while (this.#buffered.length >= 4) {
      const length = this.#buffered.readUInt32BE(0)
      if (length < headerBytes || length > answerBytesMax) {
        this.#process.kill('SIGKILL')
        return
      }
      if (this.#buffered.length < 4 + length) return
      this.#settle(this.#buffered.subarray(4, 4 + length))
      this.#buffered = this.#buffered.subarray(4 + length)
    }
  }

  #settle(answer: Buffer): void {
    const id = answer.readUInt32BE(0)
    const waiting = this.#waiting.get(id)
    const status = statuses[answer.readUInt8(4)]
    if (waiting === undefined || status === undefined) return
    this.#waiting.delete(id)
    this.#hold(this.#waiting.size > 0)
    const stderrStart = headerBytes + answer.readUInt32BE(9)
    const [stdout, stderr] = [answer.subarray(headerBytes, stderrStart), answer.subarray(stderrStart)]
    waiting.resolve({ status, code: answer.readInt32BE(5), stdout: Buffer.from(stdout), stderr: Buffer.from(stderr) })
  }

  #end(error: Error): void {
    this.#ended ??= error
    for (const waiting of this.#waiting.values()) waiting.reject(this.#ended)
    this.#waiting.clear()
    this.#hold(false)
  }

  /** An idle launcher does not keep this process alive; a command that runs does. */
  #hold(busy: boolean): void {
    for (const stream of [this.#process.stdin, this.#process.stdout]) {
      if (busy) (stream as Socket).ref()
      else (stream as Socket).unref()
    }
  }
}

function frame(id: number, op: number, detached: boolean, input: Buffer, argv: readonly string[]): Buffer {
  const words = Buffer.from(argv.join('\0'))
  const head = Buffer.alloc(14)
  head.writeUInt32BE(10 + input.length + words.length, 0)
  head.writeUInt32BE(id, 4)
  head.writeUInt8(op, 8)
  head.writeUInt8(detached ? 1 : 0, 9)
  head.writeUInt32BE(input.length, 10)
  return Buffer.concat([head, input, words])
}
