import type { Atoll, RequestOptions } from './atoll.ts'
import type { components } from './api.ts'
import type { CapsuleInfo, CapsuleView, MadeCapsuleInfo, SessionInfo } from './types.ts'

type AgentEvent = components['schemas']['StreamEvent']

export interface NewCapsule extends RequestOptions {
  /** `read` shows the session up to the event, `fork` also begins sessions from the disk of that moment. */
  scope: 'read' | 'fork'
  /** Number of the newest event that it shows. Default: the newest one. */
  eventId?: number | undefined
  /** Default: seven days. */
  expiresInSeconds?: number | undefined
}

export interface ForkCapsuleOptions extends RequestOptions {
  /** Whose the new session is: any user of the organisation. */
  userId: string
  name?: string | undefined
}

/** The capsules of a session: moments of it that are shown to whoever has their link. `session.capsules`. */
export class Capsules {
  readonly #client: Atoll
  readonly #path: string
  readonly #userId: string

  /** Use {@link Session.capsules}. */
  constructor(client: Atoll, sessionPath: string, userId: string) {
    this.#client = client
    this.#path = `${sessionPath}/capsules`
    this.#userId = userId
  }

  /** Makes one; `url` and `token` of the answer are shown this once. */
  async create({ scope, eventId, expiresInSeconds, ...options }: NewCapsule): Promise<MadeCapsuleInfo> {
    const json = { user_id: this.#userId, scope, event_id: eventId, expires_in: expiresInSeconds }
    return await this.#client.json('POST', this.#path, { json, creates: true, ...options })
  }

  /** Those that live, newest first. */
  async list(options: RequestOptions = {}): Promise<CapsuleInfo[]> {
    const query = { user_id: this.#userId }
    return (await this.#client.json<components['schemas']['CapsuleList']>('GET', this.#path, { query, ...options }))
      .data
  }

  /** Its link shows nothing any more. Harmless when it is revoked already. */
  async revoke(id: string, options: RequestOptions = {}): Promise<void> {
    const query = { user_id: this.#userId }
    await this.#client.json('DELETE', `${this.#path}/${encodeURIComponent(id)}`, { query, ...options })
  }
}

/** A moment of a session, as the holder of its link sees it. Reading it needs no key. Each call throws `NotFoundError` once it is over. */
export class Capsule {
  readonly #client: Atoll
  readonly #path: string

  /** Use {@link Atoll.capsule}. */
  constructor(client: Atoll, tokenOrUrl: string) {
    this.#client = client
    const token = /\/v1\/capsules\/([^/?#]+)/.exec(tokenOrUrl)?.[1] ?? tokenOrUrl
    this.#path = `/v1/capsules/${encodeURIComponent(token)}`
  }

  /** What the moment is of, without messages. */
  async info(options: RequestOptions = {}): Promise<Omit<CapsuleView, 'messages' | 'nextCursor'>> {
    const { messages: _messages, nextCursor: _cursor, ...info } = await this.#page(undefined, 1, options)
    return info
  }

  /** What was said by then in the branch of then, oldest first. */
  async *messages(options: RequestOptions = {}): AsyncGenerator<CapsuleView['messages'][number]> {
    let cursor: string | undefined
    do {
      const page = await this.#page(cursor, undefined, options)
      yield* page.messages
      cursor = page.nextCursor ?? undefined
    } while (cursor !== undefined)
  }

  /** The stream up to the event of the capsule. */
  async *events(options: RequestOptions = {}): AsyncGenerator<{ id: number; data: AgentEvent }> {
    let after: number | undefined
    do {
      const call = { query: { after }, ...options }
      const page = await this.#client.json<components['schemas']['CapsuleEvents']>('GET', `${this.#path}/events`, call)
      for (const { id, data } of page.events) yield { id, data: data as AgentEvent }
      after = page.nextAfter ?? undefined
    } while (after !== undefined)
  }

  /** Begins a session from the disk of the moment: `new Session(client, await capsule.fork({ userId }))`. Needs a key of the same organisation, and scope `fork`. */
  async fork({ userId, name, ...options }: ForkCapsuleOptions): Promise<SessionInfo> {
    const json = { user_id: userId, name }
    return await this.#client.json('POST', `${this.#path}/fork`, { json, creates: true, ...options })
  }

  async #page(cursor: string | undefined, limit: number | undefined, options: RequestOptions): Promise<CapsuleView> {
    return await this.#client.json('GET', this.#path, { query: { cursor, limit }, ...options })
  }
}
