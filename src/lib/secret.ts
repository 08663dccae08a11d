import { createHash, timingSafeEqual } from 'node:crypto'

/** In hex. Keys and tokens are kept and looked up by this: they are random, so they need no salt. */
export function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex')
}

/** Whether a text is the one whose `sha256` was kept. */
export function hasHash(text: string, hash: string): boolean {
  return equalSecrets(sha256(text), hash)
}

/** Compares two texts in a time that does not depend on where they differ. */
export function equalSecrets(a: string, b: string): boolean {
  return timingSafeEqual(createHash('sha256').update(a).digest(), createHash('sha256').update(b).digest())
}

/** Keys and preview tokens that the server makes begin so. */
export const credentialPrefix = 'atoll_'

const made = new RegExp(`^${credentialPrefix}[A-Za-z0-9_-]{40,}$`)
const sessionToken = /^st\.[a-z]+\.[0-9a-z]+\.session_[a-z0-9]+\.[A-Za-z0-9_-]{43}$/

/**
 * Whether a text looks like a key, a preview token or a session token that the server has made. It may be of another server, or
 * have expired; no other text is likely to look so.
 */
export function looksLikeCredential(text: string): boolean {
  return made.test(text) || sessionToken.test(text)
}
