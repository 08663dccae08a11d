import { rm } from 'node:fs/promises'
import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { ServiceError } from '../../errors.ts'
import { commandEnvironment, run, useLauncher } from '../command.ts'
import type { CommandOptions } from '../command.ts'
import { HostdProcess } from './hostd-process.ts'
import type { LaunchAnswer, LaunchRequest } from './hostd-process.ts'
import { Relay, RelayUnavailable } from './relay.ts'

/** A process that ends sooner is started again after a pause, which doubles each time. */
const stableMs = 10_000
const pauseMsMin = 100
const pauseMsMax = 5_000

/** The program `atoll-hostd`, for the one thing that it does for each of its commands but `serve`. */
export interface HostTool {
  /** Runs it with a command and its arguments and returns what it prints. Throws `CommandError`. */
  runTool(args: readonly [string, ...string[]], options?: CommandOptions): Promise<string>
}

/**
 * The resident helper of this server on its host. It relays every connection to a guest, so that this process never holds a
 * socket whose peer is in a sandbox, and it starts the programs of `run`.
 *
 *     closed ── open ──► serving ── its process ends ──► starting again ──► serving
 *                           └── close ──► closed             └── close ──► closed
 */
export class Hostd implements HostTool {
  readonly #socket: string
  readonly #relay: Relay
  readonly #log: (message: string) => void
  #toolPath: string | undefined
  #process: HostdProcess | undefined
  /** Aborted by `close`. */
  #open: AbortController | undefined
  #release: () => void = () => undefined
  #starts = 0

  /** `socket` is the path of its own socket. */
  constructor({ socket, log }: { socket: string; log: (message: string) => void }) {
    this.#socket = socket
    this.#relay = new Relay(socket)
    this.#log = log
  }

  /** Starts the program at `toolPath` and returns when it serves. Throws `unavailable`. */
  async open(toolPath: string): Promise<void> {
    const open = new AbortController()
    this.#open = open
    this.#toolPath = toolPath
    try {
      await this.#start(toolPath, open.signal, 0)
    } catch (cause) {
      throw new ServiceError('unavailable', `${toolPath} ${(cause as Error).message}`, { cause })
    }
    this.#release = useLauncher(this)
  }

  /** Waits for the programs that run. */
  async close(): Promise<void> {
    this.#open?.abort()
    this.#release()
    this.#relay.close()
    await this.#process?.close()
    this.#process = undefined
    this.#toolPath = undefined
    await rm(this.#socket, { force: true })
  }

  get isServing(): boolean {
    return this.#process?.isServing === true
  }

  /** How often its process was started: what it relayed has ended when this has changed. */
  get starts(): number {
    return this.#starts
  }

  launch(request: LaunchRequest): { answer: Promise<LaunchAnswer>; kill: () => void } {
    if (this.#process === undefined) throw new Error('hostd is not open')
    return this.#process.launch(request)
  }

  /** By its own launcher, and while that does not serve by this process. */
  runTool(args: readonly [string, ...string[]], options?: CommandOptions): Promise<string> {
    if (this.#toolPath === undefined) throw new Error('hostd is not open')
    return run([this.#toolPath, ...args], options)
  }

  /** A connection to the guest that listens at `path`. Throws like {@link Relay.connect}. */
  connect(path: string): Promise<Socket> {
    return this.#relay.connect(path)
  }

  /** Ends all connections to the guest that listens at `path`, those included that are being closed. */
  async cut(path: string): Promise<void> {
    await this.#relay.cut(path).catch((error: unknown) => {
      // Its connections have ended with it.
      if (!(error instanceof RelayUnavailable)) throw error
    })
  }

  async #start(toolPath: string, closed: AbortSignal, pauseMs: number): Promise<void> {
    const process = new HostdProcess(toolPath, this.#socket, commandEnvironment())
    this.#process = process
    this.#starts += 1
    await process.serving
    const startedAt = performance.now()
    void process.ended.then((outcome) => {
      const isStable = performance.now() - startedAt >= stableMs
      return this.#restart(toolPath, closed, outcome, isStable ? 0 : pauseMs)
    })
  }

  async #restart(toolPath: string, closed: AbortSignal, outcome: string, pauseMs: number): Promise<void> {
    if (closed.aborted) return
    this.#log(`atoll-hostd ${outcome}; it is started again`)
    await sleep(pauseMs, undefined, { ref: false })
    if (closed.aborted) return
    const nextPauseMs = Math.min(Math.max(2 * pauseMs, pauseMsMin), pauseMsMax)
    await this.#start(toolPath, closed, nextPauseMs).catch((error: unknown) =>
      this.#restart(toolPath, closed, (error as Error).message, nextPauseMs),
    )
  }
}
