import { isWithin } from '../../src/lib/key-reach.ts'
import { EventEmitter, on } from 'node:events'
import { ServiceError } from '../../src/errors.ts'
import type { CreateOptions } from '../../src/lib/creation.ts'
import { newId } from '../../src/lib/id.ts'
import { fakeCapsules } from './fake-capsules.ts'
import { AccessTokens, unusedCounters } from '../../src/session/index.ts'
import type {
  AccessUse,
  CompareSession,
  CreateSession,
  CreateToken,
  ExportRecord,
  ForkResult,
  ForkSessionOptions,
  ListSessions,
  Session,
  SessionService,
  SessionStream,
  SessionView,
  StreamEvent,
  StreamOptions,
} from '../../src/session/index.ts'

interface Kept extends SessionView {
  stream: StreamEvent[]
  changed: EventEmitter
  yielded: number
}

/** Sessions in memory whose agent is the test: it says what is on the stream. */
export class FakeSessions implements SessionService {
  readonly #tokens = new AccessTokens('secret')
  readonly kept = new Map<string, Kept>()
  /** What requests under an `Idempotency-Key` have made. */
  readonly #byClaim = new Map<string, SessionView>()
  /** What `create` was last called with. */
  lastCreate: CreateSession | undefined
  /** Streams that are being read. */
  reading = 0

  /** What the calls of time travel were last asked for. */
  readonly asked: Record<string, unknown> = {}

  readonly capsules = fakeCapsules(this)

  readonly rewinds: SessionService['rewinds'] = {
    rewind: async (orgId, sessionId, request) => {
      await this.interrupt(orgId, sessionId, request.userId)
      this.asked['rewind'] = request
      return { restoredPrompt: 'again', undoCheckpointId: 'cp-undo', processes: 'restored' }
    },
    preview: async (orgId, sessionId, request) => {
      await this.interrupt(orgId, sessionId, request.userId)
      this.asked['preview'] = request
      const counts = { turnsLeft: ['msg_2'], tokensLeft: 7, queuedMessages: 1, interrupts: false }
      return { checkpointId: 'cp-1', toEvent: 3, ...counts, processes: 'restored', processesEnded: ['node server.js'] }
    },
    adopt: async (orgId, sessionId, request) => {
      await this.interrupt(orgId, sessionId, request.userId)
      this.asked['adopt'] = request
      return { undoCheckpointId: 'cp-undo', processes: 'restored' }
    },
  }

  readonly #forksByClaim = new Map<string, ForkResult[]>()

  readonly forks: SessionService['forks'] = {
    make: async (orgId, sessionId, request, options) => {
      const creation = options?.creation
      const before = creation && this.#forksByClaim.get(creation.claim.seed)
      if (before !== undefined) return before
      this.asked['fork'] = request
      const { userId } = request
      const count = request.count ?? request.variants?.length ?? 1
      const place = { atEvent: 5, afterEvent: 3, isExact: false, checkpointId: 'cp-1', messageId: 'msg_1' }
      const made = await Promise.all(Array.from({ length: count }, () => this.fork(orgId, sessionId, userId)))
      const results = made.map((view, index) =>
        index === 2 ? { error: new ServiceError('quota_exceeded', 'no more sessions') } : { view, place },
      )
      if (creation) this.#forksByClaim.set(creation.claim.seed, results)
      return results
    },
  }

  readonly reconfiguration: SessionService['reconfiguration'] = {
    change: async (orgId, sessionId, userId, change) => {
      await this.interrupt(orgId, sessionId, userId)
      this.asked['change'] = change
    },
  }

  readonly timeline: SessionService['timeline'] = {
    page: async (orgId, sessionId, query) => {
      const { session, messages } = this.#find(orgId, sessionId, query.userId)
      this.asked['timeline'] = query
      const [message] = messages
      if (query.cursor !== undefined && query.cursor !== message?.id)
        throw new ServiceError('invalid_request', 'cursor is not one that this list answered with')
      if (message === undefined || query.cursor !== undefined) return { turns: [] }
      const { id: messageId, content, createdAt } = message
      const fork = {
        id: 'session_fork',
        userId: session.userId,
        status: 'running',
        activity: 'paused',
        createdAt,
      } as const
      const turn = { messageId, firstEvent: 1, startedAt: createdAt, usageBefore: unusedCounters }
      const usage = { inputTokens: 5, cacheReadTokens: 0, cacheWriteTokens: 0, outputTokens: 2 }
      const shown = { turn, message: content, usage, forks: [fork], isForksCut: false }
      return { turns: [shown], nextCursor: messageId, undoCheckpointId: 'cp-undo' }
    },
  }

  /** What a comparison throws, and the parts of its patch. */
  comparisonError: ServiceError | undefined
  patch: AsyncIterable<Uint8Array> | Iterable<Uint8Array> = [Buffer.from('diff --git a/a b/a\n')]

  readonly comparison: SessionService['comparison'] = {
    compare: async (orgId, sessionId, input) => {
      const { previewUrl } = this.#find(orgId, sessionId, input.userId)
      this.asked['compare'] = input
      if (this.comparisonError !== undefined) throw this.comparisonError
      const usage = { inputTokens: 5, cacheReadTokens: 0, cacheWriteTokens: 0, outputTokens: 2, costUsd: 0.5 }
      const file = { path: 'a', change: 'added', isBinary: false, addedLines: 1, removedLines: 0 } as const
      return {
        ...{ files: [file], addedLines: 1, removedLines: 0, isCut: false, folder: '/workspace/app' },
        against: { type: 'session', id: input.against },
        own: { usage, durationMs: 8, preview: 'ready', previewUrl },
        ...(input.against.startsWith('cp-') ? {} : { other: { usage } }),
      }
    },
    patch: (orgId, sessionId, input) => this.#patch(orgId, sessionId, input),
  }

  readonly estimates: SessionService['estimates'] = {
    forks: async (orgId, sessionId, { userId, count }) => {
      this.#find(orgId, sessionId, userId)
      this.asked['estimate'] = { userId, count }
      return { fork: count, memoryBytes: { max: 1024 }, turns: 1, costPerTurnUsd: 0.5 }
    },
  }

  async rest(): Promise<void> {}
  async takeUp(): Promise<void> {}
  async removeAll(orgId: string): Promise<void> {
    for (const [id, { session }] of this.kept) if (session.orgId === orgId) this.kept.delete(id)
  }

  async create(orgId: string, input: CreateSession, options?: CreateOptions): Promise<SessionView> {
    const made = this.#madeBefore(options)
    if (made) return made
    this.lastCreate = input
    const now = new Date()
    const sandboxId = newId('sb-')
    const session: Session = {
      id: newId('session_'),
      orgId,
      userId: input.userId,
      ...(input.name === undefined ? {} : { name: input.name }),
      ...(input.userEmail === undefined ? {} : { userEmail: input.userEmail }),
      status: 'running',
      activity: 'starting',
      sandboxId,
      title: input.prompt.slice(0, 60),
      framework: '',
      artifacts: [],
      agentConfig: { harness: 'pi', model: 'demo', cwd: '/workspace/app', skills: {}, envs: {} },
      gatewayTokenHash: '',
      ...unusedCounters,
      createdAt: now,
      updatedAt: now,
    }
    const changed = new EventEmitter()
    changed.setMaxListeners(0)
    const view: Kept = {
      session,
      messages: [{ id: newId('msg_'), role: 'user', content: input.prompt, state: 'queued', createdAt: now }],
      events: [{ id: newId('evt_'), type: 'session_started', level: 'info', message: 'started', createdAt: now }],
      previewUrl: `http://${sandboxId}-p3000.preview.test`,
      stream: [],
      changed,
      yielded: 0,
    }
    this.kept.set(session.id, view)
    this.#made(options, view)
    return view
  }

  async get(orgId: string, sessionId: string, userId?: string): Promise<SessionView> {
    return this.#find(orgId, sessionId, userId)
  }

  async list(orgId: string, { userId, search = '', limit = 100, reach }: ListSessions) {
    const items = [...this.kept.values()].filter(
      ({ session, messages }) =>
        session.orgId === orgId &&
        (userId === undefined || session.userId === userId) &&
        (reach === undefined || isWithin(reach, session)) &&
        messages.some(({ content }) => content.includes(search)),
    )
    return { items: items.slice(0, limit), ...(items.length > limit ? { nextCursor: 'more' } : {}) }
  }

  async delete(orgId: string, sessionId: string, userId?: string): Promise<void> {
    const view = this.#find(orgId, sessionId, userId)
    view.session.status = 'ended'
    view.session.activity = 'ended'
    view.changed.emit('change')
  }

  async sendMessage(
    orgId: string,
    sessionId: string,
    input: { message: string; userId: string },
    options?: CreateOptions,
  ): Promise<SessionView> {
    const made = this.#madeBefore(options)
    if (made) return made
    const view = this.#find(orgId, sessionId)
    if (view.session.userId !== input.userId) throw new ServiceError('forbidden', 'user_id is not the owner')
    if (view.session.status === 'ended') throw new ServiceError('conflict', 'the session has ended')
    view.messages.push({
      id: newId('msg_'),
      role: 'user',
      content: input.message,
      state: 'queued',
      createdAt: new Date(),
    })
    this.#made(options, view)
    return view
  }

  async interrupt(orgId: string, sessionId: string, userId: string): Promise<void> {
    if (this.#find(orgId, sessionId).session.userId !== userId) throw new ServiceError('forbidden', 'not the owner')
  }

  async cancelMessage(orgId: string, sessionId: string, messageId: string, userId?: string): Promise<SessionView> {
    const view = this.#find(orgId, sessionId, userId)
    const message = view.messages.find(({ id }) => id === messageId)
    if (!message) throw new ServiceError('not_found', `no message ${messageId}`)
    if (message.state !== 'queued') throw new ServiceError('conflict', `the message is ${message.state}`)
    message.state = 'cancelled'
    return view
  }

  async idNamed(orgId: string, name: string): Promise<string> {
    const named = [...this.kept.values()].find(
      ({ session }) => session.orgId === orgId && session.name === name && session.status === 'running',
    )
    if (named === undefined) throw new ServiceError('not_found', `no session is named ${name}`)
    return named.session.id
  }

  async fork(
    orgId: string,
    sessionId: string,
    userId: string,
    { name, ...options }: ForkSessionOptions = {},
  ): Promise<SessionView> {
    const made = this.#madeBefore(options)
    if (made) return made
    await this.interrupt(orgId, sessionId, userId)
    const { session, messages } = this.#find(orgId, sessionId)
    if (session.activity !== 'idle') throw new ServiceError('conflict', `the session is ${session.activity}`)
    const fork = await this.create(orgId, { prompt: session.title, userId, ...(name === undefined ? {} : { name }) })
    fork.messages = messages.map((message) => ({ ...message, id: newId('msg_') }))
    this.#made(options, fork)
    return fork
  }

  async restart(
    orgId: string,
    sessionId: string,
    { userId, checkpointId }: { userId: string; checkpointId?: string },
    options?: CreateOptions,
  ) {
    const made = this.#madeBefore(options)
    if (made) return made
    await this.interrupt(orgId, sessionId, userId)
    const view = this.#find(orgId, sessionId)
    if (view.session.activity !== 'failed') throw new ServiceError('conflict', 'the sandbox is running, not lost')
    view.session.sandboxId = newId('sb-')
    view.session.activity = 'starting'
    if (checkpointId !== undefined) view.session.checkpointId = checkpointId
    this.#made(options, view)
    return view
  }

  async createToken(orgId: string, sessionId: string, { userId, scope, ttlSeconds = 3600 }: CreateToken) {
    await this.interrupt(orgId, sessionId, userId)
    return this.#tokens.issue(sessionId, scope, ttlSeconds)
  }

  async access(token: string, sessionId: string, use: AccessUse) {
    return await this.#tokens.check(token, sessionId, use, async (id) => this.kept.get(id)?.session)
  }

  async export(orgId: string, sessionId: string, userId?: string) {
    const view = this.#find(orgId, sessionId, userId)
    const { messages, events, stream } = view
    const records = (async function* (): AsyncGenerator<ExportRecord> {
      for (const message of messages) yield { type: 'message', message }
      for (const event of events) yield { type: 'event', event }
      for (const event of stream) {
        view.yielded++
        yield { type: 'stream', event }
      }
    })()
    return { view, records }
  }

  /** What the agent says. */
  emit(sessionId: string, data: StreamEvent['data']): void {
    const view = this.kept.get(sessionId)
    view?.stream.push({ sequence: view.stream.length + 1, data, createdAt: new Date() })
    view?.changed.emit('change')
  }

  /** Events that all streams of a session have taken together. */
  yielded(sessionId: string): number {
    return this.kept.get(sessionId)?.yielded ?? 0
  }

  async stream(orgId: string, sessionId: string, options: StreamOptions): Promise<SessionStream> {
    const view = this.#find(orgId, sessionId, options.userId)
    const after = Math.min(options.after, view.stream.length)
    const exhausted = view.session.status === 'ended' && after === view.stream.length
    return { after, exhausted, [Symbol.asyncIterator]: () => this.#follow(view, { ...options, after }) }
  }

  async *#follow(view: Kept, { after, signal }: StreamOptions): AsyncGenerator<readonly StreamEvent[]> {
    this.reading++
    let next = after
    try {
      const changes = on(view.changed, 'change', { signal })
      for (;;) {
        while (next < view.stream.length) {
          const event = view.stream[next++]
          if (event === undefined) break
          view.yielded++
          yield [event]
        }
        if (view.session.status === 'ended') return
        await changes.next()
      }
    } catch (error) {
      if (!signal.aborted) throw error
    } finally {
      this.reading--
    }
  }

  async *#patch(orgId: string, sessionId: string, input: CompareSession): AsyncGenerator<Uint8Array> {
    this.#find(orgId, sessionId, input.userId)
    this.asked['patch'] = input
    if (this.comparisonError !== undefined) throw this.comparisonError
    yield* this.patch
  }

  #madeBefore({ creation }: CreateOptions = {}): SessionView | undefined {
    return creation && this.#byClaim.get(creation.claim.seed)
  }

  #made({ creation }: CreateOptions = {}, view: SessionView): void {
    if (creation) this.#byClaim.set(creation.claim.seed, view)
  }

  #find(orgId: string, sessionId: string, userId?: string): Kept {
    const view = this.kept.get(sessionId)
    if (
      view === undefined ||
      view.session.orgId !== orgId ||
      (userId !== undefined && view.session.userId !== userId)
    ) {
      throw new ServiceError('not_found', `no session ${sessionId}`)
    }
    return view
  }
}
