import { rm } from 'node:fs/promises'
import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { ServiceError } from '../../errors.ts'
import { backOffMs, type BackOff } from '../../lib/async/retry.ts'
import type { HostToolRequest } from '../../protocol/hostd.ts'
import { commandEnvironment, outputOf, run, type CommandOptions, type Run } from '../command.ts'
import type { ProcessIdentity } from '../process.ts'
import { asHostdError, hostToolAt, programRequest, type HostTool, type ProgramPlace } from './host-tool.ts'
import { HostdProcess } from './hostd-process.ts'
import { Relay, RelayUnavailable } from './relay.ts'

/** A process that ends sooner is started again after a growing pause. */
const stableMs = 10_000
const restartBackOff: BackOff = { firstMs: 100, maxMs: 5_000 }

/**
 * The resident helper of this server on its host. It relays every connection to a guest, so that this process never holds a
 * socket with a peer in a sandbox, and starts the programs of `run`.
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
  #starts = 0

  /** `socket` is the path of its own socket. */
  constructor({ socket, log }: { socket: string; log: (message: string) => void }) {
    this.#socket = socket
    this.#relay = new Relay(socket)
    this.#log = log
  }

  /** Starts the program at `toolPath` and waits until it serves. Throws `unavailable`. */
  async open(toolPath: string): Promise<void> {
    const open = new AbortController()
    this.#open = open
    this.#toolPath = toolPath
    try {
      await this.#start(toolPath, open.signal, 0)
    } catch (cause) {
      throw new ServiceError('unavailable', `${toolPath} ${(cause as Error).message}`, { cause })
    }
  }

  /** Waits for the programs that run. */
  async close(): Promise<void> {
    this.#open?.abort()
    this.#relay.close()
    await this.#process?.close()
    this.#process = undefined
    this.#toolPath = undefined
    await rm(this.#socket, { force: true })
  }

  get isServing(): boolean {
    return this.#process?.isServing === true
  }

  /** Number of starts of its process: a change means that all relayed connections have ended. */
  get starts(): number {
    return this.#starts
  }

  /** Like `run` of `command.ts`, but its process starts the program, while it serves. */
  readonly run: Run = (argv, options) =>
    this.#serving() === undefined ? run(argv, options) : this.runProgram(argv, {}, options)

  /** A process of its own does it while hostd does not serve. */
  runTool(request: HostToolRequest, options: CommandOptions = {}): Promise<string> {
    const serving = this.#serving()
    if (serving === undefined) return this.#alone().runTool(request, options)
    return asHostdError(
      request,
      outputOf([request.op], () => serving.launch(request), options),
    )
  }

  runProgram(argv: readonly string[], place: ProgramPlace, options: CommandOptions = {}): Promise<string> {
    const serving = this.#serving()
    if (serving === undefined) return this.#alone().runProgram(argv, place, options)
    return outputOf(argv, () => serving.launch(programRequest(argv, place, options)), options)
  }

  /** A connection to the guest that listens at `path`. Throws like {@link Relay.connect}. */
  connect(path: string): Promise<Socket> {
    return this.#relay.connect(path)
  }

  /** A connection to a port of the loopback of a sandbox, which is known by one of its processes. Throws like {@link HostdProcess.connect}. */
  connectInside(sandbox: ProcessIdentity, port: number): Promise<Socket> {
    if (this.#process === undefined) throw new Error('hostd is not open')
    return this.#process.connect(sandbox, port)
  }

  /** Returns when a process has ended; false: nobody can tell now. */
  async awaitEnd(process: ProcessIdentity): Promise<boolean> {
    return (await this.#process?.awaitEnd(process)) ?? false
  }

  /** Ends all connections to the guest that listens at `path`, also those in their close. */
  async cut(path: string): Promise<void> {
    await this.#relay.cut(path).catch((error: unknown) => {
      // Its connections have ended with it.
      if (!(error instanceof RelayUnavailable)) throw error
    })
  }

  #serving(): HostdProcess | undefined {
    return this.isServing ? this.#process : undefined
  }

  #alone(): HostTool {
    if (this.#toolPath === undefined) throw new Error('hostd is not open')
    return hostToolAt(this.#toolPath)
  }

  async #start(toolPath: string, closed: AbortSignal, failures: number): Promise<void> {
    const process = new HostdProcess(toolPath, this.#socket, commandEnvironment())
    this.#process = process
    this.#starts += 1
    await process.serving
    const startedAt = performance.now()
    void process.ended.then((outcome) => {
      const isStable = performance.now() - startedAt >= stableMs
      return this.#restart(toolPath, closed, outcome, isStable ? 0 : failures)
    })
  }

  async #restart(toolPath: string, closed: AbortSignal, outcome: string, failures: number): Promise<void> {
    if (closed.aborted) return
    this.#log(`atoll-hostd ${outcome}; it is started again`)
    // At once after the first failure.
    if (failures > 0) await sleep(backOffMs(failures, restartBackOff), undefined, { ref: false })
    if (closed.aborted) return
    await this.#start(toolPath, closed, failures + 1).catch((error: unknown) =>
      this.#restart(toolPath, closed, (error as Error).message, failures + 1),
    )
  }
}
