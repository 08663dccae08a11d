import { ServiceError } from '../errors.ts'
import type { EventBus } from '../events/index.ts'
import { defined } from '../lib/defined.ts'
import { newId } from '../lib/id.ts'
import { FairYield } from '../lib/async/fair-yield.ts'
import { Semaphore } from '../lib/async/semaphore.ts'
import type { Log } from '../lib/log.ts'
import type { SandboxService } from '../sandbox/index.ts'
import {
  type AccessToken,
  AccessTokens,
  accessTtlSecondsDefault,
  type AccessUse,
  type SessionAccess,
} from './access-token.ts'
import type {
  CreateSession,
  CreateToken,
  CreateViewOptions,
  ListSessions,
  SessionExport,
  SessionService,
  SessionStream,
  SessionView,
  StreamOptions,
  ViewOptions,
} from './api.ts'
import { defaultSessionLimits, defaultSessionTimings, previewPort, type SessionConfig } from './config.ts'
import { unusedTokenHash } from './boot.ts'
import { ForkCheckpoints, forkSession } from './fork.ts'
import { exportRecords, readHistories, readHistory, Searches, ViewMemory } from './history.ts'
import { withTimeout } from '../lib/async/timeout.ts'
import { checkCreate, checkText } from './input.ts'
import { hasEnded } from './reducer.ts'
import { assertQueued } from './repository.ts'
import { RetryQueues } from './shortage.ts'
import {
  type Message,
  type Session,
  type SessionEvent,
  sessionCostUsd,
  startedEvent,
  unusedCounters,
} from './session.ts'
import type { SessionHead, SessionReference, SessionStore } from './store.ts'
import { SessionStreams } from './stream.ts'
import { SessionRunner } from './runner.ts'

export interface SessionDeps {
  store: SessionStore
  sandboxes: SandboxService
  bus: EventBus
  config: SessionConfig
  /** Signs tokens of sessions; the same after a restart. */
  signingSecret: string
  log: Log
}

export interface RunningSessionService extends SessionService {
  /** Deletes sessions that ended before, with their history. */
  deleteExpired(endedBefore: Date, signal: AbortSignal): Promise<void>
  /** Removes the checkpoints of forks that no fork has any use of. */
  sweepForkCheckpoints(): Promise<void>
  /** Takes up every running session where the server before left it. Call once, when sandboxes are reconciled. */
  start(): Promise<void>
  /** Adds an `error` that is not fatal to the stream of a running session; others are ignored. The code is one of docs/use/sessions.md. */
  warn(sessionId: string, code: string, message: string): Promise<void>
  /** Detaches from every agent and ends every stream; agents run on. */
  close(): Promise<void>
}

const listLimitDefault = 50
/** Sessions that are listed, and then deleted, at once. */
const expiredAtOnceMax = 1000
/** Pages of histories, and of streams that are replayed, which all clients together read between two looks at what else there is to do. */
const pagesPerTick = 1
const streamPagesPerTick = 4
/** How long a creation waits to hear that its checkpoint does not exist. */
const checkpointCheckMs = 50

export function createSessionService(deps: SessionDeps): RunningSessionService {
  return new Sessions(deps)
}

/** Authorises requests, and keeps a runner for each session that has work. */
class Sessions implements RunningSessionService {
  readonly #deps: SessionDeps
  readonly #limits
  readonly #timings
  readonly #runners = new Map<string, SessionRunner>()
  /** Sandbox → session, for what the bus tells. */
  readonly #bySandbox = new Map<string, SessionReference>()
  readonly #tokens: AccessTokens
  readonly #closing = new AbortController()
  readonly #pages = new FairYield(pagesPerTick)
  readonly #streams: SessionStreams
  readonly #viewMemory: ViewMemory
  readonly #searches = new Searches()
  readonly #starts: Semaphore
  readonly #queues: RetryQueues
  readonly #forkCheckpoints: ForkCheckpoints
  readonly #unsubscribe: () => void

  constructor(deps: SessionDeps) {
    this.#deps = deps
    this.#tokens = new AccessTokens(deps.signingSecret)
    this.#limits = { ...defaultSessionLimits, ...deps.config.limits }
    this.#timings = { ...defaultSessionTimings, ...deps.config.timings }
    const { store, bus } = deps
    this.#streams = new SessionStreams({
      store,
      bus,
      pollMs: this.#timings.streamPollMs,
      pages: new FairYield(streamPagesPerTick),
    })
    this.#viewMemory = new ViewMemory(store, this.#limits.historyBytesMax)
    // One organisation leaves a place to the others.
    const permits = this.#limits.agentStartsAtOnce
    this.#starts = new Semaphore({ permits, permitsPerKey: Math.max(1, permits - 1) })
    this.#queues = new RetryQueues(this.#limits, this.#timings.shortageAttemptMs)
    this.#forkCheckpoints = new ForkCheckpoints(deps)
    this.#unsubscribe = deps.bus.subscribe('*', (event) => {
      if (event.type === 'sandbox_changed') void this.#sandboxChanged(event.sandboxId, event.status, event.reason)
    })
  }

  async start(): Promise<void> {
    for (const place of await this.#deps.store.sessionsIn('running')) this.#runner(place).start()
  }

  async close(): Promise<void> {
    this.#closing.abort()
    this.#unsubscribe()
    await Promise.all([...this.#runners.values()].map((runner) => runner.close()))
    this.#runners.clear()
    this.#bySandbox.clear()
  }

  async deleteExpired(endedBefore: Date, signal: AbortSignal): Promise<void> {
    const { store } = this.#deps
    // A session is listed until it is deleted, so the next call completes one that was cut off.
    for (;;) {
      const ids = await store.expiredSessions(endedBefore, expiredAtOnceMax)
      if (ids.length === 0 || signal.aborted) return
      await store.deleteSessions(ids)
    }
  }

  async sweepForkCheckpoints(): Promise<void> {
    await this.#forkCheckpoints.sweep()
  }

  async create(orgId: string, input: CreateSession, options?: CreateViewOptions): Promise<SessionView> {
    const made = await this.#made(orgId, options)
    if (made) return made
    this.#assertOpen()
    const checked = checkCreate(input, this.#deps.config)
    const { title } = checked
    const volumes = input.volumes?.length ? input.volumes : undefined
    if (volumes !== undefined) await this.#deps.sandboxes.assertVolumes(orgId, volumes)
    const agentConfig = { ...checked.agentConfig, ...defined({ volumes: input.volumes }) }
    if (input.checkpointId !== undefined) await this.#assertCheckpoint(orgId, input.checkpointId)
    const now = new Date()
    const { userId, userEmail, userName, checkpointId } = input
    const session: Session = {
      id: newId('session_'),
      orgId,
      userId,
      ...defined({ userEmail, userName, checkpointId }),
      status: 'running',
      activity: 'starting',
      sandboxId: checkpointId === undefined ? await this.#deps.sandboxes.newId(defined({ volumes })) : newId('sb-'),
      title,
      framework: '',
      artifacts: [],
      agentConfig,
      gatewayTokenHash: unusedTokenHash(),
      ...unusedCounters,
      createdAt: now,
      updatedAt: now,
    }
    const message: Message = {
      id: newId('msg_'),
      role: 'user',
      content: input.prompt,
      state: 'queued',
      createdAt: now,
    }
    const event = startedEvent('The session has started.', now)
    await this.#deps.store.createSession(session, [message], event, { creation: options?.creation })
    if (!this.#closing.signal.aborted) this.#runner(session).start()
    return this.#view(session, [message], [event])
  }

  async get(orgId: string, sessionId: string, userId?: string, options?: ViewOptions): Promise<SessionView> {
    const session = assertOwned(await this.#deps.store.session(sessionId, orgId), sessionId, userId)
    return await this.#viewMemory.hold(orgId, [session], options, () => this.#loadView(session))
  }

  async list(
    orgId: string,
    query: ListSessions,
    options?: ViewOptions,
  ): Promise<{ items: SessionView[]; nextCursor?: string }> {
    const { historyBytesMax } = this.#limits
    const { search, ...page } = { limit: listLimitDefault, ...query, orgId, historyBytesMax }
    const { store } = this.#deps
    const { items, nextCursor } =
      search === undefined
        ? await store.listSessions(page)
        : await this.#searches.run(orgId, () => store.listSessions({ ...page, search }))
    const views = await this.#viewMemory.hold(orgId, items, options, async () => {
      const ids = items.map(({ id }) => id)
      const histories = await readHistories(store, this.#pages, ids)
      return items.map((session, index) => {
        const { messages = [], events = [] } = histories[index] ?? {}
        return this.#view(session, messages, events)
      })
    })
    return { items: views, ...defined({ nextCursor }) }
  }

  async delete(orgId: string, sessionId: string, userId?: string): Promise<void> {
    const session = await this.#owned(orgId, sessionId, userId)
    if (session.status === 'ended') return
    this.#assertOpen()
    const runner = this.#runner(session)
    try {
      await runner.end()
    } catch (error) {
      // It has stopped driving the session, which is not over: another one goes on.
      if (this.#runners.get(sessionId) === runner) this.#runners.delete(sessionId)
      if (!this.#closing.signal.aborted) this.#runner(session).start()
      throw error
    }
    if (this.#runners.get(sessionId) === runner) this.#runners.delete(sessionId)
    for (const [sandboxId, { id }] of this.#bySandbox) if (id === sessionId) this.#bySandbox.delete(sandboxId)
  }

  async sendMessage(
    orgId: string,
    sessionId: string,
    input: { message: string; userId: string },
    options?: CreateViewOptions,
  ): Promise<SessionView> {
    const made = await this.#made(orgId, options, sessionId)
    if (made) return made
    const session = await this.#steerable(orgId, sessionId, input.userId)
    checkText(input.message, 'message', this.#limits)
    this.#assertOpen()
    await this.#runner(session).enqueue(input.message, options?.creation)
    return await this.get(orgId, sessionId, undefined, options)
  }

  async interrupt(orgId: string, sessionId: string, userId: string): Promise<void> {
    const session = await this.#steered(orgId, sessionId, userId)
    if (session.status === 'ended') return
    this.#assertOpen()
    await this.#runner(session).interrupt()
  }

  async warn(sessionId: string, code: string, message: string): Promise<void> {
    const session = await this.#deps.store.head(sessionId)
    if (session?.status !== 'running' || this.#closing.signal.aborted) return
    await this.#runner(session).warn(code, message)
  }

  async cancelMessage(
    orgId: string,
    sessionId: string,
    messageId: string,
    userId?: string,
    options?: ViewOptions,
  ): Promise<SessionView> {
    const session = await this.#owned(orgId, sessionId, userId)
    await assertQueued(this.#deps.store, sessionId, messageId)
    this.#assertOpen()
    await this.#runner(session).cancelMessage(messageId)
    return await this.get(orgId, sessionId, undefined, options)
  }

  async fork(orgId: string, sessionId: string, userId: string, options?: CreateViewOptions): Promise<SessionView> {
    const made = await this.#made(orgId, options)
    if (made) return made
    const session = await this.#steerable(orgId, sessionId, userId)
    this.#assertOpen()
    const { store } = this.#deps
    const [forkCheckpoints, pages] = [this.#forkCheckpoints, this.#pages]
    const fork = await this.#runner(session).whileIdle((source) =>
      forkSession({ store, forkCheckpoints, pages }, source, options?.creation),
    )
    if (!this.#closing.signal.aborted) this.#runner(fork).start()
    return await this.get(orgId, fork.id, undefined, options)
  }

  async restart(
    orgId: string,
    sessionId: string,
    { userId, checkpointId }: { userId: string; checkpointId?: string },
    options?: CreateViewOptions,
  ): Promise<SessionView> {
    const made = await this.#made(orgId, options, sessionId)
    if (made) return made
    const session = await this.#steerable(orgId, sessionId, userId)
    if (checkpointId !== undefined) await this.#assertCheckpoint(orgId, checkpointId)
    this.#assertOpen()
    const sandboxId = newId('sb-')
    this.#bySandbox.set(sandboxId, { ...session, sandboxId })
    try {
      await this.#runner(session).restart(sandboxId, checkpointId, options?.creation)
    } catch (error) {
      this.#bySandbox.delete(sandboxId)
      throw error
    }
    this.#bySandbox.delete(session.sandboxId)
    return await this.get(orgId, sessionId, undefined, options)
  }

  async createToken(orgId: string, sessionId: string, input: CreateToken): Promise<AccessToken> {
    await this.#steerable(orgId, sessionId, input.userId)
    return this.#tokens.issue(sessionId, input.scope, input.ttlSeconds ?? accessTtlSecondsDefault)
  }

  async access(token: string, sessionId: string, use: AccessUse): Promise<SessionAccess> {
    return await this.#tokens.check(token, sessionId, use, (id) => this.#deps.store.head(id))
  }

  async stream(orgId: string, sessionId: string, options: StreamOptions): Promise<SessionStream> {
    const { status, lastSequence: last } = await this.#followable(orgId, sessionId, options)
    // A number beyond the newest event is a place that the stream has yet to reach, with events that nobody has seen.
    const after = Math.min(options.after, last)
    const exhausted = status === 'ended' && after === last
    const signal = AbortSignal.any([options.signal, this.#closing.signal])
    return { exhausted, [Symbol.asyncIterator]: () => this.#streams.follow(sessionId, after, signal) }
  }

  async export(orgId: string, sessionId: string, userId?: string): Promise<SessionExport> {
    const session = assertOwned(await this.#deps.store.session(sessionId, orgId), sessionId, userId)
    return { view: this.#view(session, [], []), records: exportRecords(this.#deps.store, this.#pages, sessionId) }
  }

  /**
   * The session that an earlier run of the request has made or changed, as it is now. Its runner may not know of it: what that run
   * committed may have looked like a failure.
   */
  async #made(orgId: string, options: CreateViewOptions = {}, sessionId?: string): Promise<SessionView | undefined> {
    const [madeId] = options.creation?.made ?? []
    if (madeId === undefined) return undefined
    const view = await this.get(orgId, sessionId ?? madeId, undefined, options)
    if (view.session.status === 'running' && !this.#closing.signal.aborted) {
      this.#bySandbox.set(view.session.sandboxId, view.session)
      await this.#runner(view.session).goOn()
    }
    return view
  }

  #runner(session: SessionReference): SessionRunner {
    this.#bySandbox.set(session.sandboxId, session)
    const existing = this.#runners.get(session.id)
    if (existing) return existing
    const [limits, timings] = [this.#limits, this.#timings]
    const shared = { starts: this.#starts, queues: this.#queues }
    const runner = new SessionRunner({ ...this.#deps, ...shared, limits, timings }, session, () => {
      if (this.#runners.get(session.id) === runner) this.#runners.delete(session.id)
    })
    this.#runners.set(session.id, runner)
    return runner
  }

  async #sandboxChanged(sandboxId: string, status: string, reason?: string): Promise<void> {
    const session = this.#bySandbox.get(sandboxId)
    if (!session) return
    try {
      await this.#runner(session).sandboxChanged(sandboxId, status, reason)
    } catch (error) {
      // The next step inspects the sandbox again.
      this.#deps.log.warn({ err: error, sandboxId }, 'a change of a sandbox was not recorded in its session')
    }
  }

  async #owned(orgId: string, sessionId: string, userId?: string): Promise<SessionHead> {
    return assertOwned(await this.#deps.store.head(sessionId, orgId), sessionId, userId)
  }

  /** Of a session that others follow it reads nothing: hundreds connect again at once when a server or a proxy restarts. */
  async #followable(orgId: string, sessionId: string, { after, userId }: StreamOptions): Promise<SessionHead> {
    const head = await this.#streams.head(sessionId)
    const isKnown = head !== undefined && head.orgId === orgId && after <= head.lastSequence
    return isKnown ? assertOwned(head, sessionId, userId) : await this.#owned(orgId, sessionId, userId)
  }

  /** For what only the owner may do, and only while the session runs. */
  async #steerable(orgId: string, sessionId: string, userId: string): Promise<SessionHead> {
    const session = await this.#steered(orgId, sessionId, userId)
    if (session.status === 'ended') throw hasEnded()
    return session
  }

  async #steered(orgId: string, sessionId: string, userId: string): Promise<SessionHead> {
    const session = await this.#owned(orgId, sessionId)
    if (session.userId === userId) return session
    throw new ServiceError('forbidden', 'user_id is not the owner of the session', { details: { field: 'user_id' } })
  }

  /** Throws `not_found` for a checkpoint that does not exist and `conflict` for one that failed; waits for none. */
  async #assertCheckpoint(orgId: string, checkpointId: string): Promise<void> {
    // Whoever starts from it hears of a later failure.
    const settled = this.#deps.sandboxes.checkpoints.usable(orgId, checkpointId)
    const checkpoint = await withTimeout(checkpointCheckMs, settled)
    if (checkpoint?.status === 'failed') throw new ServiceError('conflict', `checkpoint ${checkpointId} has failed`)
  }

  #assertOpen(): void {
    if (this.#closing.signal.aborted) throw new ServiceError('unavailable', 'the server is shutting down')
  }

  async #loadView(session: Session): Promise<SessionView> {
    const { messages, events } = await readHistory(this.#deps.store, this.#pages, session.id)
    return this.#view(session, messages, events)
  }

  #view(session: Session, messages: Message[], events: SessionEvent[]): SessionView {
    const hostname = this.#deps.sandboxes.previews.hostname(session.sandboxId, previewPort)
    const { prices, previewUrl } = this.#deps.config
    const costUsd = sessionCostUsd(session, prices?.get(session.agentConfig.model))
    return {
      session,
      messages,
      events,
      previewUrl: previewUrl(hostname),
      ...defined({ costUsd }),
    }
  }
}

function assertOwned<Known extends { userId: string }>(
  session: Known | undefined,
  sessionId: string,
  userId: string | undefined,
): Known {
  if (session && (userId === undefined || session.userId === userId)) return session
  throw new ServiceError('not_found', `no session ${sessionId}`)
}
