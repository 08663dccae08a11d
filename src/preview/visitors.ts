import { createHmac } from 'node:crypto'
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http'
import { equalSecrets, hasHash } from '../lib/secret.ts'
import type { PreviewTarget } from '../sandbox/index.ts'
import { cookieNames, isTokenParameter, withoutToken } from './credentials.ts'
import { isForPerson, sendError, tokenField, wrongToken } from './errors.ts'
import { readHost } from './host.ts'

const formBytesMax = 8 * 1024
const formMs = 10_000

interface VisitorsOptions {
  secret: string
  /** Whether the visitor's browser speaks TLS. */
  isTls: (request: IncomingMessage) => boolean
}

/**
 * Who may use a preview with a token. Programs send the token in a header. A browser shows it once, in a form or as `?token=`, and has a
 * cookie of this host from then on. The cookie is a code for host and token, so another token ends it, and neither page nor sandbox see it.
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
    const code = this.#code(headers, tokenHash)
    return cookiesOf(headers).some((cookie) => equalSecrets(cookie, code)) && isOwnPage(headers)
  }

  /** Answers a request that shows the token in a form or in its URL, and sends its browser to the same URL without it. */
  async takeToken(target: PreviewTarget, request: IncomingMessage, response: ServerResponse): Promise<boolean> {
    const { tokenHash } = target
    if (tokenHash === undefined) return false
    const url = request.url ?? '/'
    if (isForPerson(request)) {
      if (!hasTokenIn(url, tokenHash)) return false
    } else {
      if (this.isAllowed(target, request) || !isForm(request)) return false
      const token = await tokenOfForm(request)
      if (token === undefined || response.destroyed) return false
      if (!hasHash(token, tokenHash)) {
        sendError(request, response, { ...wrongToken, message: 'That is not the token of this preview', isPage: true })
        return true
      }
    }
    response
      .writeHead(303, {
        location: localPath(withoutToken(url, tokenHash)),
        'set-cookie': this.#cookie(request, tokenHash),
        'cache-control': 'no-store',
        'content-length': '0',
      })
      .end()
    return true
  }

  #cookie(request: IncomingMessage, tokenHash: string): string {
    const isTls = this.#options.isTls(request)
    const name = isTls ? cookieNames.tls : cookieNames.plain
    const attributes = `Path=/; HttpOnly; SameSite=Lax${isTls ? '; Secure' : ''}`
    return `${name}=${this.#code(request.headers, tokenHash)}; ${attributes}`
  }

  #code({ host }: IncomingHttpHeaders, tokenHash: string): string {
    const text = `preview cookie\0${readHost(host) ?? ''}\0${tokenHash}`
    return createHmac('sha256', this.#options.secret).update(text).digest('base64url')
  }
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

function hasTokenIn(url: string, tokenHash: string): boolean {
  const query = url.indexOf('?')
  return (
    query !== -1 &&
    url
      .slice(query + 1)
      .split('&')
      .some((parameter) => isTokenParameter(parameter, tokenHash))
  )
}

/** A path that leads to no other host: browsers read `//host`, and what they make of other characters, as an address. */
function localPath(url: string): string {
  if (!url.startsWith('/')) return '/'
  return /^\/(?:[\w.~%-]|\?|$)/.test(url) ? url : `/.${url}`
}
