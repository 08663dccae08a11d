import type { IncomingMessage } from 'node:http'
import { BlockList, isIP } from 'node:net'
import { isUnder, readHost } from './host.ts'
import { withoutItems } from './items.ts'

/** Headers of one connection alone (RFC 9110 § 7.6.1), in lower case. `expectation` adds `expect` where it counts. */
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

/** Headers that this server sets itself. */
const ownOfRequests = new Set([
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-proto',
  'forwarded',
  'content-length',
])

/** The new value of a header, or undefined to remove it. `name` is in lower case. */
type Rewrite = (name: string, value: string) => string | undefined

/** The end-to-end headers as name, value, name, value …, in their order and with repeats, rewritten by `rewrite`. */
function endToEnd(message: IncomingMessage, rewrite: Rewrite): string[] {
  const named = new Set((message.headers.connection ?? '').toLowerCase().split(/[\s,]+/))
  // `Connection` must not remove the headers that frame the message and name its host.
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

/** Whether a trusted proxy received the request over TLS. */
export function cameOverTls(request: IncomingMessage, isTrusted: (address: string) => boolean): boolean {
  return (
    isTrusted(request.socket.remoteAddress ?? '') && forwardedProto(request.headers['x-forwarded-proto']) === 'https'
  )
}

/** Some proxies name the scheme of a WebSocket. A server inside must see the same of a page and of its WebSocket. */
function forwardedProto(value: string | string[] | undefined): string | undefined {
  if (typeof value !== 'string') return undefined
  return value === 'wss' ? 'https' : value === 'ws' ? 'http' : value
}

/** The headers that enter the sandbox: the request's own and `X-Forwarded-*`. `framing` adds the end of the body. */
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
    forwardedProto(before('x-forwarded-proto')) ?? 'http',
  ]
}

/**
 * The header that frames the request's body (RFC 9112 § 6), made from the parsed request. Without it the sandbox would take the
 * body for the next request of the connection, which belongs to another client.
 */
export function framing({ method, headers }: IncomingMessage): string[] {
  if (headers['transfer-encoding'] !== undefined) return ['Transfer-Encoding', 'chunked']
  const isExpected = method !== 'GET' && method !== 'HEAD'
  const length = headers['content-length'] ?? (isExpected ? '0' : undefined)
  return length === undefined ? [] : ['Content-Length', length]
}

/** Whether the client waits for `100 Continue` before it sends the body (RFC 9110 § 10.1.1). HTTP/1.0 does not know it. */
export function expectsContinue({ headers, httpVersion }: IncomingMessage): boolean {
  return headers.expect !== undefined && httpVersion === '1.1'
}

export function expectation(request: IncomingMessage): string[] {
  return expectsContinue(request) ? ['Expect', '100-continue'] : []
}

export function hasBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0
}

/** Headers of an answer by which it would act beyond itself, in the whole origin of the API: the page of a tenant is not the API's. */
const ofItsOrigin = new Set([
  ...['set-cookie', 'set-cookie2', 'clear-site-data', 'service-worker-allowed', 'strict-transport-security', 'alt-svc'],
  ...['nel', 'report-to', 'reporting-endpoints', 'accept-ch', 'critical-ch', 'use-as-dictionary', 'public-key-pins'],
])
/** What the API says itself, so that a client can tell its errors from answers of the sandbox. */
const ownOfAnswers = new Set([
  ...['content-security-policy', 'content-security-policy-report-only', 'x-content-type-options', 'x-error-code'],
])

/** The headers of an answer that comes by the API, without those by which a tenant would act in the API's origin. */
export function portAnswerHeaders(answer: IncomingMessage): string[] {
  const isDropped = (name: string) =>
    ofItsOrigin.has(name) || ownOfAnswers.has(name) || name.startsWith('access-control-') || name.startsWith('x-atoll-')
  return [
    ...endToEnd(answer, (name, value) => (isDropped(name) ? undefined : value)),
    ...['Content-Security-Policy', 'sandbox', 'X-Content-Type-Options', 'nosniff'],
    ...['Access-Control-Allow-Origin', '*', 'Access-Control-Expose-Headers', '*'],
    // No cache may give the answer to who has no key.
    ...['Vary', 'X-API-Key, Authorization'],
  ]
}

/** The answer's headers for the client. Its cookies must not reach other previews. */
export function answerHeaders(answer: IncomingMessage, previewHost: string): string[] {
  return endToEnd(answer, (name, value) => (name === 'set-cookie' ? ownCookie(value, previewHost) : value))
}

const domainAttribute = /^\s*domain\s*(?:=|$)/i

/**
 * A cookie without a `Domain` that covers other previews; it is then for its own host only. Browsers accept more spellings of a name
 * than `readHost`, so a `Domain` that is no plain host name is removed too. (RFC 6265 § 5.2.3)
 */
function ownCookie(cookie: string, previewHost: string): string {
  const end = cookie.indexOf(';')
  if (end === -1) return cookie
  const isForeign = (attribute: string) => {
    if (!domainAttribute.test(attribute)) return false
    const [, value = ''] = attribute.split('=', 2)
    const domain = readHost(value.trim().replace(/^\./, ''))
    return domain === undefined || domain === previewHost || isUnder(previewHost, domain)
  }
  const kept = withoutItems(cookie.slice(end + 1), ';', 'domain'.length, isForeign)
  return kept === undefined ? cookie.slice(0, end) : `${cookie.slice(0, end)};${kept}`
}

/** Tests peer addresses against a list of addresses and CIDR blocks; `true` matches all, `false` none. */
export function addressList(proxies: boolean | readonly string[]): (address: string) => boolean {
  if (typeof proxies === 'boolean') return () => proxies
  const list = new BlockList()
  for (const proxy of proxies) {
    const [address = '', prefix] = proxy.split('/')
    const family = isIP(address) === 6 ? 'ipv6' : 'ipv4'
    list.addSubnet(address, prefix === undefined ? (family === 'ipv6' ? 128 : 32) : Number(prefix), family)
  }
  return (address) => {
    // A dual-stack listener shows IPv4 peers as `::ffff:1.2.3.4`.
    const plain = address.replace(/^::ffff:(?=\d+\.)/, '')
    return isIP(plain) !== 0 && list.check(plain, isIP(plain) === 6 ? 'ipv6' : 'ipv4')
  }
}
