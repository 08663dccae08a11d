import { newId } from '../../lib/id.ts'
import type { SessionStore } from '../store.ts'
import type { Point } from '../turn.ts'

interface Played {
  parentId?: string
  /** Default: a point is kept. */
  isSaved?: boolean
  inputTokens?: number
  /** `undefined`: the price is not known. */
  costNanoUsd?: number | undefined
}

/** Plays turns and rewinds of a session into its store, as the reducer does, without an agent. */
export class Story {
  readonly store: SessionStore
  readonly sessionId: string

  constructor(store: SessionStore, sessionId: string) {
    this.store = store
    this.sessionId = sessionId
  }

  /** Adds a message and begins its turn. Returns the id of the message. */
  async begin(content: string, parentId?: string): Promise<string> {
    const messageId = newId('msg_')
    const message = { id: messageId, role: 'user', content, state: 'started', createdAt: new Date() } as const
    await this.store.commit(this.sessionId, { addMessages: [message] })
    await this.store.commit(this.sessionId, {
      session: { headTurnId: messageId },
      addStream: [{ type: 'assistant' }],
      turns: [{ type: 'begun', messageId, parentId, eventsBefore: 0 }],
    })
    return messageId
  }

  /** Ends the turn. Returns the checkpoint of its point. */
  async end(messageId: string, { isSaved = true, inputTokens = 10, ...rest }: Played = {}): Promise<string> {
    const costNanoUsd = 'costNanoUsd' in rest ? rest.costNanoUsd : 1_000_000
    await this.store.commit(this.sessionId, {
      usage: { inputTokens, cacheReadTokens: 0, cacheWriteTokens: 0, outputTokens: 2, costNanoUsd },
    })
    await this.store.commit(this.sessionId, {
      setMessages: [{ id: messageId, state: 'consumed' }],
      addStream: [{ type: 'turn_complete', message_id: messageId }],
      turns: [{ type: 'ended', messageId, subtype: 'success', preview: 'ready', eventsBefore: 1 }],
    })
    return isSaved ? await this.point({ turnId: messageId }) : ''
  }

  /** A whole turn. */
  async turn(content: string, played: Played = {}): Promise<{ id: string; checkpointId: string }> {
    const id = await this.begin(content, played.parentId)
    return { id, checkpointId: await this.end(id, played) }
  }

  async point(fields: Partial<Point> = {}): Promise<string> {
    const checkpointId = newId('cp-')
    const addPoint: Point = {
      checkpointId,
      origin: 'turn',
      afterEvent: await this.store.lastSequence(this.sessionId),
      kind: 'full',
      sizeBytes: 1000,
      durationMs: 5,
      project: { artifacts: [], framework: '' },
      createdAt: new Date(),
      ...fields,
    }
    await this.store.commit(this.sessionId, { addPoint })
    return checkpointId
  }

  /** To the end of this turn. Returns the checkpoint of the present. */
  async rewind(
    to: { turnId: string; checkpointId: string },
    what: 'all' | 'machine' | 'conversation' = 'all',
  ): Promise<string> {
    const undoCheckpointId = await this.point({ origin: 'undo' })
    const { turnId, checkpointId } = to
    await this.store.commit(this.sessionId, {
      ...(what === 'machine' ? {} : { session: { headTurnId: turnId } }),
      addStream: [{ type: 'rewound' }],
      rewind: { what, checkpointId, undoCheckpointId, turnId, createdAt: new Date() },
    })
    return undoCheckpointId
  }
}
