import { createHmac } from 'node:crypto'
import type { FastifyRequest } from 'fastify'
import { ServiceError } from '../../errors.ts'
import { equalSecrets } from '../../lib/secret.ts'

/** `__Host-`: a browser takes it only over TLS, for one host and all paths, so no sibling host sets it (RFC 6265bis § 4.1.3.2). */
const cookieNames = { tls: '__Host-atoll', plain: 'atoll_dashboard' } as const
const lifetimeMs = 12 * 3_600_000
const valuePattern = /^([0-9a-f]{64})\.(\d{1,15})\.([\w-]{43})$/

/** What is read of a request. */
interface Asked extends Pick<FastifyRequest, 'headers' | 'method' | 'host' | 'ws'> {
  /** As a trusted proxy says it. */
  protocol: string
}

/** The key that a cookie stands for. */
export interface BrowserSession {
  /** SHA-256 of the key in hex. */
  keyHash: string
  /** No later than that of the key at sign-in. */
  endsAt: Date
  /** The same for each session of a key, and known to the server alone: what the key itself is to calls that send it. */
  credential: string
}

interface BrowserSessionsOptions {
  /** Of this server. */
  signingSecret: string
  /** Origin under which browsers reach the API, where that is known. */
  publicUrl?: string
}

/**
 * Sessions of browsers. A cookie stands for a key: it has the key's hash and its own end, and a code of the server for both. Nothing is stored. Each call
 * looks the key up anew, so what bounds or ends the key bounds and ends its sessions.
 *
 * A browser sends the cookie for pages of sibling hosts too, such as those of previews: to `SameSite` they are one site with the API. So a session
 * counts only for requests of the server's own pages (`foreignFault`).
 */
export class BrowserSessions {
  readonly #secret: string
  readonly #publicUrl: URL | undefined

  constructor({ signingSecret, publicUrl }: BrowserSessionsOptions) {
    this.#secret = signingSecret
    this.#publicUrl = publicUrl === undefined ? undefined : new URL(publicUrl)
  }

  /** The value of `Set-Cookie` that begins a session of a key. */
  begin(request: Asked, keyHash: string, keyExpiresAt?: Date): string {
    const endMs = Math.min(Date.now() + lifetimeMs, keyExpiresAt?.getTime() ?? Infinity)
    // Not `Expires`: the clock of the browser may be wrong.
    const seconds = Math.max(0, Math.floor((endMs - Date.now()) / 1000))
    return this.#cookie(request, `${keyHash}.${endMs}.${this.#code(keyHash, String(endMs))}`, seconds)
  }

  /** The value of `Set-Cookie` that removes the session of a browser. */
  end(request: Asked): string {
    return this.#cookie(request, '', 0)
  }

  /**
   * The session of a request; `ended` when it has cookies of that name and none is valid. All are tried: over plain HTTP a sibling host can set more
   * (RFC 6265 § 8.6). Only the name that fits the scheme counts.
   */
  find(request: Asked): BrowserSession | 'ended' | undefined {
    const wanted = this.#cookieName(request)
    let hasAny = false
    for (const pair of (request.headers.cookie ?? '').split(';')) {
      const [name = '', value = ''] = pair.trim().split('=', 2)
      if (name !== wanted) continue
      hasAny = true
      const session = this.#sessionOf(value)
      if (session !== undefined) return session
    }
    return hasAny ? 'ended' : undefined
  }

  /**
   * Why a request is none of the server's own pages; undefined when it is one. A browser says who asks in `Sec-Fetch-Site` (to TLS and localhost) and in
   * `Origin` (with each method but GET and HEAD, and for WebSockets).
   */
  foreignFault(request: Asked): string | undefined {
    const { headers, method, ws } = request
    const { origin, 'sec-fetch-site': site } = headers
    if (site !== undefined && site !== 'same-origin' && site !== 'none') return foreign
    if (origin !== undefined) return this.#isOwnOrigin(request, origin) ? undefined : foreign
    return (method === 'GET' || method === 'HEAD') && !ws ? undefined : unsaid
  }

  /** Throws `forbidden` for a request that no page of the server makes. */
  assertOwnPage(request: Asked): void {
    const fault = this.foreignFault(request)
    if (fault !== undefined) throw new ServiceError('forbidden', fault)
  }

  #isOwnOrigin(request: Asked, origin: string): boolean {
    if (!URL.canParse(origin)) return false
    const asking = new URL(origin)
    if (asking.host === '') return false
    if (asking.origin === this.#publicUrl?.origin) return true
    // Without TLS anybody on the way writes the page of the same host.
    return asking.host === request.host.toLowerCase() && (asking.protocol === 'https:' || !this.#isTls(request))
  }

  #sessionOf(value: string): BrowserSession | undefined {
    const [, keyHash, end = '', code = ''] = valuePattern.exec(value) ?? []
    if (keyHash === undefined || !equalSecrets(code, this.#code(keyHash, end))) return undefined
    const endsAt = new Date(Number(end))
    if (endsAt.getTime() <= Date.now()) return undefined
    return { keyHash, endsAt, credential: this.#hmac('browser credential', keyHash) }
  }

  #code(keyHash: string, end: string): string {
    return this.#hmac('browser session', keyHash, end)
  }

  /** NUL separates the parts, and none of them holds one. */
  #hmac(...parts: string[]): string {
    return createHmac('sha256', this.#secret).update(parts.join('\0')).digest('base64url')
  }

  #cookie(request: Asked, value: string, seconds: number): string {
    const secure = this.#isTls(request) ? '; Secure' : ''
    return `${this.#cookieName(request)}=${value}; Path=/; Max-Age=${seconds}; HttpOnly; SameSite=Strict${secure}`
  }

  #cookieName(request: Asked): string {
    return this.#isTls(request) ? cookieNames.tls : cookieNames.plain
  }

  /** A proxy that is not trusted says nothing of TLS; then the configured address does. */
  #isTls({ protocol, host }: Asked): boolean {
    if (/^(?:https|wss)$/.test(protocol)) return true
    return this.#publicUrl?.protocol === 'https:' && this.#publicUrl.host === host.toLowerCase()
  }
}

const foreign =
  'the session of a browser counts for pages of this server alone, and another page asks: sign in at the address of the server, or send an API key'
const unsaid =
  'a call by the session of a browser that changes something must have the Origin of this server: send an API key in place of the cookie'
