import { ignoreNotFound } from '../errors.ts'
import { defined } from '../lib/defined.ts'
import { usd } from '../lib/model-price.ts'
import type { Ownership } from './ownership.ts'
import { restingPoint } from './resting-point.ts'
import type { SessionDeps } from './service.ts'
import type { SessionHead } from './store.ts'

/** What forks of a session would take. Fields without a measurement are absent. */
export interface ForkEstimate {
  /** How many. */
  fork: number
  /**
   * New bytes on disk for all of them when they begin, at most: those of the checkpoint from which all start, without what the newest one
   * shares, where that is counted.
   */
  diskBytes?: number
  /** The size of that checkpoint, with what it shares with others. */
  checkpointBytes?: number
  memoryBytes: {
    /** What all of them hold when they begin. Absent while the sandbox sleeps. */
    now?: number
    /** What all of them may hold at most. */
    max?: number
  }
  /** Turns that have ended, from which the means are. */
  turns: number
  /** Means. Absent before the first turn has ended. */
  tokensPerTurn?: { input: number; output: number }
  costPerTurnUsd?: number
  /** Absent without a bound. */
  sessionsLeft?: number
}

/** Before a host has written a new checkpoint out, it counts it as nothing. */
const countedAfterMs = 60_000

type EstimatesContext = Pick<SessionDeps, 'store' | 'sandboxes' | 'sessionsMaxOf'> & { ownership: Ownership }

/** Says what forks of a session would take, from what it has taken so far. Nothing is woken. */
export class Estimates {
  readonly #context: EstimatesContext

  constructor(context: EstimatesContext) {
    this.#context = context
  }

  /** Throws `not_found`, and `unavailable` while the host does not answer. */
  async forks(
    orgId: string,
    sessionId: string,
    { userId, count }: { userId?: string; count: number },
  ): Promise<ForkEstimate> {
    const { ownership, store } = this.#context
    const session = await ownership.owned(orgId, sessionId, userId)
    const { turns, inputTokens, outputTokens, pricedTurns, costNanoUsd } = await store.turnTotals(sessionId)
    const mean = (sum: number) => Math.round(sum / turns)
    const tokensPerTurn = turns === 0 ? undefined : { input: mean(inputTokens), output: mean(outputTokens) }
    const costPerTurnUsd = pricedTurns === 0 ? undefined : usd(costNanoUsd / pricedTurns)
    return {
      fork: count,
      ...(await this.#checkpoint(session)),
      memoryBytes: await this.#memory(session, count),
      turns,
      ...defined({ tokensPerTurn, costPerTurnUsd, sessionsLeft: await this.#sessionsLeft(orgId) }),
    }
  }

  /** That of the newest point: a fork takes another one like it. */
  async #checkpoint({ id, orgId, lastSequence }: SessionHead) {
    const { store, sandboxes } = this.#context
    const resting = await restingPoint(store, id, lastSequence)
    if (resting === undefined) return {}
    const { checkpointId, sizeBytes, createdAt } = resting.point
    const isCounted = Date.now() - createdAt.getTime() > countedAfterMs
    const own = isCounted ? await sandboxes.trees?.uniqueBytes(orgId, checkpointId).catch(ignoreNotFound) : undefined
    return { checkpointBytes: sizeBytes, diskBytes: own ?? sizeBytes }
  }

  async #memory({ orgId, sandboxId }: SessionHead, count: number): Promise<ForkEstimate['memoryBytes']> {
    const { sandboxes } = this.#context
    // It may be lost, or not started yet.
    const sandbox = await sandboxes.get(orgId, sandboxId).catch(ignoreNotFound)
    if (sandbox === undefined) return {}
    const used = (await sandboxes.usage.readRecent(orgId, sandboxId)).now?.memoryBytes
    const now = used === undefined ? undefined : count * used
    return { ...defined({ now }), max: count * sandbox.memoryMb * mebibyte }
  }

  async #sessionsLeft(orgId: string): Promise<number | undefined> {
    const { store, sessionsMaxOf } = this.#context
    const max = sessionsMaxOf?.(orgId) ?? Infinity
    return max === Infinity ? undefined : Math.max(0, max - (await store.countRunning(orgId)))
  }
}

const mebibyte = 1024 * 1024
