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
