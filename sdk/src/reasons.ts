const ofFiles: Record<string, string> = {
  EACCES: 'permission denied',
  EADDRINUSE: 'another program listens there',
  EADDRNOTAVAIL: 'this machine does not have the address',
  EBUSY: 'it is in use',
  EDQUOT: 'the disk quota is used up',
  EEXIST: 'it exists already',
  EFBIG: 'the file is too large for its file system',
  EIO: 'the disk reports a failure',
  EISDIR: 'it is a folder',
  ELOOP: 'symbolic links lead in a circle',
  EMFILE: 'too many files are open in this program',
  ENAMETOOLONG: 'the name is too long',
  ENFILE: 'too many files are open on this machine',
  ENOENT: 'there is no such file or folder',
  ENOMEM: 'this machine has no memory left',
  ENOSPC: 'the disk is full',
  ENOTDIR: 'a part of the path is no folder',
  ENOTEMPTY: 'the folder is not empty',
  EPERM: 'not permitted',
  EROFS: 'the file system is read-only',
  ETXTBSY: 'it is running',
  EXDEV: 'it is on another file system',
}

const closed = 'the connection was closed from the other side'
const tooLong = 'the connection took too long'
const notAllowed = 'this machine does not allow the connection'
const unknownAuthority = 'its certificate is of an authority that is not known here'

const ofCertificates: Record<string, string> = {
  CERT_HAS_EXPIRED: 'its certificate has expired',
  CERT_NOT_YET_VALID: 'its certificate is not valid yet',
  CERT_REVOKED: 'its certificate is revoked',
  CERT_UNTRUSTED: 'its certificate is not trusted here',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'its certificate is signed by itself',
  SELF_SIGNED_CERT_IN_CHAIN: unknownAuthority,
  UNABLE_TO_GET_ISSUER_CERT: unknownAuthority,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: unknownAuthority,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: unknownAuthority,
  ERR_TLS_CERT_ALTNAME_INVALID: 'its certificate is for another name',
}

const ofConnections: Record<string, string> = {
  ...ofCertificates,
  EACCES: notAllowed,
  EPERM: notAllowed,
  ECONNREFUSED: 'nothing listens there',
  ECONNABORTED: 'the connection was closed',
  ECONNRESET: closed,
  EPIPE: closed,
  UND_ERR_SOCKET: closed,
  ETIMEDOUT: tooLong,
  UND_ERR_CONNECT_TIMEOUT: tooLong,
  UND_ERR_HEADERS_TIMEOUT: 'no answer came',
  UND_ERR_BODY_TIMEOUT: 'the answer stopped on its way',
  EHOSTDOWN: 'that machine does not answer',
  EHOSTUNREACH: 'there is no way to that machine',
  ENETUNREACH: 'there is no way to that network',
  ENOTFOUND: 'there is no machine of that name',
  EAI_AGAIN: 'its name cannot be looked up now',
  EAI_FAIL: 'its name cannot be looked up',
  EPROTO: 'what listens there speaks no TLS: is its URL http:// and not https://?',
}

/** Of the calls that reach other machines; all others are about files, programs and ports here. */
const networkCalls = new Set(['connect', 'getaddrinfo', 'getnameinfo', 'bind', 'shutdown'])
const chainMax = 8

interface SystemError extends Error {
  code: string
  syscall: string
  path?: unknown
  port?: unknown
}

/** An error and its causes, outermost first. */
function chainOf(error: unknown): Error[] {
  const chain: Error[] = []
  for (let next = error; next instanceof Error && chain.length < chainMax;) {
    chain.push(next)
    // Several addresses were tried.
    next = next instanceof AggregateError && next.cause === undefined ? next.errors[0] : next.cause
  }
  return chain
}

function codeOf(error: Error): string {
  const { code } = error as { code?: unknown }
  return typeof code === 'string' ? code : ''
}

/** The failure of a file, a program or a port of this machine that lies under an error. */
function localFault(error: unknown): SystemError | undefined {
  return chainOf(error).find((one): one is SystemError => {
    const { syscall } = one as Partial<SystemError>
    return typeof syscall === 'string' && Object.hasOwn(ofFiles, codeOf(one)) && !networkCalls.has(syscall)
  })
}

function whyOf({ code, syscall }: SystemError): string {
  if (syscall === 'watch' && code === 'ENOSPC') return 'this machine has no watches left (fs.inotify.max_user_watches)'
  return ofFiles[code] ?? code
}

/** What is wrong, without where: `permission denied`. The message of an error that has words of its own. */
export function reasonOf(error: unknown): string {
  const fault = localFault(error)
  if (fault !== undefined) return whyOf(fault)
  if (isConnectionFault(error)) return connectionReason(error)
  return error instanceof Error ? error.message : String(error)
}

/** Why something of this machine failed, without the text of its system: `/etc/shadow on this machine: permission denied`. Undefined for all other errors. */
export function localReason(error: unknown): string | undefined {
  const fault = localFault(error)
  if (fault === undefined) return undefined
  const { code, syscall, path, port } = fault
  const why = whyOf(fault)
  if (syscall.startsWith('spawn')) {
    const program = typeof path === 'string' ? path : syscall.replace(/^spawn ?/, '')
    return code === 'ENOENT' ? `${program} is not installed on this machine` : `${program} on this machine: ${why}`
  }
  if (syscall === 'listen') return `port ${String(port)} of this machine: ${why}`
  const shown = path instanceof Uint8Array ? new TextDecoder().decode(path) : path
  return typeof shown === 'string' ? `${shown} on this machine: ${why}` : `a file on this machine: ${why}`
}

/** Why a connection failed, without the texts of its system, of OpenSSL and of `fetch`, whose causes have the code. */
export function connectionReason(error: unknown): string {
  const chain = chainOf(error)
  for (const one of chain) {
    const code = codeOf(one)
    if (code.startsWith('HPE_') || one.name === 'HTTPParserError') return 'what listens there speaks no HTTP'
    if (code.startsWith('ERR_SSL_')) return ofConnections['EPROTO'] ?? code
    if (Object.hasOwn(ofConnections, code)) return ofConnections[code] ?? code
    if (one.message === 'bad port') return 'no server may have that port'
    if (one.message.includes('redirect')) return 'it sends on to another address: name that one'
  }
  const deepest = chain.at(-1)
  if (deepest === undefined) return 'the connection failed'
  const code = codeOf(deepest)
  return `${deepest.message}${code === '' ? '' : ` (${code})`}`
}

/** Whether a connection failed because this machine does not trust the server's certificate. */
export function isCertificateFault(error: unknown): boolean {
  return chainOf(error).some((one) => Object.hasOwn(ofCertificates, codeOf(one)))
}

/** Whether an error is that of a connection, though nobody has said so. */
export function isConnectionFault(error: unknown): boolean {
  return chainOf(error).some(
    (one) => /^(ERR_SSL_|HPE_|UND_ERR_)/.test(codeOf(one)) || Object.hasOwn(ofConnections, codeOf(one)),
  )
}
