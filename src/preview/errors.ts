import { STATUS_CODES, type IncomingMessage, type ServerResponse } from 'node:http'
import { isServiceError, type ErrorCode, type ServiceError } from '../errors.ts'
import { statusOf } from '../lib/error-status.ts'
import { escapeHtml, framedPagePolicy, htmlPage, pagePolicy } from '../lib/html.ts'
import { lingerOnClose } from '../lib/linger.ts'

export const unknownHost: PreviewError = {
  code: 'not_found',
  message: 'No sandbox has this address',
  advice: 'Check the name: a preview is <sandbox>-p<port> and the host of the previews.',
}
export const stopped: PreviewError = {
  code: 'sandbox_stopped',
  message: 'This sandbox is stopped',
  advice: 'It was stopped for good.',
}
export const wrongToken: PreviewError = {
  code: 'unauthorized',
  message: 'This preview needs a token',
  advice: 'The owner of the sandbox has it. Programs send it as "Authorization: Bearer …" or as "X-OC-Preview-Token".',
  headers: { 'www-authenticate': 'Bearer' },
  asksForToken: true,
}
export const badAnswer: PreviewError = {
  code: 'nothing_listening',
  message: 'The server in the sandbox closed the connection or sent an invalid answer',
  advice: 'See its output.',
}
export const unavailable: PreviewError = {
  code: 'unavailable',
  message: 'The sandbox cannot be reached right now',
  advice: 'It may be waking up, or the machine is busy.',
  headers: { 'retry-after': '1' },
  reloads: true,
}

function nothingListens(port: number): PreviewError {
  return {
    code: 'nothing_listening',
    message: `Nothing listens on port ${port} of this sandbox`,
    advice: 'Start a server on this port, or wait until it is up.',
    reloads: true,
  }
}

function ofTheAgent(port: number): PreviewError {
  return {
    code: 'forbidden',
    message: `Port ${port} belongs to the agent of this sandbox`,
    advice: 'Previews do not reach the agent. Serve the page on another port.',
  }
}

type Known = (port: number, error: ServiceError) => PreviewError

/** The answer for each error of a dial; null for errors that only a bug of ours can cause here. */
const byCode: Record<ErrorCode, Known | null> = {
  nothing_listening: nothingListens,
  forbidden: ofTheAgent,
  sandbox_stopped: () => stopped,
  not_found: () => unknownHost,
  conflict: () => ({
    code: 'conflict',
    message: 'This sandbox cannot answer in its current state',
    advice: 'The API shows the state and its reason.',
  }),
  unavailable: () => unavailable,
  no_capacity: () => ({
    ...unavailable,
    code: 'no_capacity',
    message: 'There is no capacity to wake this sandbox right now',
    advice: 'Another sandbox must stop or hibernate first.',
  }),
  rate_limited: (_port, { details }) => ({
    ...unavailable,
    code: 'rate_limited',
    message: 'This sandbox is hibernated, and its organisation runs as many sandboxes as it may',
    advice: 'One of them must stop or hibernate first.',
    headers: { 'retry-after': retryAfter(details['retryAfterSeconds']) },
  }),
  patch_failed: () => ({
    code: 'patch_failed',
    message: 'A patch of this sandbox failed, so it was not woken',
    advice: 'An API call that wakes the sandbox says which patch failed and why.',
  }),
  disk_full: () => ({
    code: 'disk_full',
    message: 'The disk of this sandbox is full, so it was not woken',
    advice: 'An API call that wakes the sandbox says which file found no space.',
  }),
  full_checkpoint_unavailable: () => ({
    ...unavailable,
    code: 'full_checkpoint_unavailable',
    message: 'The memory of this sandbox cannot be restored on this machine',
    advice: 'The API says why.',
    reloads: false,
  }),
  memory_not_restorable: () => ({
    code: 'memory_not_restorable',
    message: 'The memory of this sandbox cannot be restored',
    advice: 'The API says why, and wakes it from its disk: `wake` with `memory: false`.',
  }),
  organisation_suspended: () => ({
    code: 'organisation_suspended',
    message: 'The organisation of this sandbox is suspended',
    advice: 'Its operator can resume it.',
  }),
  invalid_request: null,
  build_failed: null,
  unauthorized: null,
  scaling_locked: null,
  quota_exceeded: null,
  oom_floor: null,
  signature_invalid: null,
  signature_expired: null,
  idempotency_key_conflict: null,
  too_large: null,
  not_implemented: null,
  events_expired: null,
  internal_error: null,
}

function retryAfter(seconds: unknown): string {
  return String(typeof seconds === 'number' ? Math.max(1, Math.ceil(seconds)) : 1)
}

/** The answer when a sandbox cannot be reached; undefined for our own bugs. */
export function errorFor(error: unknown, port: number): PreviewError | undefined {
  return isServiceError(error) ? byCode[error.code]?.(port, error) : undefined
}

export const internalError: PreviewError = {
  code: 'internal_error',
  message: 'Something went wrong here',
}

/** Time until a page of an error that may pass reloads. */
const reloadSeconds = 2

export interface PreviewError {
  code: ErrorCode
  /** For a person, without the final dot. */
  message: string
  /** Shown on the page: what the reader can do. */
  advice?: string
  headers?: Record<string, string>
  /** The page reloads itself, since the error may pass. */
  reloads?: boolean
  /** The page has a form for the token. */
  asksForToken?: boolean
  /** Answers with a page whatever the method: a person has sent the form. */
  isPage?: boolean
}

/** Answers with an error: a page for browsers, JSON for programs. */
export function sendError(request: IncomingMessage, response: ServerResponse, error: PreviewError): void {
  if (response.headersSent || response.destroyed) {
    response.destroy()
    return
  }
  const { code, message, headers = {} } = error
  const isPage = error.isPage ?? isForPerson(request)
  const body = isPage ? page(error) : `${JSON.stringify({ error: message, code })}\n`
  response.writeHead(statusOf[code], {
    ...headers,
    'content-type': isPage ? 'text/html; charset=utf-8' : 'application/json; charset=utf-8',
    'content-length': String(Buffer.byteLength(body)),
    'cache-control': 'no-store',
    vary: 'accept',
    // Where a page of the preview may be framed, its errors are seen too. Nobody else's frame may ask for a token.
    ...(isPage ? { 'content-security-policy': error.asksForToken ? formPolicy : framedPagePolicy } : {}),
    // A stricter policy would hide the origin of the form.
    ...(error.asksForToken ? { 'referrer-policy': 'same-origin' } : {}),
    // The unread rest of the body must not be parsed as the next request.
    ...(request.complete ? {} : { connection: 'close' }),
  })
  if (!request.complete) lingerOnClose(request.socket)
  response.end(request.method === 'HEAD' ? undefined : body)
}

/** The answer as text, for a socket that was not upgraded. */
export function errorText({ code, message, headers = {} }: PreviewError): string {
  const statusCode = statusOf[code]
  const body = `${JSON.stringify({ error: message, code })}\n`
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`)
  return (
    `HTTP/1.1 ${statusCode} ${STATUS_CODES[statusCode] ?? 'Error'}\r\n${lines.join('')}` +
    `content-type: application/json; charset=utf-8\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`
  )
}

/** Browsers accept HTML when a person navigates; scripts and programs do not. */
export function isForPerson({ method, headers }: IncomingMessage): boolean {
  return (method === 'GET' || method === 'HEAD') && (headers.accept ?? '').includes('text/html')
}

function page({ code, message, advice, reloads, asksForToken }: PreviewError): string {
  const statusCode = statusOf[code]
  const note = reloads ? '<p class="wait" role="status"><i></i>This page reloads by itself.</p>' : ''
  return htmlPage({
    title: `${statusCode} ${message}`,
    head: reloads ? `<meta http-equiv="refresh" content="${reloadSeconds}">` : '',
    style,
    body: `<main><p class="status">${statusCode} ${STATUS_CODES[statusCode] ?? ''}</p>
<h1>${escapeHtml(message)}.</h1>${asksForToken ? form : ''}${advice === undefined ? '' : `<p>${escapeHtml(advice)}</p>`}${note}
<footer>Atoll preview</footer></main>`,
  })
}

/** The field of the form that has the token. */
export const tokenField = 'atoll-preview-token'
const formPolicy = pagePolicy.replace("form-action 'none'", "form-action 'self'")
/** It is sent to the page that it stands in for, whatever that is. */
const form = `<form method="post"><label for="token">Token</label>
<div><input id="token" name="${tokenField}" type="password" maxlength="512" autocomplete="off" required autofocus><button>Open</button></div></form>`

const style = `
body{min-height:100vh;display:grid;place-items:center;padding:1.5rem}
main{width:100%;max-width:34rem}
.status{margin:0 0 .6rem;color:var(--accent);font:600 .9rem/1.4 ui-monospace,Menlo,Consolas,monospace}
h1{margin:0 0 .8rem;font-size:clamp(1.4rem,4.5vw,1.9rem);letter-spacing:-.01em}
p{margin:0 0 1rem;color:var(--soft)}
.wait{display:flex;align-items:center;gap:.6rem;padding:.6rem .8rem;background:var(--panel);border:1px solid var(--line);border-radius:.5rem}
.wait i{flex:none;width:.6rem;height:.6rem;border-radius:50%;background:var(--accent);animation:wait 1.2s ease-in-out infinite alternate}
@keyframes wait{from{opacity:.25}}
form{margin:0 0 1.2rem}
label{display:block;margin:0 0 .3rem;font-weight:600}
form div{display:flex;gap:.5rem}
input,button{padding:.55rem .75rem;border:1px solid var(--line);border-radius:.5rem;font:inherit}
input{flex:1;min-width:0;background:var(--panel);color:inherit;font-family:ui-monospace,Menlo,Consolas,monospace}
button{border-color:var(--accent);background:var(--accent);color:var(--paper);font-weight:600;cursor:pointer}
input:focus-visible,button:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
@media(prefers-reduced-motion:reduce){.wait i{animation:none}}
footer{margin-top:2.5rem;padding-top:.8rem;border-top:1px solid var(--line);color:var(--soft);font-size:.85rem}`
