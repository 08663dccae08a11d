import { ServiceError } from '../errors.ts'
import { defined } from '../lib/defined.ts'
import { isWithin, type KeyReach } from '../lib/key-reach.ts'
import { usd } from '../lib/model-price.ts'
import { nameFault } from '../lib/resource-name.ts'
import { isStorable } from '../lib/storable.ts'
import type { DiskRef, TreeComparison } from '../sandbox/index.ts'
import { previewPort } from './config.ts'
import type { Ownership } from './ownership.ts'
import { findPlace } from './place.ts'
import { restingPoint } from './resting-point.ts'
import type { SessionDeps } from './service.ts'
import type { Session } from './session.ts'
import type { SessionHead } from './store.ts'
import { type TurnUsage, usageBetween } from './timeline.ts'
import type { Turn } from './turn.ts'

export interface CompareSession {
  userId?: string
  /** Id or name of a session, id of a checkpoint, or of a message of the session. */
  against: string
  /** Of the key that asks. */
  reach?: KeyReach
  signal?: AbortSignal
}

export interface ComparedWith {
  type: 'session' | 'checkpoint' | 'message'
  id: string
}

/** What has to change in the other side for it to become the session. */
export interface SessionComparison extends TreeComparison {
  against: ComparedWith
  folder: string
  /** Of the session. */
  own: ComparedWork
  /** Absent for a checkpoint that is no point of the session. */
  other?: ComparedWork
}

/** What a session has done so far, or one turn. */
export interface ComparedWork {
  usage: TurnUsage
  /** Of its turns. Absent for a turn that runs. */
  durationMs?: number
  /** Whether the preview answered at the end of its newest turn. */
  preview?: Turn['preview']
  /** Where its preview is now. Absent for a turn. */
  previewUrl?: string
}

interface Sides {
  session: Session
  against: ComparedWith
  /** Disks. */
  from: DiskRef
  to: DiskRef
  other: () => Promise<ComparedWork | undefined>
}

type ComparisonsContext = Pick<SessionDeps, 'store' | 'sandboxes' | 'config'> & { ownership: Ownership }

/**
 * Compares what a session has in its working folder with another state of it, or of another session. Nothing is woken. Of a session that
 * has ended it takes the newest checkpoint. All methods throw `not_found` for what is unknown, of somebody else, or not kept any more,
 * `not_implemented` where disks cannot be read, and what `Trees` throws.
 */
export class Comparisons {
  readonly #context: ComparisonsContext

  constructor(context: ComparisonsContext) {
    this.#context = context
  }

  async compare(orgId: string, sessionId: string, input: CompareSession): Promise<SessionComparison> {
    const { session, against, from, to, other } = await this.#find(orgId, sessionId, input)
    const options = { folder: session.agentConfig.cwd, signal: input.signal }
    const compared = await this.#trees().compareDisks(orgId, from, to, options)
    const [own, others] = [await this.#workOf(session), await other()]
    return { ...compared, against, folder: session.agentConfig.cwd, own, ...defined({ other: others }) }
  }

  /** The same as a unified diff. */
  async *patch(orgId: string, sessionId: string, input: CompareSession): AsyncGenerator<Uint8Array> {
    const { session, from, to } = await this.#find(orgId, sessionId, input)
    yield* this.#trees().patchDisks(orgId, from, to, { folder: session.agentConfig.cwd, signal: input.signal })
  }

  #trees() {
    const { trees } = this.#context.sandboxes
    if (trees !== undefined) return trees
    throw new ServiceError('not_implemented', 'the runtime of this server does not compare disks')
  }

  async #find(orgId: string, sessionId: string, input: CompareSession): Promise<Sides> {
    const { ownership } = this.#context
    const head = await ownership.owned(orgId, sessionId, input.userId)
    const other = await this.#other(head, input)
    return { session: await ownership.whole(head), to: await this.#diskOf(head), ...other }
  }

  async #other(head: SessionHead, input: CompareSession): Promise<Pick<Sides, 'against' | 'from' | 'other'>> {
    const { against } = input
    if (against.startsWith('msg_')) return await this.#turn(head, against)
    if (against.startsWith('cp-')) return await this.#checkpoint(head, input)
    return await this.#session(head, input)
  }

  async #turn(head: SessionHead, id: string): Promise<Pick<Sides, 'against' | 'from' | 'other'>> {
    const { store } = this.#context
    const { point } = await findPlace(store, head, { messageId: id }, 'against')
    const other = async (): Promise<ComparedWork | undefined> => await this.#workOfTurn(head, id)
    return { against: { type: 'message', id }, from: { checkpointId: point.checkpointId }, other }
  }

  async #checkpoint(
    head: SessionHead,
    { against: id, reach }: CompareSession,
  ): Promise<Pick<Sides, 'against' | 'from' | 'other'>> {
    const { store, sandboxes } = this.#context
    const found = { against: { type: 'checkpoint', id }, from: { checkpointId: id } } as const
    const point = isStorable(id) ? await store.point(head.id, id) : undefined
    if (point !== undefined) {
      const { turnId } = point
      const ofTurn = point.origin === 'turn' && turnId !== undefined
      return { ...found, other: async () => (ofTurn ? await this.#workOfTurn(head, turnId) : undefined) }
    }
    if (!isStorable(id)) throw unknown(id)
    const { checkpoint } = await sandboxes.checkpoints.get(head.orgId, id)
    if (reach !== undefined) {
      const source = await sandboxes.get(head.orgId, checkpoint.sandboxId).catch(() => undefined)
      if (source === undefined || !isWithin(reach, source)) throw new ServiceError('not_found', `no checkpoint ${id}`)
    }
    return { ...found, other: async () => undefined }
  }

  async #session(
    { orgId }: SessionHead,
    { against, userId, reach }: CompareSession,
  ): Promise<Pick<Sides, 'against' | 'from' | 'other'>> {
    const { store, ownership } = this.#context
    if (!isStorable(against)) throw unknown(against)
    const isName = nameFault(against) === undefined
    const id = isName ? await store.sessionNamed(against, orgId) : against
    const head = id === undefined ? undefined : await ownership.owned(orgId, id, userId)
    if (head === undefined || (reach !== undefined && !isWithin(reach, head))) throw unknown(against)
    return {
      against: { type: 'session', id: head.id },
      from: await this.#diskOf(head),
      other: async () => await this.#workOf(head),
    }
  }

  async #diskOf({ id, status, sandboxId, lastSequence }: SessionHead): Promise<DiskRef> {
    if (status === 'running') return { sandboxId }
    const resting = await restingPoint(this.#context.store, id, lastSequence)
    if (resting !== undefined) return { checkpointId: resting.point.checkpointId }
    throw new ServiceError('not_found', `session ${id} has ended, and no checkpoint of it is kept`)
  }

  async #workOf(session: Omit<SessionHead, 'lastSequence' | 'streamBytes' | 'historyBytes'>): Promise<ComparedWork> {
    const { store, sandboxes, config } = this.#context
    const { inputTokens, cacheReadTokens, cacheWriteTokens, outputTokens, costNanoUsd } = session
    const { durationMs } = await store.turnTotals(session.id)
    const newest = await store.turns(session.id, { limit: 2 })
    const preview = newest.find((turn) => turn.endedAt !== undefined)?.preview
    const costUsd = costNanoUsd === undefined ? undefined : usd(costNanoUsd)
    return {
      usage: { inputTokens, cacheReadTokens, cacheWriteTokens, outputTokens, ...defined({ costUsd }) },
      durationMs,
      previewUrl: config.previewUrl(sandboxes.previews.hostname(session.sandboxId, previewPort)),
      ...defined({ preview }),
    }
  }

  async #workOfTurn(session: SessionHead, messageId: string): Promise<ComparedWork | undefined> {
    const { store } = this.#context
    const turn = await store.turn(session.id, messageId)
    if (turn === undefined) return undefined
    const { usageAfter = session } = (await store.turnFacts(session.id, [messageId])).get(messageId) ?? {}
    const durationMs = turn.endedAt && turn.endedAt.getTime() - turn.startedAt.getTime()
    const { preview } = turn
    return { usage: usageBetween(turn.usageBefore, usageAfter), ...defined({ durationMs, preview }) }
  }
}

function unknown(against: string): ServiceError {
  return new ServiceError('not_found', `no session, checkpoint or message ${against.slice(0, 200)}`, {
    details: { field: 'against' },
  })
}
