import type { IncomingMessage } from 'node:http'

/** Headers of one connection alone (RFC 9110 § 7.6.1), in lower case. `expect` has been answered by this server already. */
const hopByHop = new Set([
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'expect',
  'http2-settings',
])

/** Keys that this server made begin so; a client that mixes up hosts must not hand its key to what runs inside. */
const ownKey = /^(?:Bearer +)?atoll_/i
const keyHeaders = ['x-api-key', 'authorization']

const forwarded = new Set(['x-forwarded-for', 'x-forwarded-host', 'x-forwarded-proto', 'forwarded'])

/** Names and values as they came, in their order and with repeats, without those of one connection and without `drop`. */
export function endToEnd(message: IncomingMessage, drop: ReadonlySet<string>): string[] {
  const named = new Set((message.headers.connection ?? '').toLowerCase().split(/[\s,]+/))
  const kept: string[] = []
  for (let index = 0; index + 1 < message.rawHeaders.length; index += 2) {
    const name = message.rawHeaders[index] ?? ''
    const lower = name.toLowerCase()
    if (hopByHop.has(lower) || named.has(lower) || drop.has(lower)) continue
    kept.push(name, message.rawHeaders[index + 1] ?? '')
  }
  return kept
}

/** Whether a trusted proxy took the request over TLS. */
export function cameOverTls(request: IncomingMessage, isTrusted: (address: string) => boolean): boolean {
  return isTrusted(request.socket.remoteAddress ?? '') && request.headers['x-forwarded-proto'] === 'https'
}

/** The request's headers for the sandbox: its own, and who asked, through what. */
export function requestHeaders(
  request: IncomingMessage,
  strip: ReadonlySet<string>,
  isTrusted: (address: string) => boolean,
): string[] {
  const address = request.socket.remoteAddress ?? ''
  const isBehindProxy = isTrusted(address)
  const before = (name: string): string | undefined => {
    const value = isBehindProxy ? request.headers[name] : undefined
    return typeof value === 'string' && value !== '' ? value : undefined
  }
  const chain = before('x-forwarded-for')
  const keys = keyHeaders.filter((name) => ownKey.test(String(request.headers[name] ?? '')))
  return [
    ...endToEnd(request, new Set([...strip, ...forwarded, ...keys])),
    'X-Forwarded-For',
    chain === undefined ? address : `${chain}, ${address}`,
    'X-Forwarded-Host',
    before('x-forwarded-host') ?? request.headers.host ?? '',
    'X-Forwarded-Proto',
    before('x-forwarded-proto') ?? 'http',
  ]
}

/** Whether a body follows. */
export function hasBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0
}
