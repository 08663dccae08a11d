import { setTimeout as sleep } from 'node:timers/promises'
import { isServiceError, ServiceError } from '../errors.ts'
import { AgentLink, type WorkerDeps } from './agent-link.ts'
import type { Creation } from '../lib/creation.ts'
import { KeyedMutex } from '../lib/async/mutex.ts'
import { backOff } from '../lib/async/retry.ts'
import { retryBackOff, type SessionLimits } from './config.ts'
import { hasWork, type Progress } from './draft.ts'
import { dropForkCheckpoint } from './fork-checkpoints.ts'
import { demandQueued, hasEnded, Ledger } from './ledger.ts'
import { deleteSandbox, SandboxLink } from './sandbox-link.ts'
import { ShortageWait } from './shortage.ts'
import type { Session } from './session.ts'

/**
 * Drives one running session: one loop that looks at what the store says and takes the next step.
 *
 *     boot the sandbox ──► start an agent ──► attach ──► (exit: start again · break: attach again)
 *           │ failure            │ three failures          │ sandbox hibernates
 *           ▼                    ▼                         ▼
 *        failed ◄────────────────┘                       asleep
 *      a message: boot again                     a message, or the sandbox's own wake: attach
 *
 * A step that lacks something for the moment is taken again after a pause (`ShortageWait`), until it has failed.
 *
 * All of its state that matters is in the store, through the ledger: a worker can be dropped at any point and another one
 * goes on. Work (a boot, a turn, waiting messages) holds the sandbox awake; an idle agent does not.
 */
export class SessionWorker {
  readonly sessionId: string
  readonly #deps: WorkerDeps
  readonly #ledger: Ledger
  readonly #sandbox: SandboxLink
  readonly #agent: AgentLink
  readonly #shortage: ShortageWait
  readonly #stop = new AbortController()
  #driving: Promise<void> | undefined
  #poked = false
  #wakeLoop = () => {}
  #ending: Promise<void> | undefined
  readonly #stillness = new KeyedMutex()
  #forkCheckpointTried = false
  #failures = 0

  constructor(deps: WorkerDeps, session: { id: string; orgId: string }) {
    this.sessionId = session.id
    this.#deps = deps
    this.#ledger = new Ledger(deps, session.id)
    const { queues, limits, timings } = deps
    const { orgId } = session
    const { signal } = this.#stop
    this.#shortage = new ShortageWait({ ledger: this.#ledger, queues, limits, timings, orgId, signal })
    this.#sandbox = new SandboxLink(deps, this.#ledger, session.orgId, {
      signal: this.#stop.signal,
      detach: () => this.#agent.detach(),
      poke: () => this.#poke(),
    })
    this.#agent = new AgentLink(deps, this.#ledger, session.orgId, {
      signal: this.#stop.signal,
      awake: async () => {
        await this.#sandbox.wokeUp()
        await this.#shortage.over(true)
      },
      isRestored: async () => await this.#sandbox.isRestored((await this.#ledger.read()).session),
      hold: (progress) => this.#sandbox.hold(progress),
      fail: (error, what, code) => this.#fail(error, what, code),
      orFail: (what, work) => this.#orFail(what, work),
      waitOrFail: (error, what) => this.#waitOrFail(error, what),
    })
  }

  start(): void {
    this.#driving ??= this.#drive()
  }

  /** Queues a message. Throws `conflict` when the session has ended or lost its sandbox. */
  async enqueue(content: string, creation?: Creation): Promise<void> {
    await this.#ledger.write((draft) => {
      if (this.#ending) throw hasEnded()
      if (this.#sandbox.isLost(draft.progress.session.sandboxId)) {
        throw new ServiceError('conflict', 'the sandbox of the session is lost; restart the session')
      }
      demandRoom(draft.progress, content, this.#deps.limits)
      draft.addUserMessage(content, creation)
    })
    await this.goOn()
  }

  /** Sees to messages that wait, also one whose commit looked like a failure. */
  async goOn(): Promise<void> {
    const sent = this.#agent.wanted('message')
    this.#poke()
    await sent
  }

  /** Ends the running turn, or that of the first message that waits; without any it does nothing. */
  async interrupt(): Promise<void> {
    const runs = await this.#ledger.write(async (draft) => {
      draft.interrupt(await this.#deps.store.firstMessage(this.sessionId, 'queued'))
      return !draft.isEmpty
    })
    if (!runs) return
    const sent = this.#agent.wanted('interrupt')
    this.#poke()
    await sent
    await this.#restIfDone()
  }

  /** Takes a message back that still waits. Throws `not_found` for an unknown one, `conflict` for any other. */
  async cancelMessage(messageId: string): Promise<void> {
    await this.#ledger.write(async (draft) => {
      await demandQueued(this.#deps.store, this.sessionId, messageId)
      draft.cancelMessage(messageId)
    })
    await this.#restIfDone()
  }

  /**
   * Runs work on an idle session and its sandbox, and lets no turn begin meanwhile; messages wait. Throws `conflict` unless it
   * is idle.
   */
  async whileIdle<Result>(work: (session: Session) => Promise<Result>): Promise<Result> {
    const { sandboxes } = this.#deps
    return await this.#stillness.run(this.sessionId, async () => {
      let release = () => {}
      this.#agent.pause()
      try {
        const { session, turn } = await this.#ledger.read()
        release = sandboxes.previews.keepAlive(session.sandboxId)
        if (turn || session.activity !== 'idle') {
          throw new ServiceError('conflict', `the session is ${session.activity}; it has to be idle`)
        }
        return await work(session)
      } finally {
        release()
        await this.#agent.resume()
        this.#poke()
      }
    })
  }

  /** Boots under another id what was lost. Throws `conflict` while the sandbox is there. */
  async restart(sandboxId: string, checkpointId: string | undefined, creation?: Creation): Promise<void> {
    const { sandboxes } = this.#deps
    const { session } = await this.#ledger.read()
    const status = await this.#sandbox.status(session.sandboxId)
    if (status !== 'stopped' && status !== 'error') {
      throw new ServiceError('conflict', `the sandbox of the session is ${status}, not lost`)
    }
    if (session.activity !== 'failed') await this.#sandbox.lose(status)
    // First, so that a crash leaves no sandbox of nobody.
    await deleteSandbox(sandboxes, session)
    await dropForkCheckpoint(sandboxes, session)
    await this.#ledger.write((draft) => {
      if (this.#ending) throw hasEnded()
      if (draft.progress.session.sandboxId !== session.sandboxId) {
        throw new ServiceError('conflict', 'the session has been restarted meanwhile')
      }
      draft.restart(sandboxId, checkpointId, creation)
    })
    this.#sandbox.letSleep()
    this.#shortage.cutShort()
    await this.goOn()
  }

  /** Kills the sandbox and ends the session; nothing of it runs afterwards. */
  async end(): Promise<void> {
    this.#ending ??= this.#end()
    try {
      await this.#ending
    } catch (error) {
      this.#ending = undefined
      throw error
    }
  }

  /** Leaves everything running; another worker can take over. */
  async close(): Promise<void> {
    this.#stop.abort()
    this.#agent.close()
    this.#poke()
    // A boot under way goes on inside the sandbox service; the next server finds what it left.
    await Promise.race([this.#driving, sleep(this.#deps.timings.bootStopMs, undefined, { ref: false })])
    this.#sandbox.letSleep()
  }

  /** Takes note of a change that the sandbox service has announced. */
  async sandboxChanged(sandboxId: string, status: string, reason?: string): Promise<void> {
    if (this.#stop.signal.aborted || this.#ending) return
    const { sandboxReady, session } = await this.#ledger.read()
    // One that another has taken the place of is no concern of the session any more.
    if (!sandboxReady || session.sandboxId !== sandboxId) return
    if (status === 'hibernated') await this.#sandbox.fellAsleep()
    if (status === 'running') {
      await this.#sandbox.wokeUp()
      this.#shortage.cutShort()
    }
    if (status === 'stopped' || status === 'error') await this.#sandbox.lose(status, reason)
    if (await this.#sandbox.isRestored(session)) this.#agent.detach()
    this.#poke()
  }

  async #end(): Promise<void> {
    const { sandboxes, store, timings, log } = this.#deps
    const { session } = await this.#ledger.read()
    if (session.status === 'ended') return
    this.#stop.abort()
    this.#agent.close()
    this.#poke()
    await deleteSandbox(sandboxes, session)
    // A boot under way may have come to its end without noticing; it is waited for, and what it left is removed.
    const driven = this.#driving ?? Promise.resolve()
    const stopped = driven.then(() => deleteSandbox(sandboxes, session))
    const waited = new AbortController()
    const patience = sleep(timings.bootStopMs, 'late' as const, { signal: waited.signal }).catch(() => 'late' as const)
    if ((await Promise.race([stopped, patience])) === 'late') {
      stopped.catch((error: unknown) => log.error({ err: error, sessionId: session.id }, 'a sandbox was left behind'))
    }
    waited.abort()
    this.#sandbox.letSleep()
    await this.#sandbox.endForkCheckpoint(session)
    await this.#ledger.write(async (draft) => draft.end(await store.queuedMessageIds(this.sessionId)))
  }

  async #drive(): Promise<void> {
    const { signal } = this.#stop
    while (!signal.aborted) {
      this.#poked = false
      try {
        if ((await this.#step()) === 'again') continue
        this.#agent.leaveStartSlot()
        // Nothing is left to do for which something was lacking.
        if (!signal.aborted) await this.#shortage.over(false)
        await this.#nextPoke()
      } catch (error) {
        this.#agent.leaveStartSlot()
        if (signal.aborted || (await this.#hasEnded())) break
        this.#deps.log.warn({ err: error, sessionId: this.sessionId }, 'a step of a session failed')
        this.#ledger.invalidate()
        await backOff(++this.#failures, retryBackOff(this.#deps.timings), signal)
      }
    }
    this.#agent.leaveStartSlot()
    this.#shortage.leave()
    this.#sandbox.letSleep()
  }

  /** Does the next thing that is to be done; `wait` when only a message or an event of the sandbox can go on. */
  async #step(): Promise<'again' | 'wait'> {
    const progress = await this.#ledger.read()
    const { session } = progress
    if (session.status === 'ended') this.#stop.abort()
    if (session.activity === 'failed' || this.#stop.signal.aborted) return await this.#rest(progress)
    const working = hasWork(progress)
    this.#sandbox.hold(progress)
    if (this.#shortage.isWaiting(session)) {
      await this.#shortage.pause(session)
      return 'again'
    }
    if (!progress.sandboxReady) {
      await this.#orFail('The sandbox could not be started', () => this.#boot(session))
      return 'again'
    }
    if (!this.#forkCheckpointTried) await this.#sandbox.endForkCheckpoint(session)
    this.#forkCheckpointTried = true
    const status = await this.#sandbox.status(session.sandboxId)
    if (status === 'stopped' || status === 'error') {
      await this.#sandbox.lose(status)
      return 'wait'
    }
    if (status === 'hibernated' && !(working && this.#agent.wakeWanted)) {
      await this.#sandbox.fellAsleep()
      return 'wait'
    }
    const lacking = status === 'hibernated' ? this.#shortage.lacking : undefined
    if (lacking) {
      await this.#waitOrFail(lacking, wakeFailedText)
      return 'again'
    }
    if (await this.#sandbox.isRestored(session)) {
      await this.#orFail(wakeFailedText, () => this.#sandbox.acceptRestore(session))
      return 'again'
    }
    if (session.agentProcessId === undefined) {
      if (!working && !this.#agent.restartsIdle) return 'wait'
      return await this.#agent.start(progress)
    }
    return await this.#agent.attach(progress, session.agentProcessId)
  }

  /** Nothing is done until a message comes; a sandbox that is gone by now is noticed. */
  async #rest({ session, sandboxReady }: Progress): Promise<'wait'> {
    this.#sandbox.letSleep()
    if (sandboxReady && session.status === 'running') await this.#sandbox.look(session)
    return 'wait'
  }

  async #boot(session: Session): Promise<void> {
    if (this.#shortage.lacking) throw this.#shortage.lacking
    await this.#sandbox.boot(session)
  }

  /** Runs a step; what it lacks for the moment makes the session wait, any other failure is its own. */
  async #orFail(what: string, work: () => Promise<void>): Promise<void> {
    const { sandboxId } = (await this.#ledger.read()).session
    try {
      await work()
    } catch (error) {
      if (this.#stop.signal.aborted || (await this.#hasEnded())) return
      // It was lost on the way, and another one has taken its place.
      if ((await this.#ledger.read()).session.sandboxId !== sandboxId) return
      return await this.#waitOrFail(error, what)
    }
    await this.#shortage.over(true)
  }

  async #waitOrFail(error: unknown, what: string): Promise<void> {
    this.#agent.leaveStartSlot()
    if (this.#stop.signal.aborted) return
    if (!(await this.#shortage.met(error, what))) await this.#fail(error, what)
  }

  async #fail(error: unknown, what: string, code?: string): Promise<void> {
    this.#deps.log.warn({ err: error, sessionId: this.sessionId }, what)
    // Faults of the world are told; others stay in the log.
    const words = isServiceError(error) ? `: ${error.message}` : ''
    const named = code ?? (isServiceError(error) ? error.code : ((await this.#sandbox.fault()) ?? 'internal_error'))
    this.#failures = 0
    await this.#ledger.write((draft) => {
      draft.dropAgent()
      draft.fail(named, `${what}${words}.`)
    })
  }

  /** After what may have left nothing to do. */
  async #restIfDone(): Promise<void> {
    if (!hasWork(await this.#ledger.read())) this.#sandbox.letSleep()
  }

  async #hasEnded(): Promise<boolean> {
    try {
      this.#ledger.invalidate()
      return (await this.#ledger.read()).session.status === 'ended'
    } catch {
      return false
    }
  }

  #poke(): void {
    this.#poked = true
    this.#wakeLoop()
  }

  async #nextPoke(): Promise<void> {
    if (this.#poked || this.#stop.signal.aborted) return
    await new Promise<void>((resolve) => (this.#wakeLoop = resolve))
  }
}

const wakeFailedText = 'The sandbox does not wake'

/** Throws `rate_limited` when too many messages wait, `conflict` when the session holds as much as it may. */
function demandRoom(progress: Progress, content: string, limits: SessionLimits): void {
  const { queuedMessagesMax, streamBytesMax, historyBytesMax } = limits
  if (progress.streamBytes >= streamBytesMax) {
    const details = { limit: streamBytesMax }
    throw new ServiceError('conflict', 'the session has said as much as a session may', { details })
  }
  if (progress.historyBytes + Buffer.byteLength(content) > historyBytesMax) {
    const details = { limit: historyBytesMax }
    throw new ServiceError('conflict', 'the messages of the session are as much as a session may have', { details })
  }
  if (progress.queued >= queuedMessagesMax) {
    const details = { limit: queuedMessagesMax, retryAfterSeconds: 10 }
    throw new ServiceError('rate_limited', `${progress.queued} messages wait already`, { details })
  }
}
