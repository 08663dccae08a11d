import type { Fetch } from './globals.ts'
import { AtollError, ConnectionError, errorOf, RequestTimeoutError, UnexpectedAnswerError } from './errors.ts'
import { connectionReason } from './reasons.ts'
import { pause, pauseMs, type Repeat } from './retry.ts'
import { type LogOptions, logOf } from './log.ts'
import { samplesOf, type WatchMetricsOptions } from './metrics.ts'
import { pagesOf } from './pages.ts'
import type {
  EventInfo,
  HostInfo,
  ListedCheckpointInfo,
  MetricsSample,
  OwnLimits,
  Quarantine,
  Whoami,
} from './types.ts'
import { Audit } from './audit.ts'
import { Capsule } from './capsules.ts'
import { OrganisationEgress } from './egress.ts'
import { Keys } from './keys.ts'
import { Organisations } from './organisations.ts'
import { Registries } from './registries.ts'
import { Secrets } from './secrets.ts'
import { Usage } from './usage.ts'
import { Volumes } from './volumes.ts'
import { Webhooks } from './webhooks.ts'

const defaultUrl = 'http://127.0.0.1:4100'
const requestTimeoutMsDefault = 60_000
const retriesDefault = 2

export interface AtollOptions {
  /** Where the server is. Default: `ATOLL_URL`, or `http://127.0.0.1:4100`. */
  url?: string
  /** Default: `ATOLL_API_KEY`. */
  apiKey?: string
  /** How long one attempt of a request may take, its answer included. It ends no sandbox and no command. Default 60 000. */
  requestTimeoutMs?: number
  /** How often a request that failed is sent again, where that is harmless. Default 2. */
  retries?: number
  /**
   * Called with the names of options, fields and parameters that this version of the SDK or of the server does not know and has left out.
   * Default: a warning on the console, once for each name.
   */
  onIgnored?: (names: string[], request: string) => void
  /** Replaces the global `fetch`. */
  fetch?: Fetch
}

/** Options that every call takes. */
export interface RequestOptions {
  /** Ends the request and its retries. What it asked for may happen all the same. */
  signal?: AbortSignal | undefined
  /** See {@link AtollOptions.requestTimeoutMs}. */
  requestTimeoutMs?: number | undefined
}

/** Options of the calls that begin something on their own. */
export interface ClientOptions extends RequestOptions {
  /** Default: one from the environment. */
  client?: Atoll | undefined
}

export interface ListCheckpointsOptions extends RequestOptions {
  /** Only those of this sandbox, by id or name. */
  sandbox?: string | undefined
  owner?: ListedCheckpointInfo['owner'] | undefined
  /** Default: all but those of turns of sessions. */
  origin?: ListedCheckpointInfo['origin'] | undefined
}

/** A body that is sent as it is. */
export type Content = string | Uint8Array | Blob | ReadableStream<Uint8Array>

export interface Call extends RequestOptions {
  /** A list stands for as many parameters of one name. */
  query?: Record<string, string | number | boolean | readonly string[] | undefined>
  headers?: Record<string, string>
  /** Sent as JSON. */
  json?: unknown
  /** Sent as it is. A stream cannot be sent twice, so the request is not repeated. */
  body?: Content | undefined
  /** Default: `always` but for a POST, which is `refused`. */
  repeat?: Repeat
  /** A POST that takes an idempotency key gets one, the same for each attempt, and is repeated `always`. */
  creates?: boolean
}

/** A connection to one server. It holds no sockets of its own, so there is nothing to close. */
export class Atoll {
  readonly url: string
  /** How often a request that failed is sent again, where that is harmless. */
  readonly retries: number
  /** How long one attempt of a request may take, where the call does not say. */
  readonly requestTimeoutMs: number
  readonly volumes = new Volumes(this)
  readonly registries = new Registries(this)
  readonly secrets = new Secrets(this)
  readonly egress = new OrganisationEgress(this)
  readonly audit = new Audit(this)
  readonly keys = new Keys(this)
  readonly usage = new Usage(this)
  readonly webhooks = new Webhooks(this)
  /** For the operator's key. */
  readonly organisations = new Organisations(this)
  readonly #apiKey: string | undefined
  readonly #onIgnored: (names: string[], request: string) => void
  readonly #fetch: Fetch

  /** Throws `TypeError` for what is no URL or can be no key. */
  constructor(options: AtollOptions = {}) {
    const address = options.url ?? environment('ATOLL_URL') ?? defaultUrl
    const url = URL.canParse(address) ? new URL(address) : undefined
    if (url?.protocol !== 'http:' && url?.protocol !== 'https:')
      throw new TypeError(`url must begin with http:// or https://, and not be ${JSON.stringify(address)}`)
    this.url = url.href.replace(/\/+$/, '')
    this.#apiKey = options.apiKey ?? environment('ATOLL_API_KEY')
    // The message must not show it.
    if (!/^[\x21-\x7e]*$/.test(this.#apiKey ?? '')) throw new TypeError('apiKey holds characters that no key has')
    this.requestTimeoutMs = options.requestTimeoutMs ?? requestTimeoutMsDefault
    this.retries = options.retries ?? retriesDefault
    this.#onIgnored = options.onIgnored ?? warnOnce()
    this.#fetch = options.fetch ?? ((input, init) => fetch(input, init))
  }

  /** The organisation whose key this client has. */
  async whoami(options: RequestOptions = {}): Promise<Whoami> {
    return await this.json('GET', '/api/whoami', options)
  }

  /** Begins a session of this browser: it has a cookie that stands for the key. For pages of the server itself, whose client has no key. */
  async signIn(apiKey: string, options: RequestOptions = {}): Promise<Whoami> {
    return await this.json('POST', '/api/dashboard/sign-in', { json: { key: apiKey }, ...options })
  }

  /** Ends the session of this browser. */
  async signOut(options: RequestOptions = {}): Promise<void> {
    await this.json('POST', '/api/dashboard/sign-out', options)
  }

  /** What the organisation may have, and what it has. */
  async limits(options: RequestOptions = {}): Promise<OwnLimits> {
    return await this.json('GET', '/api/limits', options)
  }

  /** The machine of the server: its resources, what is left of them, and its health. `fresh`: with checks of this moment. */
  async host({ fresh, ...options }: RequestOptions & { fresh?: boolean } = {}): Promise<HostInfo> {
    return await this.json('GET', '/api/host', { ...options, query: { fresh: fresh ? true : undefined } })
  }

  /** What the server holds back, as its database or its disk does not agree with it. Asks for the key of the operator. */
  async quarantine(options: RequestOptions = {}): Promise<Quarantine> {
    return await this.json('GET', '/api/operator/quarantine', options)
  }

  /** All checkpoints, newest first, also those whose sandbox is gone and those that images and sessions have made (`owner`). */
  checkpoints({
    sandbox,
    owner,
    origin,
    ...request
  }: ListCheckpointsOptions = {}): AsyncIterable<ListedCheckpointInfo> {
    return pagesOf(this, '/api/checkpoints', { sandbox, owner, origin }, request)
  }

  /** What a link to a moment of a session shows: of its token, or its URL. */
  capsule(tokenOrUrl: string): Capsule {
    return new Capsule(this, tokenOrUrl)
  }

  /** Deletes a checkpoint by its id. Sandboxes that were started from it stay. */
  async deleteCheckpoint(id: string, options: RequestOptions = {}): Promise<void> {
    await this.json('DELETE', `/api/checkpoints/${encodeURIComponent(id)}`, options)
  }

  /**
   * What happens to the sandboxes, checkpoints, images, volumes, sessions and keys of the organisation: each event once, in order, over
   * restarts of the server, proxies and sleeps of this machine. Throws `EventsExpiredError` when the next events are deleted by now.
   */
  events(options: LogOptions = {}): AsyncGenerator<EventInfo> {
    return logOf(this, options)
  }

  /**
   * What sandboxes use (at most 200, by id): of each the last hour, thinned, then each sample as it is taken, every 15 seconds, over restarts of the server
   * and sleeps of this machine. Nothing is woken. Unknown sandboxes have no samples.
   */
  watchMetrics(sandboxIds: readonly string[], options: WatchMetricsOptions = {}): AsyncGenerator<MetricsSample> {
    return samplesOf(this, sandboxIds, options)
  }

  /** The headers that say who asks. */
  get credentials(): Record<string, string> {
    return this.#apiKey === undefined ? {} : { 'X-API-Key': this.#apiKey }
  }

  /** The address of a path of the API. */
  address(path: string, query: Call['query'] = {}): URL {
    const url = new URL(this.url + path)
    for (const [name, value] of Object.entries(query)) {
      for (const one of Array.isArray(value) ? value : [value]) {
        if (one !== undefined) url.searchParams.append(name, String(one))
      }
    }
    return url
  }

  /** Sends a request and returns the JSON of its answer; undefined without one. Throws {@link AtollError}. */
  async json<Answer>(method: string, path: string, call: Call = {}): Promise<Answer> {
    return await this.#attempts(method, path, call, (response) => jsonOf<Answer>(response, `${method} ${path}`))
  }

  /** Like `json`, with the headers of the answer, for lists with pages. */
  async page<Answer>(path: string, call: Call = {}): Promise<{ items: Answer; headers: Headers }> {
    return await this.#attempts('GET', path, call, async (response) => ({
      items: await jsonOf<Answer>(response, `GET ${path}`),
      headers: response.headers,
    }))
  }

  /** Like `json`, but returns the bytes of the answer. */
  async bytes(method: string, path: string, call: Call = {}): Promise<Uint8Array> {
    return await this.#attempts(method, path, call, async (response) => new Uint8Array(await response.arrayBuffer()))
  }

  /**
   * Returns the answer once its headers have come; its body is the caller's to read. `requestTimeoutMs` bounds the wait for the headers
   * alone. Throws {@link AtollError}.
   */
  async open(method: string, path: string, call: Call = {}): Promise<Response> {
    return await this.#attempts(method, path, call, async (response) => response)
  }

  /** Sends one request as it is, and returns its answer whatever its status. Throws {@link ConnectionError}, and the reason of its signal. */
  async send(path: string, init: RequestInit): Promise<Response> {
    try {
      return await this.#fetch(new URL(this.url + path), init)
    } catch (error) {
      init.signal?.throwIfAborted()
      throw new ConnectionError(`${this.url} cannot be reached: ${connectionReason(error)}`, { cause: error })
    }
  }

  async #attempts<Result>(
    method: string,
    path: string,
    call: Call,
    read: (response: Response) => Promise<Result>,
  ): Promise<Result> {
    const { creates = false, signal } = call
    const unknown = Object.entries(call).flatMap(([name, value]) =>
      value === undefined || callOptions.has(name) ? [] : [name],
    )
    if (unknown.length > 0) this.#onIgnored(unknown, `${method} ${path}`)
    const isStream = call.body instanceof ReadableStream
    const repeat: Repeat = isStream || (method === 'POST' && !creates) ? 'refused' : 'always'
    const headers = {
      ...this.credentials,
      ...(call.json === undefined ? {} : { 'Content-Type': 'application/json' }),
      ...(creates ? { 'Idempotency-Key': crypto.randomUUID() } : {}),
      ...call.headers,
    }
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.#attempt(method, path, { ...call, headers }, read)
      } catch (error) {
        signal?.throwIfAborted()
        const waitMs =
          error instanceof AtollError && attempt <= this.retries && !isStream
            ? pauseMs(error, call.repeat ?? repeat, attempt)
            : undefined
        if (waitMs === undefined) throw error
        await pause(waitMs, signal)
      }
    }
  }

  async #attempt<Result>(
    method: string,
    path: string,
    { query, headers, json, body, signal, requestTimeoutMs = this.requestTimeoutMs }: Call,
    read: (response: Response) => Promise<Result>,
  ): Promise<Result> {
    const late = new AbortController()
    const timer = setTimeout(() => late.abort(), requestTimeoutMs)
    try {
      const sent = json === undefined ? body : JSON.stringify(json)
      const response = await this.#fetch(this.address(path, query), {
        method,
        headers: headers ?? {},
        signal: signal ? AbortSignal.any([signal, late.signal]) : late.signal,
        redirect: 'error',
        ...(sent === undefined ? {} : { body: sent as RequestInit['body'] & {} }),
        // Node requires it for a stream.
        ...(body instanceof ReadableStream ? { duplex: 'half' } : {}),
      })
      const ignored = response.headers.get('x-atoll-ignored')
      if (ignored !== null) this.#onIgnored(ignored.split(', '), `${method} ${path}`)
      if (response.status >= 400) throw errorOf(response.status, response.headers, await response.text())
      return await read(response)
    } catch (error) {
      signal?.throwIfAborted()
      if (error instanceof AtollError) throw error
      if (late.signal.aborted) {
        const message = `${method} ${path} was not answered within ${requestTimeoutMs} ms (requestTimeoutMs)`
        throw new RequestTimeoutError(message, { cause: error })
      }
      throw new ConnectionError(`${this.url} cannot be reached: ${connectionReason(error)}`, { cause: error })
    } finally {
      clearTimeout(timer)
    }
  }
}

/** What the calls of this package pass on. Anything else is an option of the program that no call has taken. */
const callOptions: ReadonlySet<string> = new Set<keyof Call | 'client'>([
  ...(['query', 'headers', 'json', 'body', 'repeat', 'creates', 'signal', 'requestTimeoutMs', 'client'] as const),
])

/** Names that a client is warned of. */
const warnedNamesMax = 100

function warnOnce(): (names: string[], request: string) => void {
  const warned = new Set<string>()
  return (names, request) => {
    const fresh = names.filter((name) => !warned.has(name))
    if (fresh.length === 0 || warned.size >= warnedNamesMax) return
    for (const name of fresh) warned.add(name)
    console.warn(`atoll: ${request} does not know ${fresh.join(', ')}, which was left out`)
  }
}

/** The client of a call: its own, or one from the environment. */
export function clientOf({ client }: { client?: Atoll | undefined }): Atoll {
  return client ?? new Atoll()
}

async function jsonOf<Answer>(response: Response, request: string): Promise<Answer> {
  const text = await response.text()
  if (text === '') return undefined as Answer
  try {
    return JSON.parse(text) as Answer
  } catch (error) {
    throw new UnexpectedAnswerError(`${request} was answered with something else than JSON`, { cause: error })
  }
}

function environment(name: string): string | undefined {
  const { process } = globalThis as { process?: { env?: Record<string, string | undefined> } }
  return process?.env?.[name] || undefined
}
