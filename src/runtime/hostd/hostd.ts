import { rm } from 'node:fs/promises'
import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { ServiceError } from '../../errors.ts'
import { commandEnvironment, useLauncher } from '../command.ts'
import { HostdProcess } from './hostd-process.ts'
import type { LaunchAnswer, LaunchRequest } from './hostd-process.ts'
import { relayTo } from './relay.ts'

/** One that ends sooner is started again after a pause, each time a longer one. */
const stableMs = 10_000
const pauseMsMin = 100
const pauseMsMax = 5_000

/**
 * The resident helper of this server on its host. It relays every connection to a guest, so that this process never holds a
 * socket whose peer is in a sandbox, and it starts the programs of `run`.
 *
 *     closed ── open ──► serving ── it ends by itself ──► starting again ──► serving
 *                           └── close ──► closed             └── close ──► closed
 */
export class Hostd {
  readonly #socket: string
  readonly #log: (message: string) => void
  #process: HostdProcess | undefined
  #release: () => void = () => undefined
  #isOpen = false
  #pauseMs = 0

  /** `socket` is the path of its own socket. */
  constructor({ socket, log }: { socket: string; log: (message: string) => void }) {
    this.#socket = socket
    this.#log = log
  }

  /** Starts the program at `toolPath` and returns when it serves. Throws `unavailable`. */
  async open(toolPath: string): Promise<void> {
    this.#isOpen = true
    try {
      await this.#start(toolPath)
    } catch (cause) {
      this.#isOpen = false
      throw new ServiceError('unavailable', `${toolPath} ${(cause as Error).message}`, { cause })
    }
    this.#release = useLauncher(this)
  }

  async close(): Promise<void> {
    if (!this.#isOpen) return
    this.#isOpen = false
    this.#release()
    await this.#process?.close()
    await rm(this.#socket, { force: true })
  }

  get isRunning(): boolean {
    return this.#process?.isRunning === true
  }

  launch(request: LaunchRequest): { answer: Promise<LaunchAnswer>; kill: () => void } {
    if (this.#process === undefined) throw new Error('hostd is not open')
    return this.#process.launch(request)
  }

  /** A connection to the guest that listens at `path`. Throws like {@link relayTo}. */
  connect(path: string): Promise<Socket> {
    return relayTo(this.#socket, path)
  }

  async #start(toolPath: string): Promise<void> {
    const process = new HostdProcess(toolPath, this.#socket, commandEnvironment())
    this.#process = process
    await process.serving
    const startedAt = performance.now()
    void process.ended.then((outcome) => {
      if (performance.now() - startedAt >= stableMs) this.#pauseMs = 0
      return this.#restart(toolPath, outcome)
    })
  }

  async #restart(toolPath: string, outcome: string): Promise<void> {
    if (!this.#isOpen) return
    this.#log(`atoll-hostd ${outcome}; it is started again`)
    await sleep(this.#pauseMs, undefined, { ref: false })
    this.#pauseMs = Math.min(Math.max(2 * this.#pauseMs, pauseMsMin), pauseMsMax)
    if (this.#isOpen) {
      await this.#start(toolPath).catch((error: unknown) => this.#restart(toolPath, (error as Error).message))
    }
  }
}
