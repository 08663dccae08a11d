import type { IncomingMessage } from 'node:http'
import { isUnder, readHost } from './host.ts'

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

/** What this server says itself. */
const ownOfRequests = new Set([
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-proto',
  'forwarded',
  'content-length',
])

/** What becomes of a header, whose name is given in lower case; without a value it does not go on. */
type Rewrite = (name: string, value: string) => string | undefined

/** Names and values as they came, in their order and with repeats, without those of one connection, each as `rewrite` has it. */
function endToEnd(message: IncomingMessage, rewrite: Rewrite): string[] {
  const named = new Set((message.headers.connection ?? '').toLowerCase().split(/[\s,]+/))
  // Where a message ends and whose it is may not be taken away by naming it.
  for (const name of ['content-length', 'host']) named.delete(name)
  const kept: string[] = []
  for (let index = 0; index + 1 < message.rawHeaders.length; index += 2) {
    const name = message.rawHeaders[index] ?? ''
    const lower = name.toLowerCase()
    if (hopByHop.has(lower) || named.has(lower)) continue
    const value = rewrite(lower, message.rawHeaders[index + 1] ?? '')
    if (value !== undefined) kept.push(name, value)
  }
  return kept
}

/** Whether a trusted proxy took the request over TLS. */
export function cameOverTls(request: IncomingMessage, isTrusted: (address: string) => boolean): boolean {
  return isTrusted(request.socket.remoteAddress ?? '') && request.headers['x-forwarded-proto'] === 'https'
}

/** The request's headers for the sandbox: its own, and who asked, through what. `framing` says where its body ends. */
export function requestHeaders(
  request: IncomingMessage,
  rewrite: Rewrite,
  isTrusted: (address: string) => boolean,
): string[] {
  const address = request.socket.remoteAddress ?? ''
  const isBehindProxy = isTrusted(address)
  const before = (name: string): string | undefined => {
    const value = isBehindProxy ? request.headers[name] : undefined
    return typeof value === 'string' && value !== '' ? value : undefined
  }
  const chain = before('x-forwarded-for')
  return [
    ...endToEnd(request, (name, value) => (ownOfRequests.has(name) ? undefined : rewrite(name, value))),
    'X-Forwarded-For',
    chain === undefined ? address : `${chain}, ${address}`,
    'X-Forwarded-Host',
    before('x-forwarded-host') ?? request.headers.host ?? '',
    'X-Forwarded-Proto',
    before('x-forwarded-proto') ?? 'http',
  ]
}

/**
 * The header that says where the request's body ends (RFC 9112 § 6), made from what was parsed. Without it a body would follow its
 * head unframed, and the sandbox would take it for the next request of that connection, which is somebody else's.
 */
export function framing({ method, headers }: IncomingMessage): string[] {
  if (headers['transfer-encoding'] !== undefined) return ['Transfer-Encoding', 'chunked']
  const isExpected = method !== 'GET' && method !== 'HEAD'
  const length = headers['content-length'] ?? (isExpected ? '0' : undefined)
  return length === undefined ? [] : ['Content-Length', length]
}

/** Whether a body follows. */
export function hasBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0
}

/** The answer's headers for the client; its cookies reach no other preview. */
export function answerHeaders(answer: IncomingMessage, previewHost: string): string[] {
  return endToEnd(answer, (name, value) => (name === 'set-cookie' ? ownCookie(value, previewHost) : value))
}

/**
 * A cookie without a `Domain` that covers the host of all previews. Browsers read more spellings of a name than this, so what is no
 * plain host name goes too; the cookie is then for the very host that sets it. (RFC 6265 § 5.2.3)
 */
function ownCookie(cookie: string, previewHost: string): string {
  const [pair = '', ...attributes] = cookie.split(';')
  const kept = attributes.filter((attribute) => {
    const [name = '', value = ''] = attribute.split('=', 2)
    if (name.trim().toLowerCase() !== 'domain') return true
    const domain = readHost(value.trim().replace(/^\./, ''))
    return domain !== undefined && domain !== previewHost && !isUnder(previewHost, domain)
  })
  return [pair, ...kept].join(';')
}
