import { createHmac } from 'node:crypto'
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http'
import { escapeHtml, framedPagePolicy, htmlPage } from '../lib/html.ts'
import { equalSecrets, hasHash } from '../lib/secret.ts'
import type { PreviewTarget } from '../sandbox/index.ts'
import { cookieNames, isTokenParameter, withoutToken } from './credentials.ts'
import { isForPerson, sendError, tokenField, wrongToken } from './errors.ts'
import { readHost } from './host.ts'
import type { Guarded, Visits } from './visits.ts'

const formBytesMax = 8 * 1024
const formMs = 10_000

interface VisitorsOptions {
  secret: string
  visits: Visits
  /** Whether the visitor's browser speaks TLS. */
  isTls: (request: IncomingMessage) => boolean
}

/** How a browser came in: by the token of the preview, or by one for a visit that the API gave out. */
type Way = 'token' | 'visit'

/**
 * Who may use a preview with a token. Programs send the token in a header. A browser shows it once, in a form or as `?token=`, and has a
 * cookie of this host from then on. The cookie is a code for host and token, so another token ends it, and neither page nor sandbox see it.
 *
 * Only a token for a visit lets a preview into a frame. Its cookie is for frames of the one site that has shown the token (`Partitioned`), where the
 * browser is known to be told so securely. The answer is no redirection but a page that goes on by itself: what follows is then asked for by
 * the preview and not by the page around it, and the rule for cookies (`isOwnPage`) is the same in a frame as elsewhere.
 */
export class Visitors {
  readonly #options: VisitorsOptions

  constructor(options: VisitorsOptions) {
    this.#options = options
  }

  /** Compares in constant time and does not wake the sandbox. */
  isAllowed({ tokenHash }: PreviewTarget, { headers }: IncomingMessage): boolean {
    if (tokenHash === undefined) return true
    const bearer = /^Bearer +(\S+)$/i.exec(headers.authorization ?? '')?.[1]
    const tokens = [bearer, headers['x-oc-preview-token']]
    if (tokens.some((token) => typeof token === 'string' && hasHash(token, tokenHash))) return true
    const preview = guarded(headers, tokenHash)
    const code = this.#code(preview)
    const isOurs = (cookie: string) => equalSecrets(cookie, code) || this.#options.visits.isCookie(cookie, preview)
    return cookiesOf(headers).some(isOurs) && isOwnPage(headers)
  }

  /** Answers a request that shows a token in a form or in its URL, and sends its browser to the same URL without it. */
  async takeToken(target: PreviewTarget, request: IncomingMessage, response: ServerResponse): Promise<boolean> {
    const { tokenHash } = target
    if (tokenHash === undefined) return false
    const { url = '/', headers } = request
    const preview = guarded(headers, tokenHash)
    const { visits } = this.#options
    const isVisit = (text: string) => visits.isToken(text, preview)
    let way: Way = 'token'
    if (isForPerson(request)) {
      if (hasTokenIn(url, isVisit)) way = 'visit'
      else if (!hasTokenIn(url, (text) => hasHash(text, tokenHash))) return false
    } else {
      if (this.isAllowed(target, request) || !isForm(request)) return false
      const token = await tokenOfForm(request)
      if (token === undefined || response.destroyed) return false
      if (!hasHash(token, tokenHash)) {
        sendError(request, response, { ...wrongToken, message: 'That is not the token of this preview', isPage: true })
        return true
      }
    }
    const onwards = localPath(withoutToken(url, (text) => hasHash(text, tokenHash) || isVisit(text)))
    const isFramed = way === 'visit' && headers['sec-fetch-dest'] === 'iframe'
    const cookie = way === 'token' ? this.#cookie(request, preview) : this.#visitCookie(request, preview, isFramed)
    if (isFramed) sendOnwards(response, onwards, cookie)
    else response.writeHead(303, { location: onwards, ...setting(cookie), 'content-length': '0' }).end()
    return true
  }

  #cookie(request: IncomingMessage, preview: Guarded): string {
    const { name, isTls } = this.#cookieName(request)
    return `${name}=${this.#code(preview)}; Path=/; HttpOnly; SameSite=Lax${isTls ? '; Secure' : ''}`
  }

  /** A frame may lie in a page of another site, where browsers keep none but partitioned cookies, and those if they are `Secure` alone. */
  #visitCookie(request: IncomingMessage, preview: Guarded, isFramed: boolean): string {
    const { name, isTls } = this.#cookieName(request)
    const { value, maxAgeSeconds } = this.#options.visits.cookie(preview)
    const isSecure = isTls || isOfThisMachine(preview.hostname)
    const site = isFramed && isSecure ? 'None; Secure; Partitioned' : `Lax${isTls ? '; Secure' : ''}`
    return `${name}=${value}; Path=/; Max-Age=${maxAgeSeconds}; HttpOnly; SameSite=${site}`
  }

  #cookieName(request: IncomingMessage): { name: string; isTls: boolean } {
    const isTls = this.#options.isTls(request)
    return { name: isTls ? cookieNames.tls : cookieNames.plain, isTls }
  }

  #code({ hostname, tokenHash }: Guarded): string {
    const text = `preview cookie\0${hostname}\0${tokenHash}`
    return createHmac('sha256', this.#options.secret).update(text).digest('base64url')
  }
}

function guarded({ host }: IncomingHttpHeaders, tokenHash: string): Guarded {
  return { hostname: readHost(host) ?? '', tokenHash }
}

/** Browsers take these for secure without TLS (https://w3c.github.io/webappsec-secure-contexts/#is-origin-trustworthy). */
function isOfThisMachine(hostname: string): boolean {
  return hostname === 'localhost' || hostname.endsWith('.localhost')
}

function setting(cookie: string): Record<string, string> {
  return { 'set-cookie': cookie, 'cache-control': 'no-store' }
}

/** A page that leads to the path, without the token in its `Referer`. */
function sendOnwards(response: ServerResponse, path: string, cookie: string): void {
  const head = `<meta http-equiv="refresh" content="0;url=${escapeHtml(path)}">`
  const page = htmlPage({ title: 'Opening the preview', head, body: '' })
  response
    .writeHead(200, {
      ...setting(cookie),
      'content-type': 'text/html; charset=utf-8',
      'content-length': String(Buffer.byteLength(page)),
      'content-security-policy': framedPagePolicy,
      'referrer-policy': 'no-referrer',
    })
    .end(page)
}

/** The values of all cookies with our names: a page of a sibling host can set more of them (RFC 6265 § 8.6). */
function cookiesOf({ cookie = '' }: IncomingHttpHeaders): string[] {
  const names: readonly string[] = Object.values(cookieNames)
  return cookie.split(';').flatMap((pair) => {
    const [name = '', value = ''] = pair.trim().split('=', 2)
    return names.includes(name) ? [value] : []
  })
}

/**
 * Whether a page of this preview asks, or a person has followed a link. All previews are one site, so a browser sends the cookie also for the
 * page of another tenant, which must neither act here nor read.
 */
function isOwnPage(headers: IncomingHttpHeaders): boolean {
  if (headers.origin !== undefined) return isOwnOrigin(headers)
  const { 'sec-fetch-site': site, 'sec-fetch-mode': mode, 'sec-fetch-dest': dest } = headers
  return site === undefined || site === 'same-origin' || site === 'none' || (mode === 'navigate' && dest === 'document')
}

function isOwnOrigin({ origin = '', host = '' }: IncomingHttpHeaders): boolean {
  return URL.canParse(origin) && new URL(origin).host === host.toLowerCase()
}

/** Only of our own page: a form elsewhere would make its author, and not the visitor, choose what is seen. */
function isForm({ method, headers }: IncomingMessage): boolean {
  const isEncoded = /^application\/x-www-form-urlencoded(?:;|$)/i.test(headers['content-type'] ?? '')
  return method === 'POST' && isEncoded && isOwnOrigin(headers)
}

async function tokenOfForm(request: IncomingMessage): Promise<string | undefined> {
  const timer = setTimeout(() => request.destroy(), formMs)
  const chunks: Buffer[] = []
  let bytes = 0
  try {
    for await (const chunk of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
      bytes += chunk.length
      if (bytes > formBytesMax) return undefined
      chunks.push(chunk)
    }
  } catch {
    // The client has left, or was too slow.
    return undefined
  } finally {
    clearTimeout(timer)
  }
  return new URLSearchParams(Buffer.concat(chunks).toString()).get(tokenField)?.trim()
}

function hasTokenIn(url: string, isToken: (text: string) => boolean): boolean {
  const query = url.indexOf('?')
  return (
    query !== -1 &&
    url
      .slice(query + 1)
      .split('&')
      .some((parameter) => isTokenParameter(parameter, isToken))
  )
}

/** A path that leads to no other host: browsers read `//host`, and what they make of other characters, as an address. */
function localPath(url: string): string {
  if (!url.startsWith('/')) return '/'
  return /^\/(?:[\w.~%-]|\?|$)/.test(url) ? url : `/.${url}`
}
