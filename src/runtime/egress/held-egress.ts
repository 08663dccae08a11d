import { existsSync } from 'node:fs'
import { realpath, rm, writeFile } from 'node:fs/promises'
import { ServiceError } from '../../errors.ts'
import { KeyedMutex } from '../../lib/async/mutex.ts'
import { Semaphore } from '../../lib/async/semaphore.ts'
import { withTimeout } from '../../lib/async/timeout.ts'
import { findSystemUser, type SystemUser } from '../../lib/system-user.ts'
import type {
  DriverEgress,
  EgressAuthority,
  EgressContext,
  EgressState,
  StatedEgress,
} from '../../sandbox/ports/egress.ts'
import { Cgroups } from '../cgroups/index.ts'
import { ServiceGroup } from '../cgroups/service-group.ts'
import { withinRun } from '../cleanup.ts'
import { messageOf, type Run } from '../command.ts'
import { egressToolIn, type HostNames } from '../host-names.ts'
import { type NamespaceOwner, type Network, stricter } from '../network/index.ts'
import { readNow } from '../read-now.ts'
import { makeAuthority } from './authority.ts'
import { egressLimits, EgressProcess, type EgressProcessOptions } from './process.ts'
import { type EgressSettings, Surroundings } from './surroundings.ts'

export interface HeldEgressOptions {
  names: Pick<HostNames, 'egressGroup' | 'sandboxDir'>
  imageDir: string
  network: Pick<Network, 'subnet' | 'address' | 'attach' | 'setEgress'>
  /** Absent: all sandboxes are open. */
  given: (EgressContext & EgressSettings) | undefined
  run: Run
  log: (message: string) => void
  /** Replaces parts of the process, for tests. */
  process?: Partial<EgressProcessOptions>
}

/** Plans that are asked for at a time when the process has started. */
const plansAtOnce = 16
/** How long `open` waits until what runs is held again. */
const openMs = 10_000

/** The part of a record that matters here. */
interface Named {
  id: string
  slot: number
}

/** A sandbox that runs, starts or ends. Another run is another object. */
interface Held {
  slot: number
  state: EgressState
  /** Whether the process may have a plan of it. */
  isKnown: boolean
  /** Whether what holds is still to be asked for, or to be put in force. */
  isPending: boolean
}

/**
 * Holds the sandboxes that run on this host: asks what holds for one, gives the plan to the process, moves the address in the packet rules. A stricter
 * state is in force before anything else happens, a looser one after all else; so a failure, or the end of any process, opens nothing. The state,
 * not the plan, is in a file of the sandbox while it runs, for the next server.
 *
 *     prepare ──► attach ⇄ refresh ──► release
 *     adopt ──────────────┘
 */
export class HeldEgress implements DriverEgress {
  readonly #options: HeldEgressOptions
  readonly #surroundings: Surroundings
  readonly #held = new Map<string, Held>()
  /** Serialise changes of one sandbox. */
  readonly #changes = new KeyedMutex()
  #process: EgressProcess | undefined
  /** What the last attempt to bring all has logged. */
  #failure: string | undefined

  constructor(options: HeldEgressOptions) {
    this.#options = options
    this.#surroundings = new Surroundings(options.given ?? {}, options.network.subnet, options.log)
  }

  /** Takes over a sandbox that runs. Returns what held for it, which holds on. */
  adopt({ id, slot }: Named): EgressState {
    const state = readState(this.#file(id))
    this.#held.set(id, { slot, state, isKnown: false, isPending: this.#isAsked })
    return state
  }

  /** Starts the process, and gives it what runs. To be called when the network is open. Never fails: what cannot be held is refused. */
  async open(): Promise<void> {
    if (!this.#isAsked) return
    const process = this.#newProcess()
    this.#process = process
    process.start()
    const held = process.settled.then(() => this.#bringPending())
    await withTimeout(openMs, held)
  }

  async close(): Promise<void> {
    const process = this.#process
    this.#process = undefined
    await process?.close()
    this.#held.clear()
  }

  /** Tries again what has failed, and looks whether the process must be told of other name servers. */
  async tend(): Promise<void> {
    await this.#bringPending()
    if (this.#surroundings.hasChanged()) this.#process?.restart('the name servers of this host have changed')
  }

  /**
   * To be called before anything of a start runs: asks what holds, and gives the process the plan. Throws what `egressOf` throws, and `unavailable`
   * when the sandbox is not open and the process is not there. The caller calls `release` after a failure too. A warm one is nobody's yet, and open.
   */
  async prepare({ id, slot }: Named, isWarm: boolean): Promise<void> {
    if (!this.#isAsked) return
    const held: Held = { slot, state: 'open', isKnown: false, isPending: false }
    this.#held.set(id, held)
    await this.#changes.run(id, async () => {
      const wanted: StatedEgress = isWarm ? { state: 'open' } : await this.#ask(id)
      await this.#put(id, held, wanted)
      await this.#note(id, wanted.state)
      held.state = wanted.state
    })
  }

  /** Attaches a prepared or adopted sandbox to the network, with what holds for it. */
  async attach(
    { id, slot }: Named,
    process: NamespaceOwner,
    restored?: Parameters<Network['attach']>[2],
  ): Promise<void> {
    await this.#changes.run(id, () => this.#options.network.attach(slot, process, restored, this.stateOf(id)))
  }

  stateOf(id: string): EgressState {
    return this.#held.get(id)?.state ?? 'open'
  }

  /** See `DriverEgress`. */
  async refresh(id: string): Promise<void> {
    if (!this.#isAsked) return
    await this.#changes.run(id, async () => {
      const held = this.#held.get(id)
      if (held === undefined) return
      held.isPending = true
      const wanted = await this.#ask(id)
      await this.#move(id, held, stricter(held.state, wanted.state))
      await this.#put(id, held, wanted)
      await this.#move(id, held, wanted.state)
      if (wanted.state === 'open' && this.#isCurrent(id, held)) this.#drop(id, held)
      held.isPending = false
    })
  }

  /** To be called when the processes of a sandbox have ended, also for one that was never prepared. Waits for nothing. */
  release(id: string): void {
    const held = this.#held.get(id)
    if (held === undefined) return
    this.#held.delete(id)
    this.#drop(id, held)
  }

  unavailable(): string | undefined {
    if (!this.#isAsked) return 'this server was started without it'
    return this.#process === undefined ? 'the runtime is not open' : this.#process.unavailable()
  }

  async makeAuthority(): Promise<EgressAuthority> {
    return await makeAuthority(this.#options.run, await this.#user(), await this.#program())
  }

  /** Whether anybody says what holds for sandboxes. */
  get #isAsked(): boolean {
    return this.#options.given !== undefined
  }

  async #ask(id: string): Promise<StatedEgress> {
    const stated = await this.#options.given?.egressOf(id)
    if (stated === undefined || (stated.state !== 'open' && stated.plan === undefined)) {
      throw new Error(`the egress of sandbox ${id} has no plan`)
    }
    return stated
  }

  /** Resolves when the process has the plan. Does nothing for an open sandbox. */
  async #put(id: string, held: Held, { state, plan }: StatedEgress): Promise<void> {
    if (state === 'open' || plan === undefined) return
    if (this.#process === undefined) throw new ServiceError('unavailable', 'the runtime is not open')
    const address = this.#options.network.address(held.slot)
    await this.#process.tell(() => {
      if (!this.#isCurrent(id, held)) return undefined
      held.isKnown = true
      return { op: 'put', sandbox: id, address, plan }
    })
  }

  #drop(id: string, held: Held): void {
    if (!held.isKnown) return
    held.isKnown = false
    // A later run of it has a plan that replaces this one.
    const frame = () => (this.#held.get(id)?.isKnown === true ? undefined : ({ op: 'drop', sandbox: id } as const))
    this.#process?.tellIfRunning(frame).catch((error: unknown) => {
      this.#options.log(`the egress process was not told of the end of sandbox ${id}: ${messageOf(error)}`)
    })
  }

  /** Brings a sandbox to a state, unless it is there or has ended. The file never says less than what holds. */
  async #move(id: string, held: Held, state: EgressState): Promise<void> {
    if (held.state === state || !this.#isCurrent(id, held)) return
    const isStricter = stricter(held.state, state) === state
    if (isStricter) await this.#note(id, state)
    // From here to the call nothing yields: of a sandbox that has ended another one may have the address.
    if (!this.#isCurrent(id, held)) return
    if (isStricter) held.state = state
    await this.#options.network.setEgress(held.slot, state)
    held.state = state
    if (!isStricter) await this.#note(id, state)
  }

  #isCurrent(id: string, held: Held): boolean {
    return this.#held.get(id) === held
  }

  /** Gives a process that has started all that it must have. */
  async #bringAll(): Promise<void> {
    for (const held of this.#held.values()) if (held.state !== 'open') held.isPending = true
    await this.#bringPending()
  }

  /** Failures are logged, and tried again by `tend`. */
  async #bringPending(): Promise<void> {
    const semaphore = new Semaphore({ permits: plansAtOnce })
    const failures: string[] = []
    const bring = async (id: string) => {
      // Another call may have done it.
      if (this.#held.get(id)?.isPending !== true) return
      await this.refresh(id).catch((error: unknown) => failures.push(`${id}: ${messageOf(error)}`))
    }
    const pending = [...this.#held].flatMap(([id, held]) => (held.isPending ? id : []))
    await Promise.all(pending.map((id) => semaphore.use(() => bring(id))))
    const [first] = failures
    const failure =
      first && `the egress of ${failures.length} sandboxes is not as it should be, and is tried again: ${first}`
    // Each attempt would say it.
    if (failure !== undefined && failure !== this.#failure) this.#options.log(failure)
    this.#failure = failure
  }

  #newProcess(): EgressProcess {
    const { given, names, log } = this.#options
    return new EgressProcess({
      program: () => this.#program(),
      user: () => this.#user(),
      group: async () => new ServiceGroup(await Cgroups.find(), names.egressGroup, egressLimits),
      startFrame: () => this.#surroundings.startFrame(),
      onStarted: () => this.#bringAll(),
      onEntry: (entry) => given?.onEgressEntry(entry),
      onEntriesDropped: (dropped) => given?.onEgressEntriesDropped(dropped),
      log,
      ...this.#options.process,
    })
  }

  /** By its real path, which an upgrade does not change. */
  async #program(): Promise<readonly string[]> {
    const { imageDir, process } = this.#options
    if (process?.program !== undefined) return await process.program()
    const program = await realpath(egressToolIn(imageDir)).catch(() => undefined)
    if (program === undefined)
      throw new ServiceError('unavailable', `no atoll-egress in ${imageDir}: run npm run setup`)
    return [program]
  }

  async #user(): Promise<Pick<SystemUser, 'uid' | 'gid'>> {
    return await (this.#options.process?.user?.() ?? findSystemUser('egress'))
  }

  async #note(id: string, state: EgressState): Promise<void> {
    const file = this.#file(id)
    try {
      if (state === 'open') await rm(file, { force: true })
      else await withinRun(writeFile(file, state, { mode: 0o600 }))
    } catch (error) {
      // The folder goes with the sandbox.
      if (this.#held.has(id)) throw error
    }
  }

  #file(id: string): string {
    return `${this.#options.names.sandboxDir(id)}/egress`
  }
}

/** What the file of a sandbox says. One that was cut off, or cannot be read, says the strictest. */
function readState(file: string): EgressState {
  if (!existsSync(file)) return 'open'
  return readNow(file) === 'proxied' ? 'proxied' : 'confined'
}
