import type { Atoll, RequestOptions } from './atoll.ts'
import { AtollError, errorOf, RequestTimeoutError } from './errors.ts'
import { pause } from './retry.ts'
import type { ListeningPort } from './types.ts'

const redirectsMax = 20
const pollMs = 100
const pollMaxMs = 1000
const waitMsDefault = 60_000

export interface WaitForPortOptions extends RequestOptions {
  /** Default 60 000. */
  timeoutMs?: number | undefined
}

/** Where a port answers: `path` is that of the sandbox in the API, `hosts` are the names under which its server may know itself. */
export interface Port {
  client: Atoll
  path: string
  port: number
  hosts: readonly string[]
}

/** See `Sandbox.fetch`. Redirections are followed here: the platform would take them for addresses of the API. */
export async function fetchPort(at: Port, target: string, init: RequestInit = {}): Promise<Response> {
  if (!Number.isInteger(at.port) || at.port < 1 || at.port > 65_535) throw new TypeError('port must be 1 to 65535')
  const { redirect = 'follow', ...rest } = init
  const origin = `http://localhost:${at.port}`
  let request: RequestInit & { method?: string } = rest
  let url = new URL(`${origin}${target.startsWith('/') ? '' : '/'}${target}`)
  for (let redirects = 0; ; redirects += 1) {
    const answer = await ask(at, url, request)
    const location = answer.headers.get('location')
    if (redirect === 'manual' || location === null || ![301, 302, 303, 307, 308].includes(answer.status)) return answer
    const next = URL.canParse(location, url.href) ? new URL(location, url) : undefined
    const isWithin = next !== undefined && (next.origin === origin || at.hosts.includes(next.host))
    // Another server is not asked with what was meant for this one, and a stream cannot be sent twice.
    if (!isWithin || (request.body instanceof ReadableStream && answer.status > 303)) return answer
    if (redirect === 'error') throw new AtollError(`port ${at.port} redirects ${url.pathname} to ${location}`)
    if (redirects === redirectsMax)
      throw new AtollError(`port ${at.port} redirects ${target} more than ${redirectsMax} times`)
    await answer.body?.cancel()
    url = new URL(`${origin}${next.pathname}${next.search}`)
    request = redirected(request, answer.status)
  }
}

async function ask({ client, path, port }: Port, { pathname, search }: URL, init: RequestInit): Promise<Response> {
  const headers = new Headers(init.headers)
  for (const [name, value] of Object.entries(client.credentials)) headers.set(name, value)
  const isStream = init.body instanceof ReadableStream
  const answer = await client.send(`${path}/ports/${port}/proxy${pathname}${search}`, {
    ...init,
    headers,
    redirect: 'manual',
    credentials: 'omit',
    ...(isStream ? { duplex: 'half' } : {}),
  })
  // The answers of the sandbox never have it.
  if (!answer.headers.has('x-error-code')) return answer
  throw errorOf(answer.status, answer.headers, await answer.text())
}

/** As a browser goes on (https://fetch.spec.whatwg.org/#http-redirect-fetch). */
function redirected(init: RequestInit, status: number): RequestInit {
  const method = init.method?.toUpperCase() ?? 'GET'
  const becomesGet = status === 303 ? method !== 'HEAD' : status < 303 && method === 'POST'
  if (!becomesGet) return init
  const headers = new Headers(init.headers)
  for (const name of ['content-encoding', 'content-language', 'content-location', 'content-type']) headers.delete(name)
  const { body: _sent, ...rest } = init
  return { ...rest, headers, method: 'GET' }
}

/** See `Sandbox.waitForPort`. */
export async function waitForPort(
  ports: (options: RequestOptions) => Promise<ListeningPort[]>,
  port: number,
  { timeoutMs = waitMsDefault, ...options }: WaitForPortOptions,
): Promise<ListeningPort> {
  const until = Date.now() + timeoutMs
  for (let waitMs = pollMs; ; waitMs = Math.min(pollMaxMs, waitMs * 1.5)) {
    const found = (await ports(options)).find((listening) => listening.port === port)
    if (found !== undefined) return found
    const leftMs = until - Date.now()
    if (leftMs <= 0) throw new RequestTimeoutError(`nothing listens on port ${port} after ${timeoutMs} ms (timeoutMs)`)
    await pause(Math.min(waitMs, leftMs), options.signal)
  }
}
