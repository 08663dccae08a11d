import { type AgentConfig, changeOf, configOf, type SessionChange } from './agent-config.ts'
import { clientOf, type Atoll, type ClientOptions, type RequestOptions } from './atoll.ts'
import { Capsules } from './capsules.ts'
import type { EgressOptions } from './egress-policy.ts'
import { type AtollError, errorIn, makeError } from './errors.ts'
import { eventsOf, streamOf, type StreamEvent } from './events.ts'
import { linesOf } from './lines.ts'
import type { components } from './api.ts'
import {
  forkOf,
  type ForkSessionOptions,
  type ForkSessionsOptions,
  placeOf,
  type RewindOptions,
  type SessionFork,
  Timeline,
  type TimelineOptions,
} from './session-travel.ts'
import { type Comparison, openPatch, readPatch } from './trees.ts'
import type {
  AccessToken,
  ForkedSessions,
  ForkEstimate,
  Message,
  RewindPreview,
  RewoundInfo,
  SessionComparison,
  SessionEvent,
  SessionInfo,
} from './types.ts'
import type { VolumeMount } from './volumes.ts'

/** An event of the agent's work: `assistant`, `tool_use_summary`, `result`, `turn_complete`, `error` … */
export type AgentEvent = components['schemas']['StreamEvent']
/** More of an answer that the model is writing. */
export type AssistantDraft = components['schemas']['AssistantDraft']

export interface CreateSessionOptions extends ClientOptions, Pick<EgressOptions, 'secretStore' | 'egress'> {
  /** Serves wherever its id does, while it runs: `Session.connect(name)`. */
  name?: string | undefined
  prompt: string
  /** Whose session it is, as your product calls them. */
  userId: string
  userEmail?: string | undefined
  userName?: string | undefined
  agent?: AgentConfig | undefined
  /** The checkpoint that its sandbox starts from, its id or `SANDBOX/NAME`. Default: an empty machine. */
  checkpointId?: string | undefined
  /** Volumes of its sandbox. */
  volumes?: readonly VolumeMount[] | undefined
}

export interface ListSessionsOptions extends ClientOptions {
  userId?: string | undefined
  /** Only those whose title or messages hold this text. */
  search?: string | undefined
}

export interface EventOptions extends RequestOptions {
  /** The number of the last event that is known. Default 0: from the first one on. */
  after?: number | undefined
  /** Called each time the connection has broken and is made again. */
  onBreak?: ((error: AtollError) => void) | undefined
  /** Called when the server has taken a connection, the first one and those after a break. */
  onOpen?: (() => void) | undefined
}

export interface AgentEventOptions extends EventOptions {
  /**
   * Called with what the model writes before its answer is whole. A piece whose `offset` is 0 begins another answer; one that does not follow what
   * came before is left out, until the whole answer comes as an event. Pieces are lost while the connection is broken.
   */
  onDraft?: ((piece: AssistantDraft) => void) | undefined
}

/** One record of an export. */
export type ExportRecord =
  | { type: 'session'; session: Omit<SessionInfo, 'messages' | 'events'> }
  | { type: 'message'; message: Message }
  | { type: 'event'; event: SessionEvent }
  | { type: 'stream'; stream: { sequence: number; createdAt: string; data: AgentEvent } }

/**
 * An agent that works on prompts in a sandbox of its own.
 *
 * ```js
 * const session = await Session.create({ prompt: 'A page about coral reefs', userId: 'ada' })
 * for await (const { data } of session.events()) {
 *   if (data.type === 'turn_complete') break
 * }
 * console.log((await session.info()).previewUrl)
 * ```
 */
export class Session {
  readonly id: string
  readonly userId: string
  /** Where the work of the agent is seen. */
  readonly previewUrl: string
  readonly sandboxId: string
  /** Of one that `fork` has returned: where it begins, and whether that is the very place that was asked for. */
  readonly forkedAt: SessionInfo['fork']
  /** Moments of it that others may see. */
  readonly capsules: Capsules
  readonly #client: Atoll
  readonly #path: string

  /** Use {@link Session.create} or {@link Session.connect}. */
  constructor(client: Atoll, { id, userId, previewUrl, sandboxId, fork }: SessionInfo) {
    this.id = id
    this.userId = userId
    this.previewUrl = previewUrl
    this.sandboxId = sandboxId
    this.forkedAt = fork
    this.#client = client
    this.#path = `/v1/sessions/${id}`
    this.capsules = new Capsules(client, this.#path, userId)
  }

  /** Answers before the sandbox has booted. */
  static async create(options: CreateSessionOptions): Promise<Session> {
    const {
      client: given,
      name,
      prompt,
      userId,
      userEmail,
      userName,
      agent,
      checkpointId,
      volumes,
      secretStore,
      egress,
      ...request
    } = options
    const client = clientOf({ client: given })
    const json = {
      name,
      prompt,
      user_id: userId,
      user_email: userEmail,
      user_name: userName,
      agent_config: agent && configOf(agent),
      checkpoint_id: checkpointId,
      volumes,
      secret_store: secretStore,
      egress,
    }
    return new Session(client, await client.json('POST', '/v1/sessions', { json, creates: true, ...request }))
  }

  /** Returns an existing session by its id or name. Throws `NotFoundError`. */
  static async connect(idOrName: string, { client: given, ...request }: ClientOptions = {}): Promise<Session> {
    const client = clientOf({ client: given })
    return new Session(client, await client.json('GET', `/v1/sessions/${encodeURIComponent(idOrName)}`, request))
  }

  /** All sessions, newest first, with their messages. */
  static async *list({
    client: given,
    userId,
    search,
    ...request
  }: ListSessionsOptions = {}): AsyncGenerator<SessionInfo> {
    const client = clientOf({ client: given })
    let cursor: string | undefined
    do {
      const query = { user_id: userId, search, cursor }
      const page = await client.json<components['schemas']['SessionList']>('GET', '/v1/sessions', { query, ...request })
      yield* page.data
      cursor = page.nextCursor ?? undefined
    } while (cursor !== undefined)
  }

  /** The session now, with its messages and events; with `branch: 'all'` also messages that a rewind has left. */
  async info({ branch, ...options }: TimelineOptions = {}): Promise<SessionInfo> {
    return await this.#client.json('GET', this.#path, { query: { branch }, ...options })
  }

  /** What the agent has said in the newest turn that has ended; undefined before the first. Of an answer that is too long, its beginning. */
  async text(options: RequestOptions = {}): Promise<string | undefined> {
    const { messages } = await this.info(options)
    return messages.findLast(({ role }) => role === 'assistant')?.content
  }

  /** Returns at once; messages to a working agent wait in their order. */
  async send(message: string, options: RequestOptions = {}): Promise<SessionInfo> {
    const json = { message, user_id: this.userId }
    return await this.#client.json('POST', `${this.#path}/messages`, { json, creates: true, ...options })
  }

  /**
   * What the agent does, from the event after `after` on and for as long as the session lives: each event once, in order, over restarts of
   * the server, proxies and sleeps of this machine.
   */
  events({ onDraft, ...options }: AgentEventOptions = {}): AsyncGenerator<StreamEvent<AgentEvent>> {
    const drafts = onDraft && {
      query: { drafts: true },
      onPassing: (data: string) => onDraft(JSON.parse(data) as AssistantDraft),
    }
    return streamOf(this.#client, `${this.#path}/events`, { ...options, ...drafts })
  }

  /** The number of the newest event, for `after`: asked before a message, it lets `events` begin with what comes of it. Throws `ConflictError` when it has ended. */
  async newestEvent(options: RequestOptions = {}): Promise<number> {
    const call = { query: { after: 'newest' }, headers: { Accept: 'text/event-stream' }, ...options }
    const { body } = await this.#client.open('GET', `${this.#path}/events`, call)
    if (body !== null) for await (const { id } of eventsOf(body)) return Number(id)
    throw makeError('conflict', `session ${this.id} has ended`)
  }

  /** Ends the turn of the agent. */
  async interrupt(options: RequestOptions = {}): Promise<SessionInfo> {
    const json = { user_id: this.userId }
    return await this.#client.json('POST', `${this.#path}/interrupt`, { json, repeat: 'always', ...options })
  }

  /** Takes back a message that waits. */
  async cancelMessage(messageId: string, options: RequestOptions = {}): Promise<SessionInfo> {
    return await this.#client.json('DELETE', `${this.#path}/messages/${encodeURIComponent(messageId)}`, options)
  }

  /**
   * Starts another session that goes on from here, or from a place `at`, with its machine as it was then. With `count` or `variants` it
   * starts several from one checkpoint, in that order; one that did not start has an `error`. Throws `ConflictError` while the agent works,
   * unless it is given a place.
   */
  async fork(options?: ForkSessionOptions & { count?: undefined; variants?: undefined }): Promise<Session>
  async fork(options: ForkSessionsOptions & ({ count: number } | { variants: object })): Promise<SessionFork[]>
  async fork({ name, at, count, variants, ...options }: ForkSessionsOptions = {}): Promise<Session | SessionFork[]> {
    const json = { user_id: this.userId, ...forkOf({ name, at, count, variants }) }
    const call = { json, creates: true, ...options }
    const answer = await this.#client.json<SessionInfo | ForkedSessions>('POST', `${this.#path}/fork`, call)
    if (!('sessions' in answer)) return new Session(this.#client, answer)
    return answer.sessions.map((one) =>
      'error' in one ? { error: errorIn(one) } : { session: new Session(this.#client, one) },
    )
  }

  /** Its turns, newest first, each with its checkpoint, what it has changed and used, and the forks that begin at its end. */
  timeline(options: TimelineOptions = {}): Timeline {
    return new Timeline(this.#client, this.#path, options)
  }

  /**
   * Takes it back, or forward, in place: ids and addresses stay. A turn that runs is interrupted, messages that wait are cancelled.
   * `session.undo()`, or a rewind to `undoCheckpointId`, undoes it.
   */
  async rewind(options: RewindOptions & { preview: true }): Promise<RewindPreview>
  async rewind(options: RewindOptions & { preview?: false | undefined }): Promise<RewoundInfo>
  async rewind({
    to,
    what,
    preview = false,
    ...options
  }: RewindOptions & { preview?: boolean | undefined }): Promise<RewoundInfo | RewindPreview> {
    const json = { user_id: this.userId, to: placeOf(to), what }
    const call = preview ? { json, query: { preview }, repeat: 'always' as const } : { json, creates: true }
    return await this.#client.json('POST', `${this.#path}/rewind`, { ...call, ...options })
  }

  /** What a rewind would change; it changes nothing. */
  async previewRewind(options: RewindOptions): Promise<RewindPreview> {
    return await this.rewind({ ...options, preview: true })
  }

  /** Undoes the newest rewind or adoption, and an undo too. Throws `NotFoundError` when there was none, or its checkpoint is not kept. */
  async undo(options: RequestOptions = {}): Promise<RewoundInfo> {
    const { undoCheckpointId: checkpointId } = await this.timeline().page({ limit: 1, ...options })
    if (checkpointId === null) throw makeError('not_found', `session ${this.id} has no rewind that can be undone`)
    return await this.rewind({ to: { checkpointId }, ...options })
  }

  /** Takes it to where a fork of it stands, with the turns of the fork. It is undone like a rewind. The other forks are archived. */
  async adopt(fork: Session | string, options: RequestOptions = {}): Promise<RewoundInfo> {
    const json = { user_id: this.userId, from: typeof fork === 'string' ? fork : fork.id }
    return await this.#client.json('POST', `${this.#path}/adopt`, { json, creates: true, ...options })
  }

  /**
   * What has to change in the working folder of `against` for it to become that of the session, and what both have taken. `against` is
   * another session, a checkpoint, or the id of a message of the session: the end of its turn. Nothing is woken.
   */
  async diff(against: string | { id: string }, options: RequestOptions = {}): Promise<SessionComparison> {
    return await this.#client.json('GET', ...this.#comparison(against, options))
  }

  /** The same as a unified diff, which `git apply` takes. Throws `TooLargeError` for one that is longer than `bytesMax` (default 8 MiB). */
  async patch(
    against: string | { id: string },
    { bytesMax, ...options }: RequestOptions & { bytesMax?: number | undefined } = {},
  ): Promise<string> {
    return await readPatch(this.#client, this.#comparison(against, options), bytesMax)
  }

  /** The same of any length, up to 64 MiB. */
  async patchStream(
    against: string | { id: string },
    options: RequestOptions = {},
  ): Promise<ReadableStream<Uint8Array>> {
    return await openPatch(this.#client, this.#comparison(against, options))
  }

  /** What so many forks of it would take; 1 to 20. Nothing is made or woken. */
  async estimate(forks = 1, options: RequestOptions = {}): Promise<ForkEstimate> {
    return await this.#client.json('GET', `${this.#path}/estimate`, { query: { fork: forks }, ...options })
  }

  /** Changes its limits and what is kept after each turn; what is left out stays. A session that is paused for its budget goes on. */
  async update(change: SessionChange, options: RequestOptions = {}): Promise<SessionInfo> {
    const json = { user_id: this.userId, agent_config: changeOf(change) }
    return await this.#client.json('PATCH', this.#path, { json, repeat: 'always', ...options })
  }

  /** Goes on in a new sandbox after the loss of its own. */
  async restart({
    checkpointId,
    ...options
  }: RequestOptions & { checkpointId?: string | undefined } = {}): Promise<Session> {
    const json = { user_id: this.userId, checkpoint_id: checkpointId }
    const call = { json, creates: true, ...options }
    return new Session(this.#client, await this.#client.json('POST', `${this.#path}/restart`, call))
  }

  /** A token with which a browser reads or steers this session, without your key. */
  async token({
    scope,
    ttlSeconds,
    ...options
  }: RequestOptions & { scope: 'read' | 'steer'; ttlSeconds?: number | undefined }): Promise<AccessToken> {
    const json = { user_id: this.userId, scope, ttl: ttlSeconds }
    return await this.#client.json('POST', `${this.#path}/tokens`, { json, creates: true, ...options })
  }

  /** Everything that is known of the session, record by record. */
  async *export(options: RequestOptions = {}): AsyncGenerator<ExportRecord> {
    const { body } = await this.#client.open('GET', `${this.#path}/export`, options)
    if (body === null) return
    for await (const line of linesOf(body)) yield JSON.parse(line) as ExportRecord
  }

  /** Ends the session, and its sandbox with it. Harmless when it has ended. */
  async end(options: RequestOptions = {}): Promise<void> {
    await this.#client.json('DELETE', this.#path, options)
  }

  #comparison(against: string | { id: string }, options: RequestOptions): Comparison {
    const query = { against: typeof against === 'string' ? against : against.id }
    return [`${this.#path}/diff`, { query, ...options }]
  }
}
