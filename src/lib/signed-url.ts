import { createHmac } from 'node:crypto'
import { equalSecrets } from './secret.ts'

/** As read from a URL, unchecked. */
export interface SignedParameters {
  /** Unix seconds. */
  expires?: string | undefined
  signature?: string | undefined
  /** Longest body in bytes. */
  maxBytes?: string | undefined
}

export interface SignUrl {
  shown: Record<string, string>
  expiresInSeconds: number
  bytesMax?: number
}

const isNumber = /^\d{1,16}$/

export type SignatureFault = 'signature_invalid' | 'signature_expired'

/** Query parameters that allow what `claims` say, in this order, until a time. Another order, or a claim more, is another signature. */
export class UrlSigner {
  readonly #secret: string

  constructor(secret: string) {
    this.#secret = secret
  }

  /** The query (without `?`) has what the URL shows of the claims. */
  sign(claims: readonly string[], { shown, expiresInSeconds, bytesMax }: SignUrl): { query: string; expiresAt: Date } {
    // Rounded up: a URL lives for the requested time or a moment longer.
    const expires = String(Math.ceil(Date.now() / 1000) + expiresInSeconds)
    const maxBytes = bytesMax === undefined ? undefined : String(bytesMax)
    const query = new URLSearchParams({ ...shown, expires })
    if (maxBytes !== undefined) query.set('maxBytes', maxBytes)
    query.set('signature', this.#signature(claims, expires, maxBytes))
    return { query: query.toString(), expiresAt: new Date(Number(expires) * 1000) }
  }

  /** Undefined when the signature holds. Claims may come from the URL too. */
  faultOf(claims: readonly string[], { expires, signature, maxBytes }: SignedParameters): SignatureFault | undefined {
    if (expires === undefined || signature === undefined) return 'signature_invalid'
    // Before the signature, which other fields that join to the same text would match too.
    if (!isNumber.test(expires) || !isNumber.test(maxBytes || '0')) return 'signature_invalid'
    if (claims.some((claim) => claim.includes('\0'))) return 'signature_invalid'
    // The signature first: never read the rest of a forged URL.
    if (!equalSecrets(signature, this.#signature(claims, expires, maxBytes))) return 'signature_invalid'
    return Number(expires) * 1000 <= Date.now() ? 'signature_expired' : undefined
  }

  // NUL separates the fields, and none of them holds one: a path holds any other character.
  #signature(claims: readonly string[], expires: string, maxBytes = ''): string {
    const text = [...claims, expires, maxBytes].join('\0')
    return createHmac('sha256', this.#secret).update(text).digest('hex')
  }
}
