import { setTimeout as sleep } from 'node:timers/promises'
import type { AtollServer } from '../server.ts'
import { type Answer, type CallOptions, call } from './calls.ts'
import { Intervals } from './intervals.ts'
import type { Random } from './random.ts'
import type { CheckpointModel, SandboxModel } from './sandbox.ts'

const restMsMax = 80
/** Half of all operations go to this many sandboxes, so that clients meet. */
const busyMax = 2

/** The state that all clients share. */
export class World {
  readonly server: AtollServer
  readonly sandboxes: SandboxModel[] = []
  readonly checkpoints: CheckpointModel[] = []
  /** All sandboxes that ever existed. */
  readonly ids = new Set<string>()
  /** In these the server is away or about to be. */
  readonly down = new Intervals()
  readonly violations: string[] = []
  /** Kills and restarts, with their times. */
  readonly log: string[] = []
  readonly counts = new Map<string, number>()
  slowestStartMs = 0
  readonly #over = new AbortController()
  #numbers = 0

  constructor(server: AtollServer) {
    this.server = server
  }

  /** Aborts when time is up or a rule was broken. */
  get over(): AbortSignal {
    return this.#over.signal
  }

  end(): void {
    this.#over.abort()
  }

  /** Unique. */
  number(): number {
    this.#numbers += 1
    return this.#numbers
  }

  /** Stops everything, so that the log of the server ends near the cause. */
  violated(text: string, sandbox?: SandboxModel): void {
    const lines = this.server.output.split('\n').filter((line) => sandbox !== undefined && line.includes(sandbox.id))
    const log = lines.slice(-12).join('\n')
    const at = new Date().toISOString().slice(11, 23)
    this.violations.push([`${at} ${text}`, ...(sandbox === undefined ? [] : [sandbox.trace, log])].join('\n'))
    this.end()
  }

  note(text: string): void {
    this.log.push(`${new Date().toISOString()} ${text}`)
    for (const sandbox of this.sandboxes) sandbox.note(`! ${text}`)
  }

  count(what: string): void {
    this.counts.set(what, (this.counts.get(what) ?? 0) + 1)
  }
}

/** A client runs one operation after the other, chosen by its own random numbers. */
export class Client {
  readonly world: World
  readonly name: string
  readonly random: Random
  #generation = 0

  constructor(world: World, name: string, random: Random) {
    this.world = world
    this.name = name
    this.random = random
  }

  /** The file of a sandbox that this client alone writes. */
  get file(): string {
    return `${this.name}-${this.#generation}`
  }

  /** Switches to a new file, as the content of the last one is unknown. */
  nextFile(): void {
    this.#generation += 1
  }

  async call(
    sandbox: SandboxModel | undefined,
    method: string,
    path: string,
    options?: CallOptions,
  ): Promise<Answer | undefined> {
    return await call(this.world, sandbox, method, path, options)
  }

  /** On the path of a sandbox. */
  async ask(sandbox: SandboxModel, method: string, path: string, options?: CallOptions): Promise<Answer | undefined> {
    return await this.call(sandbox, method, `/api/sandboxes/${sandbox.id}${path}`, options)
  }

  sandbox(): SandboxModel | undefined {
    const { sandboxes } = this.world
    return this.#any(this.random.next() < 0.5 ? sandboxes.slice(0, busyMax) : sandboxes)
  }

  checkpoint(of?: SandboxModel): CheckpointModel | undefined {
    return this.#any(this.world.checkpoints.filter((checkpoint) => of === undefined || checkpoint.sandbox === of))
  }

  async rest(): Promise<void> {
    await sleep(this.random.between(0, restMsMax), undefined, { signal: this.world.over }).catch(() => {})
  }

  #any<Item>(items: readonly Item[]): Item | undefined {
    return items.length === 0 ? undefined : items[this.random.between(0, items.length - 1)]
  }
}
