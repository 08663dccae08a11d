import { clientOf, type Atoll, type ClientOptions, type RequestOptions } from './atoll.ts'
import type { EgressOptions } from './egress-policy.ts'
import { type AtollError, makeError } from './errors.ts'
import { eventsOf, streamOf, type StreamEvent } from './events.ts'
import { linesOf } from './lines.ts'
import type { components } from './api.ts'
import type { AccessToken, Message, SessionEvent, SessionInfo } from './types.ts'
import type { VolumeMount } from './volumes.ts'

/** An event of the agent's work: `assistant`, `tool_use_summary`, `result`, `turn_complete`, `error` … */
export type AgentEvent = components['schemas']['StreamEvent']

export interface AgentConfig {
  /** Added to the prompt of the harness. */
  systemPrompt?: string | undefined
  /** Files of the sandbox, by path. */
  skills?: Record<string, string> | undefined
  allowedTools?: readonly string[] | undefined
  cwd?: string | undefined
  /** Such as `anthropic/claude-sonnet-4-5`. */
  model?: string | undefined
  /** `pi`, `claude` or `acp:<command>`. */
  harness?: string | undefined
  /** Calls of the model in one turn. */
  maxTurns?: number | undefined
  maxTokens?: number | undefined
  maxCostUsd?: number | undefined
  envs?: Record<string, string> | undefined
}

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
  readonly #client: Atoll
  readonly #path: string

  /** Use {@link Session.create} or {@link Session.connect}. */
  constructor(client: Atoll, { id, userId, previewUrl, sandboxId }: SessionInfo) {
    this.id = id
    this.userId = userId
    this.previewUrl = previewUrl
    this.sandboxId = sandboxId
    this.#client = client
    this.#path = `/v1/sessions/${id}`
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

  /** The session now, with its messages and events. */
  async info(options: RequestOptions = {}): Promise<SessionInfo> {
    return await this.#client.json('GET', this.#path, options)
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
  events(options: EventOptions = {}): AsyncGenerator<StreamEvent<AgentEvent>> {
    return streamOf(this.#client, `${this.#path}/events`, options)
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

  /** Starts another session that goes on from here, with its machine as it is now. Throws `ConflictError` while the agent works. */
  async fork({ name, ...options }: RequestOptions & { name?: string | undefined } = {}): Promise<Session> {
    const json = { user_id: this.userId, name }
    const info = await this.#client.json<SessionInfo>('POST', `${this.#path}/fork`, { json, creates: true, ...options })
    return new Session(this.#client, info)
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
}

function configOf(agent: AgentConfig) {
  return {
    system_prompt: agent.systemPrompt,
    skills: agent.skills,
    allowed_tools: agent.allowedTools,
    cwd: agent.cwd,
    model: agent.model,
    harness: agent.harness,
    max_turns: agent.maxTurns,
    max_tokens: agent.maxTokens,
    max_cost_usd: agent.maxCostUsd,
    envs: agent.envs,
  }
}
