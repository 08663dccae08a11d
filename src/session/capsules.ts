import { randomBytes } from 'node:crypto'
import { isServiceError, ServiceError } from '../errors.ts'
import type { FairYield } from '../lib/async/fair-yield.ts'
import { Semaphore } from '../lib/async/semaphore.ts'
import type { CreateOptions, Creation } from '../lib/creation.ts'
import { defined } from '../lib/defined.ts'
import { newId } from '../lib/id.ts'
import { isWithin, type KeyReach } from '../lib/key-reach.ts'
import { capsuleTokenPrefix, sha256 } from '../lib/secret.ts'
import { assertName } from '../sandbox/index.ts'
import type { CreateViewOptions, SessionView, ViewOptions } from './api.ts'
import { capsuleFork } from './capsule-fork.ts'
import type { Capsule, CapsuleScope } from './capsule-store.ts'
import type { Ownership } from './ownership.ts'
import { findPlace, type Place } from './place.ts'
import type { SessionPoints } from './points.ts'
import type { SessionRunners } from './runners.ts'
import type { SessionDeps } from './service.ts'
import type { Message, Session } from './session.ts'
import type { SessionHead } from './store.ts'
import { Transcript } from './transcript.ts'

export interface CreateCapsule {
  userId: string
  scope: CapsuleScope
  /** The number of the newest event that it shows. Default: the newest of the session. */
  event?: number | undefined
  expiresInSeconds?: number | undefined
}

export interface MadeCapsule {
  capsule: Capsule
  /** Shown this once. */
  token: string
  /** Of scope `fork`: whether nothing of a turn lies between the disk that is kept and the event. */
  isExact?: boolean
}

/** What the holder of a link sees. */
export interface CapsuleView {
  capsule: Capsule
  session: Pick<SessionHead, 'title' | 'framework' | 'createdAt'>
  messages: Message[]
  nextCursor?: string
}

export interface CapsuleEvents {
  /** Number, and JSON text of the data. */
  events: { id: number; text: string }[]
  nextAfter?: number
}

export interface ForkCapsule {
  userId: string
  name?: string | undefined
  reach?: KeyReach | undefined
}

interface CapsulesContext extends Pick<SessionDeps, 'store' | 'capsules' | 'config' | 'isActive' | 'log'> {
  ownership: Ownership
  points: SessionPoints
  runners: SessionRunners
  pages: FairYield
  /** Throws while the server shuts down. */
  assertOpen: () => void
  assertNameFree: (orgId: string, name: string | undefined) => Promise<void>
  /** Records a session if the organisation may have another one. */
  withRoom: (orgId: string, record: () => Promise<void>) => Promise<void>
  /** The session that an earlier run of the request has made. */
  findMade: (orgId: string, options: CreateViewOptions) => Promise<SessionView | undefined>
  view: (orgId: string, sessionId: string, options: ViewOptions) => Promise<SessionView>
}

const capsuleSecondsDefault = 7 * 86_400
const livingMax = 100
/** Of a session's own, for turns that failed. */
const ownMax = 20
const forksMax = 20
/** A revoked one is known for as long as a request may be repeated. */
const revokedKeptMs = 86_400_000
const deletedAtOnce = 1000
/** Pages that are read, or not sent yet: of all capsules, and of one. Each can be some megabytes. */
const pagesOpen = { permits: 12, permitsPerKey: 3 }
/** Readers of one capsule that wait for those. */
const waitingMax = 32
const tokenForm = new RegExp(`^${capsuleTokenPrefix}[A-Za-z0-9_-]{43}$`)

/**
 * Capsules: moments of sessions that are shown to whoever has their link.
 *
 *     living ──revoked, or its time is over──► over, as if it had never been ──► deleted, with the session at the latest
 */
export class Capsules {
  readonly #context: CapsulesContext
  readonly #reads = new Semaphore(pagesOpen)

  constructor(context: CapsulesContext) {
    this.#context = context
  }

  /**
   * Makes one; also of a session that has ended. Throws `forbidden` for another user, `invalid_request` for an event that is not there,
   * `conflict` when the session has as many as it may or has no event, and for scope `fork` `not_found` when no checkpoint before the event is kept.
   */
  async create(
    orgId: string,
    sessionId: string,
    { userId, scope, event: wanted, expiresInSeconds = capsuleSecondsDefault }: CreateCapsule,
    { creation }: CreateOptions = {},
  ): Promise<MadeCapsule> {
    const { ownership, capsules, points } = this.#context
    const session = await ownership.owner(orgId, sessionId, userId)
    const token = newToken(creation)
    const [madeId] = creation?.made ?? []
    if (madeId !== undefined) return await this.#findMade(session, madeId, token)
    const event = assertEvent(session, wanted)
    return await points.whileKept(sessionId, async () => {
      const place = scope === 'fork' ? await this.#place(session, event) : undefined
      const createdAt = new Date()
      const capsule = {
        ...{ id: creation?.id('mom_') ?? newId('mom_'), orgId, sessionId, scope, event },
        ...defined({ checkpointId: place?.point.checkpointId }),
        createdAt,
        expiresAt: new Date(createdAt.getTime() + expiresInSeconds * 1000),
      }
      await capsules.insert({ ...capsule, tokenHash: sha256(token) }, { livingMax, creation })
      return { capsule: { ...capsule, forks: 0 }, token, ...defined({ isExact: place?.isExact }) }
    })
  }

  /** Those that live, newest first. Throws `not_found`, for another user too. */
  async list(orgId: string, sessionId: string, userId?: string): Promise<Capsule[]> {
    await this.#context.ownership.owned(orgId, sessionId, userId)
    return await this.#context.capsules.list(sessionId, new Date())
  }

  /** Ends one. Harmless for one that was revoked before. Throws `not_found`, for another user too. */
  async revoke(orgId: string, sessionId: string, capsuleId: string, userId?: string): Promise<void> {
    const session = await this.#context.ownership.owned(orgId, sessionId, userId)
    const revoked = await this.#context.capsules.revoke(sessionId, capsuleId, new Date())
    if (revoked === undefined) throw new ServiceError('not_found', `the session has no capsule ${capsuleId}`)
    if (revoked.checkpointId !== undefined) await this.#context.points.tend(session)
  }

  /** A page of the conversation. Throws `not_found`, in the same words for whatever is not there, and `rate_limited`. */
  async read(
    token: string,
    page: { after?: string | undefined; limit: number },
    options: ViewOptions = {},
  ): Promise<CapsuleView> {
    return await this.#reading(token, options, async (capsule, session) => {
      const { store } = this.#context
      const { limit, after } = page
      const { items, next } = await new Transcript(store, session, capsule.event).messages({
        limit,
        ...defined({ after }),
      })
      return { capsule, session, messages: items, ...defined({ nextCursor: next }) }
    })
  }

  /** A page of the stream. Throws as `read`. */
  async events(
    token: string,
    page: { after: number; limit: number },
    options: ViewOptions = {},
  ): Promise<CapsuleEvents> {
    return await this.#reading(token, options, async (capsule, session) => {
      const { items, next } = await new Transcript(this.#context.store, session, capsule.event).events(page)
      return { events: items, ...defined({ nextAfter: next }) }
    })
  }

  /**
   * A new session of any user of the same organisation, from the disk of the capsule's point. Throws `not_found` as `read`, also for another
   * organisation, `forbidden` for scope `read`, `conflict` when it has had its forks or the name is taken, and `rate_limited` when the
   * organisation has as many sessions as it may.
   */
  async fork(
    orgId: string,
    token: string,
    { userId, name, reach }: ForkCapsule,
    options: CreateViewOptions = {},
  ): Promise<SessionView> {
    const made = await this.#context.findMade(orgId, options)
    if (made) return made
    const { store, points, assertOpen, assertNameFree, runners } = this.#context
    const capsule = await this.#find(token)
    const source = capsule.orgId === orgId ? await store.session(capsule.sessionId, orgId) : undefined
    if (source === undefined || (reach !== undefined && !isWithin(reach, source))) throw noCapsule()
    if (capsule.scope !== 'fork') throw new ServiceError('forbidden', 'the capsule may be read, not forked')
    assertOpen()
    if (name !== undefined) assertName(name)
    await assertNameFree(orgId, name)
    const fork = await points.whileKept(source.id, () => this.#fork(capsule, source, { userId, name, ...options }))
    runners.start(fork)
    return await this.#context.view(orgId, fork.id, options)
  }

  /**
   * Makes one of scope `read` of a turn that has just failed, and says so in the stream, where the owner finds its link. A failure is logged:
   * the session goes on.
   */
  async afterFailedTurn(session: Pick<Session, 'id' | 'orgId' | 'sandboxId'>, turnId: string): Promise<void> {
    const { store, capsules, config, runners, log } = this.#context
    try {
      const event = (await store.turn(session.id, turnId))?.lastEvent
      if (event === undefined) return
      const token = newToken()
      const createdAt = new Date()
      const expiresAt = new Date(createdAt.getTime() + capsuleSecondsDefault * 1000)
      const { id: sessionId, orgId } = session
      const capsule = { id: newId('mom_'), orgId, sessionId, scope: 'read', reason: 'error', event } as const
      await capsules.insertOwn({ ...capsule, createdAt, expiresAt, tokenHash: sha256(token) }, ownMax)
      const url = (config.capsuleUrl ?? capsulePath)(token)
      const { id: capsule_id, scope } = capsule
      await runners.of(session).tell({ type: 'capsule_created', capsule_id, url, scope, event })
    } catch (error) {
      log.warn({ err: error, sessionId: session.id }, 'no capsule of a failed turn was made')
    }
  }

  /** Deletes those that are over, and lets go of their checkpoints. */
  async sweep(signal: AbortSignal): Promise<void> {
    const { capsules, points } = this.#context
    for (;;) {
      const now = new Date()
      const times = { expiredBy: now, revokedBy: new Date(now.getTime() - revokedKeptMs) }
      const deleted = await capsules.deleteOver(times, deletedAtOnce)
      const kept = deleted.filter(({ checkpointId }) => checkpointId !== undefined)
      const sessions = new Map(kept.map(({ sessionId: id, orgId }) => [id, { id, orgId }]))
      for (const session of sessions.values()) await points.tend(session)
      if (deleted.length < deletedAtOnce || signal.aborted) return
    }
  }

  async #fork(
    capsule: Capsule,
    source: Session,
    { userId, name, creation }: ForkCapsule & CreateOptions,
  ): Promise<Session> {
    const { store, capsules, pages, withRoom } = this.#context
    const point = await store.point(source.id, capsule.checkpointId ?? '')
    if (point === undefined) throw new ServiceError('conflict', 'the checkpoint of the capsule is gone')
    const { fork, messages, event } = await capsuleFork({ store, pages }, source, point, {
      userId,
      ...defined({ name }),
    })
    if (!(await capsules.addFork(capsule.id, new Date(), forksMax))) {
      if ((await capsules.find(source.id, capsule.id))?.forks !== forksMax) throw noCapsule()
      throw new ServiceError('conflict', `the capsule has had ${forksMax} forks, the most it may`, {
        details: { limit: forksMax },
      })
    }
    try {
      await withRoom(source.orgId, () => store.createSession(fork, messages, event, { creation }))
    } catch (error) {
      // After `unavailable` it may have been made.
      if (!isServiceError(error, 'unavailable')) await capsules.removeFork(capsule.id)
      throw error
    }
    return fork
  }

  async #place(session: SessionHead, event: number): Promise<Place> {
    return await findPlace(this.#context.store, session, { eventId: event }, 'event_id')
  }

  async #findMade(session: SessionHead, id: string, token: string): Promise<MadeCapsule> {
    const capsule = await this.#context.capsules.find(session.id, id)
    if (capsule === undefined) throw new ServiceError('not_found', `the session has no capsule ${id}`)
    const isExact = capsule.scope === 'fork' ? (await this.#place(session, capsule.event)).isExact : undefined
    return { capsule, token, ...defined({ isExact }) }
  }

  /** The capsule of a token that lives. */
  async #find(token: string): Promise<Capsule> {
    const { capsules, isActive } = this.#context
    if (!tokenForm.test(token)) throw noCapsule()
    const capsule = await capsules.living(sha256(token), new Date())
    if (capsule === undefined || isActive?.(capsule.orgId) === false) throw noCapsule()
    return capsule
  }

  /** Reads a page with what bounds the memory of all, which is free again when the page was sent. */
  async #reading<Page>(
    token: string,
    { sent }: ViewOptions,
    read: (capsule: Capsule, session: SessionHead) => Promise<Page>,
  ): Promise<Page> {
    const key = (await this.#find(token)).id
    if (this.#reads.users(key) >= waitingMax)
      throw new ServiceError('rate_limited', 'too many read this capsule at once', {
        details: { retryAfterSeconds: 1 },
      })
    const release = await this.#reads.acquire({ key })
    try {
      // It may have been revoked during the wait.
      const capsule = await this.#find(token)
      const session = await this.#context.store.head(capsule.sessionId)
      if (session === undefined) throw noCapsule()
      return await read(capsule, session)
    } finally {
      if (sent === undefined) release()
      else void sent.then(release, release)
    }
  }
}

/** Where a capsule is read. */
export function capsulePath(token: string): string {
  return `/v1/capsules/${token}`
}

/** 256 random bits. */
function newToken(creation?: Creation): string {
  return capsuleTokenPrefix + (creation?.secret('capsule') ?? randomBytes(32).toString('base64url'))
}

function assertEvent({ lastSequence }: SessionHead, wanted = lastSequence): number {
  if (lastSequence === 0) throw new ServiceError('conflict', 'the session has no event yet')
  if (wanted >= 1 && wanted <= lastSequence) return wanted
  throw new ServiceError('invalid_request', `event_id must be the number of an event: 1 to ${lastSequence}`, {
    details: { field: 'event_id' },
  })
}

/** All alike: what is wrong with a token tells nothing. */
function noCapsule(): ServiceError {
  return new ServiceError('not_found', 'there is nothing under this link, or not any more')
}
