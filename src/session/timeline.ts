import { ServiceError } from '../errors.ts'
import { defined } from '../lib/defined.ts'
import { isWithin, type KeyReach } from '../lib/key-reach.ts'
import { usd } from '../lib/model-price.ts'
import { isStorable } from '../lib/storable.ts'
import type { Ownership } from './ownership.ts'
import type { SessionDeps } from './service.ts'
import type { Branch, ForkReference, SessionHead, TurnFacts } from './store.ts'
import type { Counters, Turn } from './turn.ts'

export interface TimelineQuery {
  userId?: string
  /** Default: in force. */
  branch?: Branch
  limit: number
  /** The `nextCursor` of the page before. */
  cursor?: string
  /** Of the key that asks. Forks beyond it are left out. */
  reach?: KeyReach
  /** Leaves out forks that other people own. */
  isOwnersOnly?: boolean
}

/** Newest turn first. */
export interface Timeline {
  turns: TimelineTurn[]
  nextCursor?: string
  /** A rewind to this checkpoint undoes the newest rewind. Absent when there is none, or it is not kept. */
  undoCheckpointId?: string
}

export interface TimelineTurn {
  turn: Turn
  /** The first characters of its message. */
  message: string
  usage: TurnUsage
  point?: NonNullable<TurnFacts['point']>
  /** Oldest first. */
  forks: ForkReference[]
  /** There are more. */
  isForksCut: boolean
}

/** `costUsd` is absent while it is not known. */
export interface TurnUsage extends Omit<Counters, 'costNanoUsd'> {
  costUsd?: number
}

/** Forks of one turn, and of all turns of a page, that are read. */
const forksPerTurnMax = 20
const forksPerPageMax = 2000

type TimelinesContext = Pick<SessionDeps, 'store'> & { ownership: Ownership }

/** The turns of sessions with what they have cost and changed. Reads no stream. */
export class Timelines {
  readonly #context: TimelinesContext

  constructor(context: TimelinesContext) {
    this.#context = context
  }

  /** One page. Throws `not_found` for the session, `invalid_request` for a cursor that no page of it has named. */
  async page(orgId: string, sessionId: string, query: TimelineQuery): Promise<Timeline> {
    const { ownership, store } = this.#context
    const { userId, branch = 'in force', limit, cursor } = query
    const session = await ownership.owned(orgId, sessionId, userId)
    if (cursor !== undefined) await this.#assertCursor(sessionId, cursor)
    const found = await store.turns(sessionId, { branch, limit: limit + 1, ...defined({ before: cursor }) })
    const turns = found.slice(0, limit)
    const nextCursor = found.length > limit ? turns.at(-1)?.messageId : undefined
    return {
      turns: turns.length === 0 ? [] : await this.#load(session, turns, query),
      ...defined({ nextCursor, undoCheckpointId: await this.#undoPoint(session) }),
    }
  }

  async #assertCursor(sessionId: string, cursor: string): Promise<void> {
    if (isStorable(cursor) && (await this.#context.store.turn(sessionId, cursor)) !== undefined) return
    throw new ServiceError('invalid_request', 'cursor is not one that this list answered with', {
      details: { field: 'cursor' },
    })
  }

  async #load(session: SessionHead, turns: readonly Turn[], query: TimelineQuery): Promise<TimelineTurn[]> {
    const { store } = this.#context
    const ids = turns.map(({ messageId }) => messageId)
    const facts = await store.turnFacts(session.id, ids)
    const forks = await store.forksOf(session.id, { turnIds: ids, limit: forksPerPageMax })
    const isAll = forks.length < forksPerPageMax
    const byTurn = Map.groupBy(
      forks.filter((fork) => isShown(fork, session, query)),
      ({ forkPoint }) => forkPoint,
    )
    return turns.map((turn): TimelineTurn => {
      const { message = '', usageAfter = session, point } = facts.get(turn.messageId) ?? {}
      const own = byTurn.get(turn.messageId) ?? []
      return {
        turn,
        message,
        usage: usageBetween(turn.usageBefore, usageAfter),
        ...defined({ point }),
        forks: own.slice(0, forksPerTurnMax),
        isForksCut: own.length > forksPerTurnMax || !isAll,
      }
    })
  }

  async #undoPoint({ id, lastSequence }: SessionHead): Promise<string | undefined> {
    const { store } = this.#context
    const rewind = await store.rewindBefore(id, lastSequence)
    return rewind && (await store.point(id, rewind.undoCheckpointId))?.checkpointId
  }
}

function isShown(fork: ForkReference, { userId }: SessionHead, { reach, isOwnersOnly }: TimelineQuery): boolean {
  return (isOwnersOnly !== true || fork.userId === userId) && (reach === undefined || isWithin(reach, fork))
}

/** What was used between two times. */
export function usageBetween(before: Counters, after: Counters): TurnUsage {
  const [costBefore, costAfter] = [before.costNanoUsd, after.costNanoUsd]
  return {
    inputTokens: after.inputTokens - before.inputTokens,
    cacheReadTokens: after.cacheReadTokens - before.cacheReadTokens,
    cacheWriteTokens: after.cacheWriteTokens - before.cacheWriteTokens,
    outputTokens: after.outputTokens - before.outputTokens,
    ...(costBefore === undefined || costAfter === undefined ? {} : { costUsd: usd(costAfter - costBefore) }),
  }
}
