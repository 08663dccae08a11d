import { setTimeout as sleep } from 'node:timers/promises'
import { isServiceError, ServiceError } from '../errors.ts'
import type { SandboxService } from '../sandbox/index.ts'
import { AgentLink, type WorkerDeps } from './agent-link.ts'
import { KeyedLock } from '../lib/keyed-lock.ts'
import { backOff } from './back-off.ts'
import type { SessionLimits } from './config.ts'
import { bootSandbox, endForeignAgents, findSandbox } from './boot.ts'
import { hasWork, type Progress } from './draft.ts'
import { dropForkCheckpoint } from './fork.ts'
import { demandQueued, hasEnded, Ledger } from './ledger.ts'
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
 * All of its state that matters is in the store, through the ledger: a worker can be dropped at any point and another one
 * goes on. Work (a boot, a turn, waiting messages) holds the sandbox awake; an idle agent does not.
 */
export class SessionWorker {
  readonly sessionId: string
  readonly #orgId: string
  readonly #deps: WorkerDeps
  readonly #ledger: Ledger
  readonly #agent: AgentLink
  readonly #stop = new AbortController()
  #driving: Promise<void> | undefined
  #poked = false
  #wakeLoop = () => {}
  #release: (() => void) | undefined
  /** The sandbox that was lost after it had run: until another one takes its place, messages cannot go on. */
  #lostSandboxId: string | undefined
  #ending: Promise<void> | undefined
  readonly #stillness = new KeyedLock()
  #forkCheckpointTried = false
  #failures = 0

  constructor(deps: WorkerDeps, session: { id: string; orgId: string }) {
    this.sessionId = session.id
    this.#orgId = session.orgId
    this.#deps = deps
    this.#ledger = new Ledger(deps, session.id)
    this.#agent = new AgentLink(deps, this.#ledger, session.orgId, {
      signal: this.#stop.signal,
      awake: () => this.#wokeUp(),
      hold: (wanted) => this.#hold(wanted),
      fail: (error, what, code) => this.#fail(error, what, code),
      orFail: (what, work) => this.#orFail(what, work),
    })
  }

  start(): void {
    this.#driving ??= this.#drive()
  }

  /** Queues a message. Throws `conflict` when the session has ended or lost its sandbox. */
  async enqueue(content: string): Promise<void> {
    await this.#ledger.write((draft) => {
      if (this.#ending) throw hasEnded()
      if (draft.progress.session.sandboxId === this.#lostSandboxId) {
        throw new ServiceError('conflict', 'the sandbox of the session is lost; restart the session')
      }
      demandRoom(draft.progress, content, this.#deps.limits)
      draft.addUserMessage(content)
    })
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
    const { sandboxes, store } = this.#deps
    return await this.#stillness.run(this.sessionId, async () => {
      let release = () => {}
      this.#agent.pause()
      try {
        const { session, turn } = await this.#ledger.read()
        release = sandboxes.previews.hold(session.sandboxId)
        // With the texts of its skills, which the ledger leaves out.
        const whole = await store.session(this.sessionId)
        if (turn || session.activity !== 'idle' || !whole) {
          throw new ServiceError('conflict', `the session is ${session.activity}; it has to be idle`)
        }
        return await work(whole)
      } finally {
        release()
        await this.#agent.resume()
        this.#poke()
      }
    })
  }

  /** Boots under another id what was lost. Throws `conflict` while the sandbox is there. */
  async restart(sandboxId: string, checkpointId: string | undefined): Promise<void> {
    const { sandboxes } = this.#deps
    const { session } = await this.#ledger.read()
    const status = (await findSandbox(sandboxes, this.#orgId, session.sandboxId))?.status ?? 'stopped'
    if (status !== 'stopped' && status !== 'error') {
      throw new ServiceError('conflict', `the sandbox of the session is ${status}, not lost`)
    }
    if (session.activity !== 'failed') await this.#loseSandbox(status)
    // First, so that a crash leaves no sandbox of nobody.
    await deleteSandbox(sandboxes, session)
    await dropForkCheckpoint(sandboxes, session)
    await this.#ledger.write((draft) => {
      if (this.#ending) throw hasEnded()
      if (draft.progress.session.sandboxId !== session.sandboxId) {
        throw new ServiceError('conflict', 'the session has been restarted meanwhile')
      }
      draft.restart(sandboxId, checkpointId)
    })
    this.#hold(false)
    await this.#agent.wanted('message')
    this.#poke()
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
    this.#hold(false)
  }

  /** Takes note of a change that the sandbox service has announced. */
  async sandboxChanged(status: string, reason?: string): Promise<void> {
    if (this.#stop.signal.aborted || this.#ending) return
    const { sandboxReady } = await this.#ledger.read()
    if (!sandboxReady) return
    if (status === 'hibernated') await this.#fellAsleep()
    if (status === 'running') await this.#wokeUp()
    if (status === 'stopped' || status === 'error') await this.#loseSandbox(status, reason)
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
    this.#hold(false)
    this.#forkCheckpointTried = false
    await this.#dropForkCheckpoint(session)
    await this.#ledger.write(async (draft) => draft.end(await store.queuedMessageIds(this.sessionId)))
  }

  async #drive(): Promise<void> {
    const { signal } = this.#stop
    while (!signal.aborted) {
      this.#poked = false
      try {
        if ((await this.#step()) === 'again') continue
        this.#agent.leaveStartSlot()
        await this.#nextPoke()
      } catch (error) {
        this.#agent.leaveStartSlot()
        if (signal.aborted || (await this.#hasEnded())) break
        this.#deps.log.warn({ err: error, sessionId: this.sessionId }, 'a step of a session failed')
        this.#ledger.invalidate()
        await backOff(++this.#failures, this.#deps.timings, signal)
      }
    }
    this.#agent.leaveStartSlot()
    this.#hold(false)
  }

  /** Does the next thing that is to be done; `wait` when only a message or an event of the sandbox can go on. */
  async #step(): Promise<'again' | 'wait'> {
    const progress = await this.#ledger.read()
    const { session } = progress
    if (session.status === 'ended') this.#stop.abort()
    if (session.activity === 'failed' || this.#stop.signal.aborted) return await this.#rest(progress)
    const working = hasWork(progress)
    this.#hold(working)
    if (!progress.sandboxReady) return await this.#boot(progress)
    if (session.forkCheckpointOf !== undefined) await this.#dropForkCheckpoint(session)
    const status = (await findSandbox(this.#deps.sandboxes, this.#orgId, session.sandboxId))?.status ?? 'stopped'
    if (status === 'stopped' || status === 'error') {
      await this.#loseSandbox(status)
      return 'wait'
    }
    if (status === 'hibernated' && !(working && this.#agent.wakeWanted)) {
      await this.#fellAsleep()
      return 'wait'
    }
    if (session.agentProcessId === undefined) {
      if (!working && !this.#agent.restartsIdle) return 'wait'
      return await this.#agent.start(progress)
    }
    return await this.#agent.attach(progress, session.agentProcessId)
  }

  /** Nothing is done until a message comes; a sandbox that is gone by now is noticed. */
  async #rest({ session, sandboxReady }: Progress): Promise<'wait'> {
    this.#hold(false)
    if (sandboxReady && session.status === 'running') {
      const sandbox = await findSandbox(this.#deps.sandboxes, this.#orgId, session.sandboxId)
      const lost = sandbox === undefined || sandbox.status === 'stopped' || sandbox.status === 'error'
      this.#lostSandboxId = lost ? session.sandboxId : undefined
    }
    return 'wait'
  }

  async #boot({ session }: Progress): Promise<'again'> {
    const { sandboxes } = this.#deps
    await this.#orFail('The sandbox could not be started', async () => {
      await bootSandbox(sandboxes, session, this.#stop.signal)
      this.#stop.signal.throwIfAborted()
      if (session.checkpointId !== undefined) await endForeignAgents(sandboxes, session)
      const replaced = await this.#ledger.write((draft) => {
        if (draft.progress.session.sandboxId !== session.sandboxId) return true
        draft.note('sandbox_ready', 'info', 'The sandbox is ready.')
        return false
      })
      if (replaced) await deleteSandbox(sandboxes, session)
    })
    return 'again'
  }

  /** The fork stands on its own; a checkpoint that cannot be removed now is tried again by the next server. */
  async #dropForkCheckpoint(session: Session): Promise<void> {
    if (session.forkCheckpointOf === undefined || this.#forkCheckpointTried) return
    this.#forkCheckpointTried = true
    try {
      await dropForkCheckpoint(this.#deps.sandboxes, session)
      await this.#ledger.write((draft) => draft.set({ checkpointId: undefined, forkCheckpointOf: undefined }))
    } catch (error) {
      this.#deps.log.warn({ err: error, sessionId: this.sessionId }, 'the checkpoint of a fork was left behind')
    }
  }

  async #fellAsleep(): Promise<void> {
    await this.#ledger.write((draft) => {
      if (!draft.progress.hibernated) draft.note('sandbox_hibernated', 'info', 'The sandbox hibernates.')
    })
    this.#agent.detach()
  }

  async #wokeUp(): Promise<void> {
    await this.#ledger.write((draft) => {
      if (draft.progress.hibernated) draft.note('sandbox_resumed', 'info', 'The sandbox runs again.')
    })
  }

  async #loseSandbox(status: 'stopped' | 'error', reason?: string): Promise<void> {
    const { session } = await this.#ledger.read()
    if (this.#lostSandboxId === session.sandboxId || this.#stop.signal.aborted) return
    // At once, so that who else notices it meanwhile does not tell it again.
    this.#lostSandboxId = session.sandboxId
    try {
      this.#agent.detach()
      const sandbox = await findSandbox(this.#deps.sandboxes, this.#orgId, session.sandboxId)
      const code = reason ?? sandbox?.reason ?? 'sandbox_stopped'
      const words = sandbox?.reasonMessage ?? (status === 'stopped' ? 'it was stopped' : `it is in error (${code})`)
      await this.#ledger.write((draft) => {
        if (draft.progress.session.sandboxId !== session.sandboxId) return
        draft.set({ agentProcessId: undefined, agentOffset: 0 })
        draft.fail(code, `The sandbox of the session is lost: ${words}.`)
      })
    } catch (error) {
      // It is not told: the next step does it.
      this.#lostSandboxId = undefined
      this.#poke()
      throw error
    }
  }

  async #orFail(what: string, work: () => Promise<void>): Promise<void> {
    const { sandboxId } = (await this.#ledger.read()).session
    try {
      await work()
    } catch (error) {
      if (this.#stop.signal.aborted || (await this.#hasEnded())) return
      // It was lost on the way, and another one has taken its place.
      if ((await this.#ledger.read()).session.sandboxId !== sandboxId) return
      await this.#fail(error, what)
    }
  }

  async #fail(error: unknown, what: string, code?: string): Promise<void> {
    this.#deps.log.warn({ err: error, sessionId: this.sessionId }, what)
    // Faults of the world are told; others stay in the log.
    const words = isServiceError(error) ? `: ${error.message}` : ''
    const named = code ?? (isServiceError(error) ? error.code : ((await this.#sandboxFault()) ?? 'internal_error'))
    this.#failures = 0
    await this.#ledger.write((draft) => {
      draft.set({ agentProcessId: undefined, agentOffset: 0 })
      draft.fail(named, `${what}${words}.`)
    })
  }

  /** Why the sandbox is in error, when it is: it may have ended while a call was at work on it. */
  async #sandboxFault(): Promise<string | undefined> {
    const { sandboxId } = (await this.#ledger.read()).session
    const sandbox = await findSandbox(this.#deps.sandboxes, this.#orgId, sandboxId)
    return sandbox?.status === 'error' ? sandbox.reason : undefined
  }

  #hold(wanted: boolean): void {
    if (wanted && !this.#stop.signal.aborted) {
      const { sandboxId } = this.#ledger.known?.session ?? {}
      if (sandboxId !== undefined) this.#release ??= this.#deps.sandboxes.previews.hold(sandboxId)
      return
    }
    this.#release?.()
    this.#release = undefined
  }

  /** After what may have left nothing to do. */
  async #restIfDone(): Promise<void> {
    if (!hasWork(await this.#ledger.read())) this.#hold(false)
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

async function deleteSandbox(sandboxes: SandboxService, session: { orgId: string; sandboxId: string }): Promise<void> {
  try {
    await sandboxes.delete(session.orgId, session.sandboxId)
  } catch (error) {
    if (!isServiceError(error, 'not_found')) throw error
  }
}
