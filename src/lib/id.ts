import { randomBytes } from 'node:crypto'

const alphabet = 'abcdefghijklmnopqrstuvwxyz0123456789'
const suffixLength = 16

/** Prefixes of ids (docs/use/api.md § Conventions), those of the OpenComputer API that are not built yet among them. */
export const idPrefixes = [
  'sb-',
  'sb-build-',
  'cp-',
  'img-',
  'ctx-',
  'pa-',
  'pv-',
  'es-',
  'ps-',
  'ag-',
  'im-',
  'vol-',
  'snap-',
  'ss-',
  'ca-',
  'whk_',
  'org_',
  'key_',
  'session_',
  'msg_',
  'evt_',
  'mom_',
] as const
export type IdPrefix = (typeof idPrefixes)[number]

/** A random id: the prefix and 16 lowercase letters or digits (about 82 bits), legal in a DNS label for prefixes ending in `-`. */
export function newId(prefix: IdPrefix): string {
  return idFrom(prefix, () => randomBytes(suffixLength))
}

/** An id of that form from random bytes: calls `nextBytes` until there are enough. */
export function idFrom(prefix: IdPrefix, nextBytes: () => Uint8Array): string {
  let suffix = ''
  while (suffix.length < suffixLength) {
    for (const byte of nextBytes()) {
      // 252 is the largest multiple of 36 below 256: bytes above it would favour some letters.
      if (byte < 252 && suffix.length < suffixLength) suffix += alphabet[byte % alphabet.length]
    }
  }
  return prefix + suffix
}
