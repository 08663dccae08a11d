import type { IncomingMessage, ServerResponse } from 'node:http'
import { STATUS_CODES } from 'node:http'
import { escapeHtml, htmlPage, pagePolicy } from '../lib/html.ts'
import { lingerOnClose } from '../lib/linger.ts'

/** Seconds after which the page of something that may come looks again. */
const reloadSeconds = 2

export interface Refusal {
  statusCode: number
  code: string
  /** For a person, without the final dot. */
  message: string
  /** What can be done about it; shown on the page. */
  advice?: string
  headers?: Record<string, string>
  /** The page reloads itself: what is missing may come. */
  mayCome?: boolean
}

/** Says why there is no answer of the sandbox: a page to people, JSON to programs. */
export function refuse(request: IncomingMessage, response: ServerResponse, refusal: Refusal): void {
  if (response.headersSent || response.destroyed) {
    response.destroy()
    return
  }
  const { statusCode, code, message, headers = {} } = refusal
  const isPage = isForPerson(request)
  const body = isPage ? page(refusal) : `${JSON.stringify({ error: message, code })}\n`
  response.writeHead(statusCode, {
    ...headers,
    'content-type': isPage ? 'text/html; charset=utf-8' : 'application/json; charset=utf-8',
    'content-length': String(Buffer.byteLength(body)),
    'cache-control': 'no-store',
    vary: 'accept',
    ...(isPage ? { 'content-security-policy': pagePolicy } : {}),
    // A body that nobody reads any more must not be taken for the next request.
    ...(request.complete ? {} : { connection: 'close' }),
  })
  if (!request.complete) lingerOnClose(request.socket)
  response.end(request.method === 'HEAD' ? undefined : body)
}

/** The same over a socket that has not been upgraded. */
export function refusalText({ statusCode, code, message, headers = {} }: Refusal): string {
  const body = `${JSON.stringify({ error: message, code })}\n`
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`)
  return (
    `HTTP/1.1 ${statusCode} ${STATUS_CODES[statusCode] ?? 'Error'}\r\n${lines.join('')}` +
    `content-type: application/json; charset=utf-8\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`
  )
}

/** Browsers name HTML when a person goes somewhere; scripts and programs do not. */
function isForPerson({ method, headers }: IncomingMessage): boolean {
  return (method === 'GET' || method === 'HEAD') && (headers.accept ?? '').includes('text/html')
}

function page({ statusCode, message, advice, mayCome }: Refusal): string {
  const note = mayCome ? '<p class="wait" role="status"><i></i>This page looks again by itself.</p>' : ''
  return htmlPage({
    title: `${statusCode} ${message}`,
    head: mayCome ? `<meta http-equiv="refresh" content="${reloadSeconds}">` : '',
    style,
    body: `<main><p class="status">${statusCode} ${STATUS_CODES[statusCode] ?? ''}</p>
<h1>${escapeHtml(message)}.</h1>${advice === undefined ? '' : `<p>${escapeHtml(advice)}</p>`}${note}
<footer>Atoll preview</footer></main>`,
  })
}

const style = `
body{min-height:100vh;display:grid;place-items:center;padding:1.5rem}
main{width:100%;max-width:34rem}
.status{margin:0 0 .6rem;color:var(--accent);font:600 .9rem/1.4 ui-monospace,Menlo,Consolas,monospace}
h1{margin:0 0 .8rem;font-size:clamp(1.4rem,4.5vw,1.9rem);letter-spacing:-.01em}
p{margin:0 0 1rem;color:var(--soft)}
.wait{display:flex;align-items:center;gap:.6rem;padding:.6rem .8rem;background:var(--panel);border:1px solid var(--line);border-radius:.5rem}
.wait i{flex:none;width:.6rem;height:.6rem;border-radius:50%;background:var(--accent);animation:wait 1.2s ease-in-out infinite alternate}
@keyframes wait{from{opacity:.25}}
@media(prefers-reduced-motion:reduce){.wait i{animation:none}}
footer{margin-top:2.5rem;padding-top:.8rem;border-top:1px solid var(--line);color:var(--soft);font-size:.85rem}`
