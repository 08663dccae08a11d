import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import type { SystemUser } from '../../lib/system-user.ts'
import { TokenBuckets } from '../../lib/token-bucket.ts'
import { Semaphore } from '../../lib/async/semaphore.ts'
import { withTimeout } from '../../lib/async/timeout.ts'
import type { EgressEntriesDropped, EgressEntry } from '../../sandbox/ports/egress.ts'
import { entered, type ServiceGroup } from '../cgroups/service-group.ts'
import { commandEnvironment, messageOf } from '../command.ts'
import { Channel, unavailable } from './channel.ts'
import type { EgressStart, FromEgress, ToEgress } from './frames.ts'
import { unprivileged } from './unprivileged.ts'

export const egressLimits = { memoryBytes: 512 * 1024 * 1024, processes: 256 } as const

/** Those in `EgressProcessOptions` win. */
const times = {
  /** Pause before the process is started again: it grows while it ends soon. */
  firstPauseMs: 50,
  pauseMaxMs: 10_000,
  /** One that has run for so long has not failed at its start. */
  settledMs: 10_000,
  /** For an answer. */
  answerMs: 10_000,
  /** For its listeners, and for its answer to the first frame. */
  readyMs: 10_000,
  /** How long work waits for the process to be started. */
  startMs: 5_000,
  /** How long it has to end by itself. */
  stopMs: 1_000,
}
/** Frames without an answer yet: they hold plans. */
const framesAtOnce = 32
/** For what it has said before its end. */
const restMs = 100
/** Texts of the process that are logged in a minute. */
const logged = { perSecond: 1 / 3, burst: 20 }
const textCharsMax = 2_000

export interface EgressProcessOptions {
  /** The program and its arguments, asked at each start. Throws when there is none. */
  program: () => Promise<readonly string[]>
  user: () => Promise<Pick<SystemUser, 'uid' | 'gid'>>
  group: () => Promise<Pick<ServiceGroup, 'open' | 'remove'>>
  startFrame: () => Promise<EgressStart>
  /** Gives a process that has started what it has to know of sandboxes. */
  onStarted: () => Promise<void>
  onEntry: (entry: EgressEntry) => void
  onEntriesDropped: (dropped: EgressEntriesDropped) => void
  log: (message: string) => void
  times?: Partial<typeof times>
}

/**
 * Supervises the process that holds the egress of sandboxes. It is started again when it ends by itself, does not answer, or says what was not agreed.
 *
 *     idle ── start ──► starting ──► running
 *                          ▲  └────────┴── it ends ──► pausing
 *                          └───────────────────────────┘          from each: close ──► closed
 */
export class EgressProcess {
  readonly #options: EgressProcessOptions
  readonly #times: typeof times
  readonly #closing = new AbortController()
  readonly #texts = new TokenBuckets(logged)
  readonly #frames = new Semaphore({ permits: framesAtOnce })
  #supervised: Promise<void> | undefined
  #child: ChildProcess | undefined
  #channel: Channel | undefined
  /** Resolved with the first channel of a run that counts, rejected when a start has failed. */
  #started = newStart()
  /** Why the last start failed. */
  #trouble: string | undefined
  readonly #settled = Promise.withResolvers<void>()

  constructor(options: EgressProcessOptions) {
    this.#options = options
    this.#times = { ...times, ...options.times }
  }

  start(): void {
    this.#supervised ??= this.#supervise().finally(() => this.#settled.resolve())
  }

  /** Resolves when the first start has succeeded, and what runs is held, or has failed. */
  get settled(): Promise<void> {
    return this.#settled.promise
  }

  /** Why sandboxes with rules cannot start. Undefined also while it is started again. */
  unavailable(): string | undefined {
    return this.#closing.signal.aborted ? 'the server ends' : this.#trouble
  }

  get pid(): number | undefined {
    return this.#channel === undefined ? undefined : this.#child?.pid
  }

  /**
   * Sends a frame, and resolves when the process has done it; waits for one that is being started. `make` is called when the frame is written: undefined
   * sends nothing. Throws `unavailable`.
   */
  async tell(make: () => ToEgress | undefined): Promise<void> {
    const why = this.unavailable()
    if (why !== undefined) throw unavailable(why)
    await this.#frames.use(async () => {
      const channel = this.#channel ?? (await withTimeout(this.#times.startMs, this.#started.promise))
      if (channel === undefined) throw unavailable('its process has not started in time')
      const frame = make()
      if (frame !== undefined) await channel.ask(frame)
    })
  }

  /** Likewise, but does nothing when no process is there to be told. */
  async tellIfRunning(make: () => ToEgress | undefined): Promise<void> {
    if (this.#channel === undefined) return
    await this.#frames.use(async () => {
      const frame = this.#channel && make()
      if (frame !== undefined) await this.#channel?.ask(frame)
    })
  }

  /** Has what `startFrame` says come into force. Connections end. */
  restart(why: string): void {
    if (this.#child === undefined) return
    this.#options.log(`the egress process is started anew: ${why}`)
    this.#child.kill('SIGKILL')
  }

  async close(): Promise<void> {
    this.#closing.abort()
    this.#started.reject(unavailable('the server ends'))
    const child = this.#child
    // The process ends with its input.
    child?.stdin?.end()
    const timer = setTimeout(() => child?.kill('SIGKILL'), this.#times.stopMs)
    await this.#supervised
    clearTimeout(timer)
  }

  async #supervise(): Promise<void> {
    const { log } = this.#options
    const { signal } = this.#closing
    const { firstPauseMs, pauseMaxMs, settledMs } = this.#times
    let pauseMs = firstPauseMs
    let lastTrouble: string | undefined
    while (!signal.aborted) {
      const begunMs = performance.now()
      try {
        const why = await this.#run()
        if (!signal.aborted) log(`the egress process has ended (${why}); it is started again`)
        lastTrouble = undefined
      } catch (error) {
        this.#fail(messageOf(error))
        // A process that cannot be started says the same at each attempt.
        if (this.#trouble !== lastTrouble && !signal.aborted)
          log(`the egress process cannot be started: ${this.#trouble}`)
        lastTrouble = this.#trouble
        this.#settled.resolve()
      }
      if (performance.now() - begunMs > settledMs) pauseMs = firstPauseMs
      await sleep(pauseMs, undefined, { signal }).catch(() => undefined)
      pauseMs = Math.min(2 * pauseMs, pauseMaxMs)
    }
    await this.#options
      .group()
      .then((group) => group.remove())
      .catch((error: unknown) => log(`the control group of the egress process is left: ${String(error)}`))
  }

  /** Runs the process once. Throws when it does not come to hold anything; else returns how it has ended. */
  async #run(): Promise<string> {
    const { program, user, group, startFrame } = this.#options
    const argv = unprivileged(await user(), await program())
    const [folders, frame] = await Promise.all([group().then((found) => found.open()), startFrame()])
    this.#closing.signal.throwIfAborted()
    const [command, ...args] = entered(folders, argv)
    const child = spawn(command, args, {
      stdio: ['pipe', 'pipe', 'pipe'],
      env: commandEnvironment(),
      cwd: '/',
      // A signal of the terminal is for the server, which ends it.
      detached: true,
    })
    this.#child = child
    let broken: string | undefined
    const ready = Promise.withResolvers<void>()
    ready.promise.catch(() => undefined)
    const channel = new Channel({
      input: child.stdin,
      output: child.stdout,
      answerMs: this.#times.answerMs,
      onReport: (report) => (report.op === 'ready' ? ready.resolve() : this.#report(report)),
      onStrange: () => this.#say('it says what is no frame'),
      onBroken: (why) => {
        broken ??= why
        child.kill('SIGKILL')
      },
    })
    let said = ''
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      said = (said + text).slice(-textCharsMax)
      this.#say(text.trimEnd())
    })
    const ended = endOf(child).then((how) => {
      const why = broken ?? how
      this.#channel = undefined
      channel.end(`its process has ended (${why})`)
      ready.reject(new Error(said.trim() === '' ? why : `${why}: ${said.trim()}`))
      return why
    })
    try {
      const { readyMs } = this.#times
      await Promise.all([channel.ask(frame, readyMs), withLimit(readyMs, ready.promise)])
    } catch (error) {
      const hasEnded = channel.hasEnded
      child.kill('SIGKILL')
      await ended
      // Its last words say more than that it has ended.
      if (hasEnded) await ready.promise
      throw error
    }
    this.#trouble = undefined
    this.#channel = channel
    this.#started.resolve(channel)
    const held = this.#options
      .onStarted()
      .catch((error: unknown) =>
        this.#options.log(`the egress process could not be told of all sandboxes: ${messageOf(error)}`),
      )
      .then(() => this.#settled.resolve())
    const how = await ended
    this.#child = undefined
    this.#started = newStart()
    await held
    return how
  }

  #fail(why: string): void {
    this.#child = undefined
    this.#trouble = why.slice(0, textCharsMax)
    this.#started.reject(unavailable(this.#trouble))
    this.#started = newStart()
  }

  #report(report: Exclude<FromEgress, { op: 'ok' | 'error' | 'ready' }>): void {
    const { onEntry, onEntriesDropped } = this.#options
    if (report.op === 'entry') onEntry(report.entry)
    else if (report.op === 'entries_dropped') onEntriesDropped(report.dropped)
    else this.#say(report.message)
  }

  /** Logs what the process says, within a bound: a sandbox may cause it. */
  #say(text: string): void {
    if (text !== '' && this.#texts.take('texts') === 0)
      this.#options.log(`the egress process: ${text.slice(0, textCharsMax)}`)
  }
}

function newStart(): PromiseWithResolvers<Channel> {
  const start = Promise.withResolvers<Channel>()
  // Nobody need wait for it.
  start.promise.catch(() => undefined)
  return start
}

/** How a process has ended, in words, once what it has said before is read. A child of its own that holds its pipes is not waited for. */
async function endOf(child: ChildProcess): Promise<string> {
  const closed = once(child, 'close')
  closed.catch(() => undefined)
  try {
    const [code, signal] = (await once(child, 'exit')) as [number | null, string | null]
    await withTimeout(restMs, closed)
    return signal ?? `status ${code}`
  } catch (error) {
    return messageOf(error)
  } finally {
    for (const stream of [child.stdin, child.stdout, child.stderr]) stream?.destroy()
  }
}

async function withLimit(ms: number, work: Promise<void>): Promise<void> {
  if (
    (await withTimeout(
      ms,
      work.then(() => true),
    )) === undefined
  )
    throw new Error('it is not ready in time')
}
