import { createHmac, timingSafeEqual } from 'node:crypto'
import { ServiceError } from '../errors.ts'
import type { Session } from './session.ts'

/** What a token allows: `read` looks, `steer` also sends messages, takes them back and interrupts. */
export type AccessScope = 'read' | 'steer'

/** What a request with a token is about to do. `stream` is reading events, which goes on when the session has ended. */
export type AccessUse = 'stream' | AccessScope

export interface AccessToken {
  token: string
  expiresAt: Date
}

export interface SessionAccess {
  orgId: string
  expiresAt: Date
}

export const accessTtlSecondsDefault = 3600
const prefix = 'st'

/**
 * Tokens for one session that a browser may hold: `st.<scope>.<expiry in ms, base 36>.<session>.<HMAC-SHA256>`. The server keeps
 * none of them; it knows its own by the signature, also after a restart.
 */
export class AccessTokens {
  readonly #secret: string

  constructor(secret: string) {
    this.#secret = secret
  }

  issue(sessionId: string, scope: AccessScope, ttlSeconds: number): AccessToken {
    const expiresAt = new Date(Date.now() + ttlSeconds * 1000)
    const text = [prefix, scope, expiresAt.getTime().toString(36), sessionId].join('.')
    return { token: `${text}.${this.#signature(text)}`, expiresAt }
  }

  /**
   * Throws `unauthorized` for a token that is not ours, has expired or has ended with its session, `not_found` for another
   * session than its own, `forbidden` for what its scope does not allow.
   */
  async check(
    token: string,
    sessionId: string,
    use: AccessUse,
    find: (sessionId: string) => Promise<Pick<Session, 'orgId' | 'status'> | undefined>,
  ): Promise<SessionAccess> {
    const read = this.#read(token)
    if (read === undefined) throw new ServiceError('unauthorized', 'the token is not known')
    if (read.expiresAt.getTime() <= Date.now()) throw new ServiceError('unauthorized', 'the token has expired')
    if (read.sessionId !== sessionId) throw new ServiceError('not_found', `no session ${sessionId}`)
    const session = await find(sessionId)
    if (session === undefined) throw new ServiceError('unauthorized', 'the token is not known')
    if (session.status === 'ended' && use !== 'stream') {
      throw new ServiceError('unauthorized', 'the token has ended with its session')
    }
    if (use === 'steer' && read.scope !== 'steer') {
      throw new ServiceError('forbidden', 'the token may read the session, not steer it')
    }
    return { orgId: session.orgId, expiresAt: read.expiresAt }
  }

  #read(token: string): { scope: string; sessionId: string; expiresAt: Date } | undefined {
    const end = token.lastIndexOf('.')
    const text = token.slice(0, Math.max(end, 0))
    const [given, ours] = [Buffer.from(token.slice(end + 1)), Buffer.from(this.#signature(text))]
    if (given.length !== ours.length || !timingSafeEqual(given, ours)) return undefined
    const [, scope = '', expiry = '', sessionId = ''] = text.split('.')
    return { scope, sessionId, expiresAt: new Date(Number.parseInt(expiry, 36)) }
  }

  /** The secret also signs URLs of files; their signed texts begin differently. */
  #signature(text: string): string {
    return createHmac('sha256', this.#secret).update(`session token\0${text}`).digest('base64url')
  }
}
