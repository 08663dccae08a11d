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
