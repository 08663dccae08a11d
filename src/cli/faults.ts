import { ConnectionError } from '../../sdk/src/index.ts'

/** What failed below the API, told without the texts of the operating system, of OpenSSL and of Node. */
export interface Fault {
  message: string
  code: 'local_error' | 'unreachable'
  hint?: string | undefined
}

const chainMax = 8

/** Faults of files and programs of this machine. */
const local: Record<string, string> = {
  EACCES: 'permission denied',
  EPERM: 'not permitted',
  ENOENT: 'there is no such file or folder',
  ENOTDIR: 'a part of the path is no folder',
  EISDIR: 'it is a folder',
  EEXIST: 'it exists already',
  ENOTEMPTY: 'the folder is not empty',
  ENOSPC: 'the disk is full',
  EDQUOT: 'the disk quota is used up',
  EFBIG: 'the file is too large for its file system',
  EROFS: 'the file system is read-only',
  EIO: 'the disk reports a failure',
  ELOOP: 'symbolic links lead in a circle',
  ENAMETOOLONG: 'the name is too long',
  EMFILE: 'too many files are open in this program',
  ENFILE: 'too many files are open on this machine',
  EBUSY: 'it is in use',
  ETXTBSY: 'it is running',
  EXDEV: 'it is on another file system',
  ENOMEM: 'this machine has no memory left',
  EADDRINUSE: 'another program listens there',
  EADDRNOTAVAIL: 'this machine does not have the address',
}

const certificate = 'NODE_EXTRA_CA_CERTS=FILE names the certificates of an authority of your own'
const notTls = 'what listens there speaks no TLS that this program knows: is it http:// and not https://?'

const notHttp = 'what listens there speaks no HTTP'

/** Faults of connections. */
const remote: Record<string, string> = {
  ECONNREFUSED: 'nothing listens there',
  ECONNRESET: 'the connection was closed from the other side',
  ECONNABORTED: 'the connection was closed',
  EPIPE: 'the connection was closed from the other side',
  ETIMEDOUT: 'the connection took too long',
  EHOSTUNREACH: 'there is no way to that machine',
  ENETUNREACH: 'there is no way to that network',
  EHOSTDOWN: 'that machine does not answer',
  ENOTFOUND: 'there is no machine of that name',
  EAI_AGAIN: 'the name cannot be looked up now',
  EAI_FAIL: 'the name cannot be looked up',
  EACCES: 'this machine does not allow the connection',
  EPERM: 'this machine does not allow the connection',
  EPROTO: notTls,
  UND_ERR_SOCKET: 'the connection was closed from the other side',
  UND_ERR_CONNECT_TIMEOUT: 'the connection took too long',
  UND_ERR_HEADERS_TIMEOUT: 'no answer came',
  UND_ERR_BODY_TIMEOUT: 'the answer stopped on its way',
  CERT_HAS_EXPIRED: 'its certificate has expired',
  CERT_NOT_YET_VALID: 'its certificate is not valid yet',
  CERT_REVOKED: 'its certificate is revoked',
  CERT_UNTRUSTED: 'its certificate is not trusted here',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'its certificate is signed by itself',
  SELF_SIGNED_CERT_IN_CHAIN: 'its certificate is of an authority that is not known here',
  UNABLE_TO_GET_ISSUER_CERT: 'its certificate is of an authority that is not known here',
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: 'its certificate is of an authority that is not known here',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'its certificate is of an authority that is not known here',
  ERR_TLS_CERT_ALTNAME_INVALID: 'its certificate is for another name',
}

/** Of the calls that reach other machines; all others are about files and programs here. */
const networkCalls = new Set(['connect', 'getaddrinfo', 'getnameinfo', 'bind', 'shutdown'])

interface SystemFault extends Error {
  code: string
  syscall?: string
  path?: unknown
  dest?: unknown
  port?: unknown
}

/** Tells the fault that lies under an error; undefined for one that has its own words. */
export function faultOf(error: unknown): Fault | undefined {
  const ended = error instanceof ConnectionError && /^the connection ended with \d+(.*)$/s.exec(error.message)
  if (ended) return { code: 'unreachable', message: `the connection broke${ended[1]}` }
  const fault = chainOf(error).find(isSystemFault)
  if (fault !== undefined && isLocal(fault)) return { code: 'local_error', message: localMessage(fault) }
  const [, server] = /^(.*?) cannot be reached: /s.exec(error instanceof ConnectionError ? error.message : '') ?? []
  if (fault === undefined) {
    return server === undefined
      ? undefined
      : { code: 'unreachable', message: `${server} cannot be reached: ${unnamed(error)}` }
  }
  const why = remoteReason(fault.code)
  const hint = /CERT|LEAF_SIGNATURE/.test(fault.code) ? certificate : undefined
  const message = server === undefined ? `the connection failed: ${why}` : `${server} cannot be reached: ${why}`
  return { code: 'unreachable', message, hint }
}

/** The message of an error of this program, with the text of its cause in it told plainly. */
export function plainMessage(error: Error): string {
  const { cause, message } = error
  const fault = faultOf(cause)
  if (!(cause instanceof Error) || fault === undefined || cause.message === '') return message
  // Who wrapped the cause has named the file.
  const why = isSystemFault(cause) && isLocal(cause) ? (local[cause.code] ?? cause.code) : fault.message
  return message.replace(cause.message, () => why)
}

function chainOf(error: unknown): unknown[] {
  const chain: unknown[] = []
  for (let next = error; next instanceof Error && chain.length < chainMax;) {
    chain.push(next)
    // Several addresses were tried.
    next = next instanceof AggregateError && next.cause === undefined ? next.errors[0] : next.cause
  }
  return chain
}

function isSystemFault(error: unknown): error is SystemFault {
  const { code } = error as { code?: unknown }
  return (
    typeof code === 'string' &&
    (Object.hasOwn(local, code) || Object.hasOwn(remote, code) || /^(ERR_SSL_|HPE_|UND_ERR_|CERT_)/.test(code))
  )
}

function isLocal({ code, syscall }: SystemFault): boolean {
  return syscall !== undefined && Object.hasOwn(local, code) && !networkCalls.has(syscall)
}

/** `/etc/shadow on this machine: permission denied`. */
function localMessage({ code, syscall = '', path, port }: SystemFault): string {
  const why = local[code] ?? code
  if (syscall.startsWith('spawn')) {
    const program = typeof path === 'string' ? path : syscall.replace(/^spawn ?/, '')
    return code === 'ENOENT' ? `${program} is not installed on this machine` : `${program} on this machine: ${why}`
  }
  if (syscall === 'listen') return `port ${String(port)} of this machine: ${why}`
  return typeof path === 'string' ? `${path} on this machine: ${why}` : `a file on this machine: ${why}`
}

function remoteReason(code: string): string {
  if (Object.hasOwn(remote, code)) return remote[code] ?? code
  if (code.startsWith('ERR_SSL_')) return notTls
  if (code.startsWith('HPE_')) return notHttp
  return `the connection failed (${code})`
}

/** Faults of `fetch` that have no code. */
function unnamed(error: unknown): string {
  const chain = chainOf(error) as Error[]
  const texts = chain.map(({ message }) => message)
  if (chain.some(({ name }) => name === 'HTTPParserError')) return notHttp
  if (texts.some((text) => text.includes('redirect'))) return 'it sends on to another address: name that one'
  if (texts.some((text) => text.includes('bad port'))) return 'no server may have that port'
  return 'the connection failed'
}
