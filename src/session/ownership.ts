import { ServiceError } from '../errors.ts'
import { hasEnded } from './reducer.ts'
import type { Session } from './session.ts'
import type { SessionHead, SessionStore } from './store.ts'

/** Who may do what with a session. Each method throws `not_found` for one that the organisation does not have. */
export class Ownership {
  readonly #store: Pick<SessionStore, 'head' | 'session'>

  constructor(store: Pick<SessionStore, 'head' | 'session'>) {
    this.#store = store
  }

  /** Throws `not_found` for another user too. */
  async owned(orgId: string, sessionId: string, userId?: string): Promise<SessionHead> {
    return assertOwned(await this.#store.head(sessionId, orgId), sessionId, userId)
  }

  /** Throws `forbidden` for another user. */
  async owner(orgId: string, sessionId: string, userId: string): Promise<SessionHead> {
    const session = await this.owned(orgId, sessionId)
    if (session.userId === userId) return session
    throw new ServiceError('forbidden', 'user_id is not the owner of the session', { details: { field: 'user_id' } })
  }

  /** Likewise, and `conflict` for a session that has ended. */
  async steerable(orgId: string, sessionId: string, userId: string): Promise<SessionHead> {
    const session = await this.owner(orgId, sessionId, userId)
    if (session.status === 'ended') throw hasEnded()
    return session
  }

  /** All of a session that was found before: it may be gone by now. */
  async whole({ id, orgId }: Pick<Session, 'id' | 'orgId'>): Promise<Session> {
    return assertOwned(await this.#store.session(id, orgId), id, undefined)
  }
}

/** Throws `not_found` for a session that is not there or that another user owns. */
export function assertOwned<Known extends { userId: string }>(
  session: Known | undefined,
  sessionId: string,
  userId: string | undefined,
): Known {
  if (session && (userId === undefined || session.userId === userId)) return session
  throw new ServiceError('not_found', `no session ${sessionId}`)
}
