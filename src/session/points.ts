import { setTimeout as sleep } from 'node:timers/promises'
import { ignoreNotFound, isServiceError, ServiceError } from '../errors.ts'
import { KeyedMutex } from '../lib/async/mutex.ts'
import { newId } from '../lib/id.ts'
import type { Checkpoint, CheckpointKind } from '../sandbox/index.ts'
import type { SessionDeps } from './service.ts'
import type { Session, TurnCheckpoints } from './session.ts'
import type { KeptPoint, Point } from './turn.ts'

/** Of the checkpoints of turns the newest stay, and of those before them one in ten turns. */
const newestKept = 20
const turnsPerOlder = 10
/** How long the checkpoint of a turn may take before the next one begins without, and that before a rewind, for which somebody waits. */
const timeoutMs = { turn: 30_000, undo: 600_000 } satisfies Record<Point['origin'], number>

interface TakeOptions {
  origin: Point['origin']
  kind: Exclude<TurnCheckpoints, 'none'>
}

/** Ids of the checkpoints of one call, the newest first: after one with memory has failed there is another. */
interface Taken {
  ids: [string, ...string[]]
}

/**
 * The checkpoints of sessions' turns, and those before rewinds:
 *
 *     taken ──the commit that names it──► point ──the policy, or the end of its session's history──► removed
 *       └── no commit named it: `sweep` ──────────────────────────────────────────────────────────────┘
 */
export class SessionPoints {
  readonly #deps: Pick<SessionDeps, 'store' | 'capsules' | 'sandboxes' | 'log'>
  readonly #max: number
  /** By session. */
  readonly #tending = new KeyedMutex()
  /** Of calls that have not named theirs yet. */
  readonly #taken = new Set<Taken>()

  /** `max`: of one session. */
  constructor(deps: Pick<SessionDeps, 'store' | 'capsules' | 'sandboxes' | 'log'>, max: number) {
    this.#deps = deps
    this.#max = max
  }

  /**
   * Keeps the state that a session between two turns has now, with memory where that is asked for and possible, else of the disk alone, and
   * names it by `record`. Throws what a checkpoint throws, `unavailable` when it takes too long, and what `record` throws; a checkpoint that
   * is not named then a sweep removes.
   */
  async take<Result>(
    session: Session,
    options: TakeOptions,
    record: (point: Point) => Promise<Result>,
  ): Promise<Result> {
    const taken: Taken = { ids: [newId('cp-')] }
    this.#taken.add(taken)
    try {
      return await record(await this.#inTime(this.#take(session, options, taken), timeoutMs[options.origin]))
    } finally {
      this.#taken.delete(taken)
    }
  }

  async #inTime<Result>(work: Promise<Result>, ms: number): Promise<Result> {
    const over = new AbortController()
    const late = sleep(ms, undefined, { signal: over.signal, ref: false }).then(() => {
      throw new ServiceError('unavailable', `the checkpoint was not taken within ${ms / 1000} s`)
    })
    late.catch(() => undefined)
    try {
      return await Promise.race([work, late])
    } finally {
      over.abort()
    }
  }

  async #take(session: Session, { origin, kind }: TakeOptions, taken: Taken): Promise<Point> {
    const { store } = this.#deps
    const begun = performance.now()
    const afterEvent = await store.lastSequence(session.id)
    const checkpoint = await this.#checkpoint(session, taken, kind === 'turn' ? 'full' : 'disk_only')
    const { artifacts, framework, headTurnId } = session
    return {
      checkpointId: checkpoint.id,
      origin,
      ...(headTurnId === undefined ? {} : { turnId: headTurnId }),
      afterEvent,
      kind: checkpoint.kind,
      sizeBytes: checkpoint.sizeBytes,
      durationMs: Math.round(performance.now() - begun),
      project: { artifacts, framework },
      createdAt: checkpoint.createdAt,
    }
  }

  async #checkpoint(session: Session, taken: Taken, kind: CheckpointKind): Promise<Checkpoint> {
    const { checkpoints } = this.#deps.sandboxes
    const { orgId, sandboxId } = session
    const [id] = taken.ids
    try {
      await checkpoints.create(orgId, sandboxId, { id, owner: 'turn', name: `turn ${id}`, kind })
      const checkpoint = await checkpoints.settled(orgId, id)
      if (checkpoint.status === 'ready') return checkpoint
      await this.#remove(checkpoint)
      throw new ServiceError('unavailable', checkpoint.error ?? 'the checkpoint has failed for no reason known')
    } catch (error) {
      // No CRIU, or memory that it cannot dump.
      if (kind === 'disk_only' || !isServiceError(error) || error.code === 'no_capacity') throw error
      taken.ids = [newId('cp-'), ...taken.ids]
      return await this.#checkpoint(session, taken, 'disk_only')
    }
  }

  /** Removes one that a caller has taken and named nowhere. A failure is logged, and a sweep tries again. */
  async drop(orgId: string, checkpointId: string): Promise<void> {
    await this.#remove({ orgId, id: checkpointId }).catch((error: unknown) => {
      this.#deps.log.warn({ err: error, checkpointId }, 'the checkpoint of a turn was left behind')
    })
  }

  /** Removes the points of a session that the policy does not keep, unless a fork is about to start from one or a capsule has it. */
  async tend({ id: sessionId, orgId }: Pick<Session, 'id' | 'orgId'>): Promise<void> {
    const { store, capsules } = this.#deps
    const removed = await this.whileKept(sessionId, async () => {
      const left = superfluous(await store.points(sessionId), this.#max)
      if (left.length === 0) return []
      const [inUse, needed] = [await store.startingFrom(left), await capsules.neededCheckpoints(left, new Date())]
      const unused = left.filter((id) => !inUse.has(id) && !needed.has(id))
      // First, so that no call can name them. What a crash leaves here a sweep removes.
      await store.removePoints(sessionId, unused)
      return unused
    })
    for (const id of removed) await this.drop(orgId, id)
  }

  /** Removes no point of the session during `work`, which begins to need one. */
  async whileKept<Result>(sessionId: string, work: () => Promise<Result>): Promise<Result> {
    return await this.#tending.run(sessionId, work)
  }

  /** Removes checkpoints that no session names. */
  async sweep(): Promise<void> {
    const { sandboxes, store } = this.#deps
    const all = await sandboxes.checkpoints.listOwnedBy('turn')
    if (all.length === 0) return
    const ids = all.map(({ id }) => id)
    // In this order: one is named before it is not being taken any more.
    const isTaken = new Set([...this.#taken].flatMap((taken) => taken.ids))
    const [known, inUse] = [await store.knownPoints(ids), await store.startingFrom(ids)]
    for (const { id, orgId } of all)
      if (!isTaken.has(id) && !known.has(id) && !inUse.has(id)) await this.drop(orgId, id)
  }

  async #remove({ orgId, id }: Pick<Checkpoint, 'orgId' | 'id'>): Promise<void> {
    await this.#deps.sandboxes.checkpoints.deleteOwned(orgId, id).catch(ignoreNotFound)
  }
}

/** The checkpoints that the policy does not keep, of all points of a session, oldest first. */
export function superfluous(points: readonly KeptPoint[], max: number): string[] {
  const newest = points.slice(-newestKept)
  const older = points.slice(0, -newestKept).filter(({ origin }) => origin === 'turn')
  // The last turn of ten stays in force when later ones come.
  const ofTens = new Map(older.map((point) => [Math.ceil(point.ordinal / turnsPerOlder), point]))
  const kept = new Set([...ofTens.values(), ...newest].slice(-max).map(({ checkpointId }) => checkpointId))
  return points.map(({ checkpointId }) => checkpointId).filter((id) => !kept.has(id))
}
