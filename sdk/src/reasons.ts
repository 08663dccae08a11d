const ofFiles: Record<string, string> = {
  EACCES: 'permission denied',
  EEXIST: 'exists already',
  EISDIR: 'is a folder',
  ELOOP: 'too many symbolic links',
  EMFILE: 'too many files are open',
  ENAMETOOLONG: 'the name is too long',
  ENOENT: 'there is no such file or folder',
  ENOSPC: 'the disk is full',
  ENOTDIR: 'a part of the path is no folder',
  ENOTEMPTY: 'the folder is not empty',
  EPERM: 'not permitted',
  EROFS: 'the file system is read-only',
}

const closed = 'the connection was closed from the other side'
const unknownAuthority = 'its certificate is of an authority that is not known here'

/** Why a server cannot be reached, by the codes of the system, of TLS and of Node's `fetch`. */
const reasons: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'nothing listens there',
  ECONNRESET: closed,
  EPIPE: closed,
  UND_ERR_SOCKET: closed,
  ETIMEDOUT: 'no connection came about in time',
  UND_ERR_CONNECT_TIMEOUT: 'no connection came about in time',
  UND_ERR_HEADERS_TIMEOUT: 'no answer came',
  UND_ERR_BODY_TIMEOUT: 'the answer stopped on its way',
  EHOSTUNREACH: 'there is no way to that machine',
  ENETUNREACH: 'there is no way to that network',
  ENOTFOUND: 'there is no machine of that name',
  EAI_AGAIN: 'its name cannot be looked up now',
  EPROTO: 'what listens there speaks no TLS: is its URL http and not https?',
  CERT_HAS_EXPIRED: 'its certificate has expired',
  CERT_NOT_YET_VALID: 'its certificate is not valid yet',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'its certificate is signed by itself',
  SELF_SIGNED_CERT_IN_CHAIN: unknownAuthority,
  UNABLE_TO_GET_ISSUER_CERT: unknownAuthority,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: unknownAuthority,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: unknownAuthority,
  ERR_TLS_CERT_ALTNAME_INVALID: 'its certificate is for another name',
}

const chainMax = 8

interface SystemError {
  code?: unknown
  syscall?: unknown
  path?: unknown
}

/** Why a file of this machine failed, without the text of its system; the message of any other error. */
export function fileReason(error: unknown): string {
  const { code, path, syscall } = error as SystemError
  const why = typeof code === 'string' && typeof syscall === 'string' ? ofFiles[code] : undefined
  if (why === undefined) return error instanceof Error ? error.message : String(error)
  const shown = path instanceof Uint8Array ? new TextDecoder().decode(path) : path
  return typeof shown === 'string' ? `${shown} on this machine: ${why}` : `a file of this machine: ${why}`
}

/** A plain sentence for the error of a connection. `fetch` of Node says `fetch failed`, and what lies under it has the code. */
export function connectionReason(error: unknown): string {
  let deepest = ''
  for (let next = error, depth = 0; next instanceof Error && depth < chainMax; depth += 1) {
    const { code } = next as { code?: unknown }
    if (typeof code === 'string') {
      if (code.startsWith('HPE_')) return 'what listens there speaks no HTTP'
      if (code.startsWith('ERR_SSL_')) return reasons['EPROTO'] ?? code
      if (Object.hasOwn(reasons, code)) return reasons[code] ?? code
    }
    if (next.message === 'bad port') return 'no server may have that port'
    if (next.message.includes('redirect')) return 'it sends on to another address: name that one'
    deepest = `${next.message}${typeof code === 'string' ? ` (${code})` : ''}`
    // Several addresses were tried.
    next = next instanceof AggregateError && next.cause === undefined ? next.errors[0] : next.cause
  }
  return deepest === '' ? 'the connection failed' : deepest
}
