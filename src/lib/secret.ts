import { hash, timingSafeEqual } from 'node:crypto'

/** In hex. Keys and tokens are stored and looked up by this hash. They are random, so they need no salt. */
export function sha256(text: string): string {
  return hash('sha256', text)
}

/** Whether a text has this `sha256`. */
export function hasHash(text: string, wanted: string): boolean {
  return equalSecrets(sha256(text), wanted)
}

/** Compares in constant time. */
export function equalSecrets(a: string, b: string): boolean {
  return timingSafeEqual(hash('sha256', a, 'buffer'), hash('sha256', b, 'buffer'))
}

/** The prefix of API keys. */
export const apiKeyPrefix = 'atoll_'
/** The prefix of preview tokens. They are given to visitors, so that nobody may take a key for one. */
export const previewTokenPrefix = 'pvt_'

/** The prefix of the tokens of capsules, which are given to whoever may see a moment of a session. */
export const capsuleTokenPrefix = 'moment_'

const made = new RegExp(`^(?:${apiKeyPrefix}|${previewTokenPrefix}|${capsuleTokenPrefix})[A-Za-z0-9_-]{40,}$`)
const sessionToken = /^st\.[a-z]+\.[0-9a-z]+\.session_[a-z0-9]+\.[A-Za-z0-9_-]{43}$/

/** No text that looks like a credential is shorter. */
export const credentialLengthMin = previewTokenPrefix.length + 40

/**
 * Whether a text has the form of an API key, a preview token, a session token or the token of a capsule, of any server and also when expired. No other text is
 * likely to have it.
 */
export function looksLikeCredential(text: string): boolean {
  return made.test(text) || sessionToken.test(text)
}
