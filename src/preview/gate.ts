import type { IncomingHttpHeaders } from 'node:http'
import { equalSecrets, sha256 } from '../lib/secret.ts'
import type { PreviewTarget } from '../sandbox/index.ts'

/** Headers, in lower case, that carried our token and must not reach the sandbox; undefined when the token is wrong. */
export type Admission = ReadonlySet<string> | undefined

const open: ReadonlySet<string> = new Set()

/** Asks for the token of a preview, where it has one, in constant time. It wakes nothing. */
export function admit({ tokenHash }: PreviewTarget, headers: IncomingHttpHeaders): Admission {
  if (tokenHash === undefined) return open
  const strip = new Set<string>()
  const bearer = /^Bearer +(\S+)$/i.exec(headers.authorization ?? '')?.[1]
  if (bearer !== undefined && isToken(bearer, tokenHash)) strip.add('authorization')
  const own = headers['x-oc-preview-token']
  if (typeof own === 'string' && isToken(own, tokenHash)) strip.add('x-oc-preview-token')
  return strip.size > 0 ? strip : undefined
}

function isToken(token: string, tokenHash: string): boolean {
  return equalSecrets(sha256(token), tokenHash)
}
