/** Places in sessions, and what begins or ends at them. */
import { type AgentConfig, configOf } from './agent-config.ts'
import type { Atoll, RequestOptions } from './atoll.ts'
import type { AtollError } from './errors.ts'
import type { Session } from './session.ts'
import type { TimelinePage, TurnInfo } from './types.ts'

/** The end of the turn of a message, the number of an event of the stream, or a checkpoint of the session. */
export type SessionPlace = { messageId: string } | { eventId: number } | { checkpointId: string }

export interface TimelineOptions extends RequestOptions {
  /** `all`: also turns that a rewind has left. Default: those in force. */
  branch?: 'all' | undefined
}

export interface TimelinePageOptions extends RequestOptions {
  /** 1 to 100; default 20. */
  limit?: number | undefined
  /** `nextCursor` of the page before. */
  cursor?: string | undefined
}

export interface ForkSessionOptions extends RequestOptions {
  /** Of one fork, not of several. */
  name?: string | undefined
  /** Where it begins. Default: now, for which the session must be idle. In the middle of a turn the checkpoint before it counts. */
  at?: SessionPlace | undefined
}

/** How one fork of several differs from the session. */
export interface ForkVariant {
  /** Sent to it at its begin. */
  message?: string | undefined
  model?: string | undefined
  systemPrompt?: string | undefined
  /** Set on top of those of the session. */
  envs?: Record<string, string> | undefined
  agent?: Omit<AgentConfig, 'skills' | 'cwd' | 'harness'> | undefined
}

export interface ForkSessionsOptions extends ForkSessionOptions {
  /** 1 to 20. Default: as many as there are variants. */
  count?: number | undefined
  variants?: readonly ForkVariant[] | undefined
}

/** One fork of several. */
export type SessionFork = { session: Session } | { error: AtollError }

export interface RewindOptions extends RequestOptions {
  to: SessionPlace
  /** `machine`: files and processes; `conversation`: what was said. Default `all`. */
  what?: 'all' | 'machine' | 'conversation' | undefined
}

/** The turns of a session, newest first: `session.timeline()`. */
export class Timeline implements AsyncIterable<TurnInfo> {
  readonly #client: Atoll
  readonly #path: string
  readonly #options: TimelineOptions

  /** Use {@link Session.timeline}. */
  constructor(client: Atoll, sessionPath: string, options: TimelineOptions) {
    this.#client = client
    this.#path = `${sessionPath}/timeline`
    this.#options = options
  }

  /** One page, with the checkpoint that undoes the newest rewind. */
  async page({ limit, cursor, ...request }: TimelinePageOptions = {}): Promise<TimelinePage> {
    const { branch, ...options } = this.#options
    const query = { branch, limit, cursor }
    return await this.#client.json('GET', this.#path, { query, ...options, ...request })
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<TurnInfo> {
    let cursor: string | undefined
    do {
      const page = await this.page({ cursor })
      yield* page.turns
      cursor = page.nextCursor ?? undefined
    } while (cursor !== undefined)
  }
}

/** As the API has it. */
export function placeOf(place: SessionPlace) {
  if ('messageId' in place) return { message_id: place.messageId }
  return 'eventId' in place ? { event_id: place.eventId } : { checkpoint_id: place.checkpointId }
}

/** The body of `POST /v1/sessions/{id}/fork`, but for its owner. */
export function forkOf({ name, at, count, variants }: Omit<ForkSessionsOptions, keyof RequestOptions>) {
  return { name, at: at && placeOf(at), count, variants: variants?.map(variantOf) }
}

function variantOf({ message, model, systemPrompt, envs, agent }: ForkVariant) {
  return { message, model, system_prompt: systemPrompt, envs, agent_config: agent && configOf(agent) }
}
