import { createHmac } from 'node:crypto'
import { equalSecrets, previewTokenPrefix } from '../lib/secret.ts'

const tokenMs = 60_000
const cookieMs = 12 * 3_600_000
/** An end in milliseconds, to the base of 36, and a code. The prefix makes it a credential that enters no sandbox (`credentials.ts`). */
const tokenPattern = new RegExp(`^${previewTokenPrefix}visit_([0-9a-z]{1,11})_([\\w-]{43})$`)
const cookiePattern = /^([0-9a-z]{1,11})\.([\w-]{43})$/

/** A preview at one of its host names. `tokenHash`: of the token that it demands. */
export interface Guarded {
  hostname: string
  tokenHash: string
}

/**
 * Visits of a preview with a token by who has no token of it, and may reach it with an API key. The API gives out a token for one host name and a minute,
 * and the proxy takes it for a cookie of some hours. Both are codes of the server, so there is nothing to store; another token of the preview ends
 * them. Neither is worth anything as the other.
 */
export class Visits {
  readonly #secret: string

  constructor(signingSecret: string) {
    this.#secret = signingSecret
  }

  begin(preview: Guarded): { token: string; expiresAt: Date } {
    const expiresAt = new Date(Date.now() + tokenMs)
    const end = expiresAt.getTime().toString(36)
    return { token: `${previewTokenPrefix}visit_${end}_${this.#code('token', preview, end)}`, expiresAt }
  }

  isToken(text: string, preview: Guarded): boolean {
    return this.#holds('token', preview, tokenPattern.exec(text))
  }

  /** The value of the cookie, and the seconds until its end. */
  cookie(preview: Guarded): { value: string; maxAgeSeconds: number } {
    const end = (Date.now() + cookieMs).toString(36)
    return { value: `${end}.${this.#code('cookie', preview, end)}`, maxAgeSeconds: cookieMs / 1000 }
  }

  isCookie(text: string, preview: Guarded): boolean {
    return this.#holds('cookie', preview, cookiePattern.exec(text))
  }

  #holds(kind: 'token' | 'cookie', preview: Guarded, found: readonly string[] | null): boolean {
    const [, end = '', code = ''] = found ?? []
    return end !== '' && equalSecrets(code, this.#code(kind, preview, end)) && Number.parseInt(end, 36) > Date.now()
  }

  /** NUL separates the parts, and none of them holds one. */
  #code(kind: 'token' | 'cookie', { hostname, tokenHash }: Guarded, end: string): string {
    const text = [`preview visit ${kind}`, hostname, tokenHash, end].join('\0')
    return createHmac('sha256', this.#secret).update(text).digest('base64url')
  }
}
