import { ServiceError } from '../errors.ts'
import type { EventBus } from '../events/index.ts'
import { defined } from '../lib/defined.ts'
import { newId } from '../lib/id.ts'
import { FairYield } from '../lib/async/fair-yield.ts'
import { Semaphore } from '../lib/async/semaphore.ts'
import type { Log } from '../lib/log.ts'
import { assertName, type SandboxService } from '../sandbox/index.ts'
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
  ForkSessionOptions,
  GetViewOptions,
  ListSessions,
  SessionExport,
  SessionStream,
  SessionView,
  StreamOptions,
  ViewOptions,
} from './api.ts'
import { defaultSessionLimits, defaultSessionTimings, type SessionConfig } from './config.ts'
import { ForkCheckpoints, forkSession } from './fork.ts'
import { Forks } from './fork-at.ts'
import { exportRecords, Searches } from './history.ts'
import { checkText } from './input.ts'
import { archiveForks } from './archive.ts'
import type { CapsuleStore } from './capsule-store.ts'
import { Capsules } from './capsules.ts'
import { Comparisons } from './comparison.ts'
import { Estimates } from './estimate.ts'
import { NewSessions } from './new-sessions.ts'
import { assertOwned, Ownership } from './ownership.ts'
import { assertQueued } from './repository.ts'
import { SessionPoints } from './points.ts'
import { Reconfiguration } from './reconfiguration.ts'
import { Rewinds } from './rewind.ts'
import { RetryQueues } from './shortage.ts'
import type { Session } from './session.ts'
import type { SessionHead, SessionStore } from './store.ts'
import { SessionStreams } from './stream.ts'
import { SessionRunners } from './runners.ts'
import { Timelines } from './timeline.ts'
import { TurnFilesRecorder } from './turn-files.ts'
import { SessionViews } from './views.ts'

export interface SessionDeps {
  store: SessionStore
  capsules: CapsuleStore
  sandboxes: SandboxService
  bus: EventBus
  config: SessionConfig
  /** Signs tokens of sessions; the same after a restart. */
  signingSecret: string
  /** Sessions that an organisation may have at a time. Default: no bound. */
  sessionsMaxOf?: (orgId: string) => number
  /** False for an organisation whose sessions rest. Default: true. */
  isActive?: (orgId: string) => boolean
  log: Log
}

export type SessionService = Omit<
  Sessions,
  | 'start'
  | 'close'
  | 'deleteExpired'
  | 'sweepForkCheckpoints'
  | 'sweepCapsules'
  | 'warn'
  | 'rest'
  | 'takeUp'
  | 'removeAll'
>

/** A class as those see it who do not make it. */
export type Public<Class> = Pick<Class, keyof Class>

const listLimitDefault = 50
/** Sessions that are listed, and then deleted, at once. */
const expiredAtOnceMax = 1000
/** Of an organisation that is removed. */
const removedAtOnce = 100
/** Pages of histories, and of streams that are replayed, that all clients together read in one iteration of the event loop. */
const pagesPerTick = 1
const streamPagesPerTick = 4

/**
 * Agent sessions, strictly on top of the sandbox service. Each call names the organisation that asks; a session that it
 * does not own, or that the given `userId` does not own, is `not_found` (for messages and interrupts: `forbidden`).
 */
export class Sessions {
  readonly rewinds: Public<Rewinds>
  readonly reconfiguration: Public<Reconfiguration>
  readonly forks: Public<Forks>
  readonly timeline: Public<Timelines>
  readonly comparison: Public<Comparisons>
  readonly estimates: Public<Estimates>
  readonly capsules: Omit<Public<Capsules>, 'afterFailedTurn' | 'sweep'>
  readonly #deps: SessionDeps
  readonly #limits
  readonly #timings
  readonly #runners: SessionRunners
  readonly #tokens: AccessTokens
  readonly #closing = new AbortController()
  readonly #pages = new FairYield(pagesPerTick)
  readonly #streams: SessionStreams
  readonly #views: SessionViews
  readonly #searches = new Searches()
  readonly #newSessions: NewSessions
  readonly #forkCheckpoints: ForkCheckpoints
  readonly #ownership: Ownership
  readonly #points: SessionPoints
  readonly #turnFiles: TurnFilesRecorder
  readonly #capsules: Capsules

  constructor(deps: SessionDeps) {
    this.#deps = deps
    this.#ownership = new Ownership(deps.store)
    this.#newSessions = new NewSessions(deps)
    this.#tokens = new AccessTokens(deps.signingSecret)
    this.#limits = { ...defaultSessionLimits, ...deps.config.limits }
    this.#timings = { ...defaultSessionTimings, ...deps.config.timings }
    const [limits, timings] = [this.#limits, this.#timings]
    const streamPages = new FairYield(streamPagesPerTick)
    this.#streams = new SessionStreams({ ...deps, pollMs: timings.streamPollMs, pages: streamPages })
    this.#views = new SessionViews({ ...deps, pages: this.#pages }, limits.historyBytesMax)
    // One organisation leaves a permit to the others.
    const permits = limits.agentStartsAtOnce
    const starts = new Semaphore({ permits, permitsPerKey: Math.max(1, permits - 1) })
    const queues = new RetryQueues(limits, timings.shortageAttemptMs)
    const points = new SessionPoints(deps, limits.turnCheckpointsMax)
    this.#points = points
    this.#turnFiles = new TurnFilesRecorder({ ...deps, signal: this.#closing.signal })
    const ofRunners = {
      ...deps,
      limits,
      timings,
      starts,
      queues,
      points,
      pages: this.#pages,
      onTurnSaved: (session: Session, turnId: string) => this.#turnFiles.note(session, turnId),
      onTurnFailed: (session: Session, turnId: string) => this.#capsules.afterFailedTurn(session, turnId),
      archiveForks: (session: Session, adoptedId: string) => archiveForks(context, session, adoptedId),
    }
    this.#runners = new SessionRunners(ofRunners, this.#closing.signal)
    this.#forkCheckpoints = new ForkCheckpoints(deps)
    const context = {
      ...deps,
      points,
      ownership: this.#ownership,
      withRoom: this.#newSessions.withRoom,
      assertNameFree: this.#newSessions.assertNameFree,
      runners: this.#runners,
      assertOpen: () => this.#assertOpen(),
    }
    this.rewinds = new Rewinds(context)
    this.reconfiguration = new Reconfiguration(context)
    this.forks = new Forks({
      ...context,
      limits,
      views: this.#views,
      pages: this.#pages,
      findMade: (orgId, id, options) => this.#drivenOn(orgId, id, options),
    })
    this.timeline = new Timelines(context)
    this.comparison = new Comparisons(context)
    this.estimates = new Estimates(context)
    this.#capsules = new Capsules({
      ...context,
      pages: this.#pages,
      findMade: (orgId, options) => this.#findMade(orgId, options),
      view: (orgId, sessionId, options) => this.get(orgId, sessionId, undefined, options),
    })
    this.capsules = this.#capsules
  }

  /** Takes up every running session where the server before left it. Call once, when sandboxes are reconciled. */
  async start(): Promise<void> {
    for (const session of await this.#deps.store.sessionsIn('running')) this.#runners.start(session)
  }

  /** Detaches from every agent and ends every stream; agents run on. */
  async close(): Promise<void> {
    this.#closing.abort()
    this.#streams.close()
    await this.#runners.close()
    await this.#turnFiles.close()
  }

  /** Detaches from the agents of an organisation, whose sandboxes are to hibernate. `isActive` keeps its sessions at rest until `takeUp`. */
  async rest(orgId: string): Promise<void> {
    await this.#runners.leave(orgId)
  }

  /** Takes up the running sessions of an organisation, where `rest` or an earlier server left them. */
  async takeUp(orgId: string): Promise<void> {
    const running = await this.#deps.store.sessionsIn('running')
    for (const session of running) if (session.orgId === orgId) this.#runners.start(session)
  }

  /** Ends all sessions of an organisation, and deletes them with their history and their sandboxes. */
  async removeAll(orgId: string): Promise<void> {
    const { store } = this.#deps
    const { historyBytesMax } = this.#limits
    for (;;) {
      const { items } = await store.listSessions({ orgId, limit: removedAtOnce, historyBytesMax })
      if (items.length === 0) return
      const running = items.filter(({ status }) => status === 'running')
      await Promise.all(running.map((session) => this.#runners.end(session)))
      await store.deleteSessions(items.map(({ id }) => id))
    }
  }

  /** Deletes sessions that ended before, with their history. */
  async deleteExpired(endedBefore: Date, signal: AbortSignal): Promise<void> {
    const { store } = this.#deps
    // A session is listed until it is deleted, so the next call completes one that was cut off.
    for (;;) {
      const ids = await store.expiredSessions(endedBefore, expiredAtOnceMax)
      if (ids.length === 0 || signal.aborted) return
      await store.deleteSessions(ids)
    }
  }

  /** Removes the checkpoints of forks that no fork has any use of, and those of turns that no session names. */
  async sweepForkCheckpoints(): Promise<void> {
    await this.#forkCheckpoints.sweep()
    await this.#points.sweep()
  }

  /** Deletes capsules that are over. */
  async sweepCapsules(signal: AbortSignal): Promise<void> {
    await this.#capsules.sweep(signal)
  }

  /** Returns before the sandbox has booted; ids are allocated already. Throws what its volumes would make a sandbox throw now. */
  async create(orgId: string, input: CreateSession, options?: CreateViewOptions): Promise<SessionView> {
    const made = await this.#findMade(orgId, options)
    if (made) return made
    this.#assertOpen()
    const { session, message, event } = await this.#newSessions.make(orgId, input, options?.creation)
    this.#runners.start(session)
    return this.#views.make(session, [message], [event])
  }

  async get(orgId: string, sessionId: string, userId?: string, options?: GetViewOptions): Promise<SessionView> {
    const session = assertOwned(await this.#deps.store.session(sessionId, orgId), sessionId, userId)
    return await this.#views.load(orgId, session, options)
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
    return { items: await this.#views.loadAll(orgId, items, options), ...defined({ nextCursor }) }
  }

  /** Kills the sandbox and ends the session. Repeating it is harmless. */
  async delete(orgId: string, sessionId: string, userId?: string): Promise<void> {
    const session = await this.#ownership.owned(orgId, sessionId, userId)
    if (session.status === 'ended') return
    this.#assertOpen()
    await this.#runners.end(session)
  }

  /** Queues a message for the agent. Throws `forbidden` for another user, `conflict` when the session has ended. */
  async sendMessage(
    orgId: string,
    sessionId: string,
    input: { message: string; userId: string },
    options?: CreateViewOptions,
  ): Promise<SessionView> {
    const made = await this.#findMade(orgId, options, sessionId)
    if (made) return made
    const session = await this.#ownership.steerable(orgId, sessionId, input.userId)
    checkText(input.message, 'message', this.#limits)
    this.#assertOpen()
    await this.#runners.of(session).enqueue(input.message, options?.creation)
    return await this.get(orgId, sessionId, undefined, options)
  }

  /**
   * Ends the current turn with a `result` of subtype `interrupted`, within a second whatever the agent does; without a turn
   * it does nothing.
   */
  async interrupt(orgId: string, sessionId: string, userId: string): Promise<void> {
    const session = await this.#ownership.owner(orgId, sessionId, userId)
    if (session.status === 'ended') return
    this.#assertOpen()
    await this.#runners.of(session).interrupt()
  }

  /** Adds an `error` that is not fatal to the stream of a running session; others are ignored. The code is one of docs/use/sessions.md. */
  async warn(sessionId: string, code: string, message: string): Promise<void> {
    const session = await this.#deps.store.head(sessionId)
    if (session?.status !== 'running' || this.#closing.signal.aborted) return
    await this.#runners.of(session).warn(code, message)
  }

  /**
   * Takes a message back before its turn. Throws `not_found` for an unknown one, and `conflict` for one that is not `queued`,
   * a cancelled one included.
   */
  async cancelMessage(
    orgId: string,
    sessionId: string,
    messageId: string,
    userId?: string,
    options?: ViewOptions,
  ): Promise<SessionView> {
    const session = await this.#ownership.owned(orgId, sessionId, userId)
    await assertQueued(this.#deps.store, sessionId, messageId)
    this.#assertOpen()
    await this.#runners.of(session).cancelMessage(messageId)
    return await this.get(orgId, sessionId, undefined, options)
  }

  /** The id of the session that has this name. Throws `not_found`. */
  async idNamed(orgId: string, name: string): Promise<string> {
    const id = await this.#deps.store.sessionNamed(name, orgId)
    if (id === undefined) throw new ServiceError('not_found', `no session is named ${name}`)
    return id
  }

  /**
   * A new session with conversation and files of this moment. Throws `forbidden` for another user, `conflict` unless the session
   * is idle and its sandbox writes no volume, and what a checkpoint of its sandbox throws.
   */
  async fork(
    orgId: string,
    sessionId: string,
    userId: string,
    { name, ...options }: ForkSessionOptions = {},
  ): Promise<SessionView> {
    const made = await this.#findMade(orgId, options)
    if (made) return made
    const session = await this.#ownership.steerable(orgId, sessionId, userId)
    this.#assertOpen()
    if (name !== undefined) assertName(name)
    await this.#newSessions.assertNameFree(orgId, name)
    const { store } = this.#deps
    const [forkCheckpoints, pages] = [this.#forkCheckpoints, this.#pages]
    const withRoom = (record: () => Promise<void>) => this.#newSessions.withRoom(orgId, record)
    const fork = await this.#runners
      .of(session)
      .whileIdle((source) =>
        forkSession({ store, forkCheckpoints, pages, withRoom }, source, defined({ name, creation: options.creation })),
      )
    this.#runners.start(fork)
    return await this.get(orgId, fork.id, undefined, options)
  }

  /**
   * Gives a session whose sandbox was lost another one, from the checkpoint or bare; messages that wait go on in it. Throws
   * `forbidden` for another user, `conflict` while the sandbox is there or when the session has ended.
   */
  async restart(
    orgId: string,
    sessionId: string,
    { userId, checkpointId }: { userId: string; checkpointId?: string },
    options?: CreateViewOptions,
  ): Promise<SessionView> {
    const made = await this.#findMade(orgId, options, sessionId)
    if (made) return made
    const session = await this.#ownership.steerable(orgId, sessionId, userId)
    if (checkpointId !== undefined) await this.#newSessions.assertCheckpoint(orgId, checkpointId)
    this.#assertOpen()
    const sandboxId = newId('sb-')
    await this.#runners.restart(session, sandboxId, checkpointId, options?.creation)
    return await this.get(orgId, sessionId, undefined, options)
  }

  /**
   * A token for this session alone, for clients that must not have the API key. Throws `forbidden` for another user, `conflict`
   * when the session has ended.
   */
  async createToken(orgId: string, sessionId: string, input: CreateToken): Promise<AccessToken> {
    await this.#ownership.steerable(orgId, sessionId, input.userId)
    return this.#tokens.issue(sessionId, input.scope, input.ttlSeconds ?? accessTtlSecondsDefault)
  }

  /** Whose session the token opens. Throws as `AccessTokens.check`. */
  async access(token: string, sessionId: string, use: AccessUse): Promise<SessionAccess> {
    return await this.#tokens.check(token, sessionId, use, (id) => this.#deps.store.head(id))
  }

  /**
   * Opens the event stream after a sequence number. Throws `not_found`. Iteration yields every event once, in order,
   * stored ones first, and ends after the session has ended and all was yielded, or when `signal` aborts.
   */
  async stream(orgId: string, sessionId: string, options: StreamOptions): Promise<SessionStream> {
    const { status, lastSequence: last } = await this.#findFollowed(orgId, sessionId, options)
    // A client may name a number that the stream has yet to reach; it must not miss the events up to there.
    const after = Math.min(options.after, last)
    const exhausted = status === 'ended' && after === last
    const signal = AbortSignal.any([options.signal, this.#closing.signal])
    const follow = options.drafts ? 'followWithDrafts' : 'follow'
    return { after, exhausted, [Symbol.asyncIterator]: () => this.#streams[follow](sessionId, after, signal) }
  }

  /** All of a session. Throws `not_found`. */
  async export(orgId: string, sessionId: string, userId?: string): Promise<SessionExport> {
    const session = assertOwned(await this.#deps.store.session(sessionId, orgId), sessionId, userId)
    return { view: this.#views.make(session, [], []), records: exportRecords(this.#deps.store, this.#pages, sessionId) }
  }

  /**
   * The session that an earlier run of the request has made or changed, as it is now. Drives it on: the commit of that run may have
   * looked like a failure, so that no runner knows of it.
   */
  async #findMade(
    orgId: string,
    options: CreateViewOptions = {},
    sessionId?: string,
  ): Promise<SessionView | undefined> {
    const [madeId] = options.creation?.made ?? []
    return madeId === undefined ? undefined : await this.#drivenOn(orgId, sessionId ?? madeId, options)
  }

  async #drivenOn(orgId: string, sessionId: string, options: ViewOptions): Promise<SessionView> {
    const view = await this.get(orgId, sessionId, undefined, options)
    if (view.session.status === 'running' && !this.#closing.signal.aborted) {
      await this.#runners.of(view.session).continue()
    }
    return view
  }

  /** Reads nothing for a session that others follow: hundreds connect again at once when a server or a proxy restarts. */
  async #findFollowed(orgId: string, sessionId: string, { after, userId }: StreamOptions): Promise<SessionHead> {
    const head = await this.#streams.head(sessionId)
    const isKnown = head !== undefined && head.orgId === orgId && after <= head.lastSequence
    return isKnown ? assertOwned(head, sessionId, userId) : await this.#ownership.owned(orgId, sessionId, userId)
  }

  #assertOpen(): void {
    if (this.#closing.signal.aborted) throw new ServiceError('unavailable', 'the server is shutting down')
  }
}
