import type { IncomingHttpHeaders } from 'node:http'
import { hasHash } from '../lib/secret.ts'
import type { PreviewTarget } from '../sandbox/index.ts'

/** Whether a request has the token of a preview, where that demands one, compared in constant time. It wakes nothing. */
export function admits({ tokenHash }: PreviewTarget, headers: IncomingHttpHeaders): boolean {
  if (tokenHash === undefined) return true
  const bearer = /^Bearer +(\S+)$/i.exec(headers.authorization ?? '')?.[1]
  return [bearer, headers['x-oc-preview-token']].some((token) => typeof token === 'string' && hasHash(token, tokenHash))
}
