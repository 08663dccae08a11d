import type { IncomingMessage, ServerResponse } from 'node:http'
import { pipeline } from 'node:stream/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { isServiceError } from '../errors.ts'
import { FairListener } from '../lib/fair-listener.ts'
import type { Log } from '../lib/log.ts'
import type { EgressEntry } from '../sandbox/index.ts'
import { sha256 } from '../lib/secret.ts'
import { estimatedUsage, UsageTap, type AnswerUsage } from '../protocol/usage-tap.ts'
import { modelRequest, type ModelRequest, type RequestTerms } from './model-request.ts'
import { defaultGatewayLimits, type GatewayLimits } from './limits.ts'
import { RequestBodies } from './request-body.ts'
import { RefusedField } from './refused-field.ts'
import { betasOf, servedOpenaiBetas } from './request-rules.ts'
import { UsageRecorder, type GatewayIdentity, type SessionMeter } from './session-meter.ts'
import { SessionWarnings, type WarnSession } from './session-warnings.ts'
import { defaultAllowList, type AllowList } from './shapes/allow.ts'
import { UpstreamCaller, UpstreamTimeout, type UpstreamAnswer } from './upstream.ts'
import { wires, type Upstream, type Wire, type WireError } from './wires.ts'

export interface GatewayOptions {
  meter: SessionMeter
  /** Model APIs. `demo` serves the model name `demo` on every wire. */
  upstreams: { anthropic?: Upstream; openai?: Upstream; demo?: Upstream }
  /** The sandbox of a peer address. A token works only from the sandbox of its session. */
  sandboxAt: (peerAddress: string) => string | undefined
  /** False for an organisation that may not call models now: its requests wait. Default: true. */
  isActive?: (orgId: string) => boolean
  /** The gateway as a rule of the egress of sandboxes. Default: it is always open, and its requests are not logged. */
  egress?: {
    /** The name of the gateway inside of sandboxes. */
    host: string
    /** The rule that closes it for a sandbox, if one does. */
    refusedBy(sandboxId: string): Promise<string | undefined>
    onEntry(entry: EgressEntry): void
  }
  /** Called once for each session and each thing that is kept out of its requests. */
  warnSession: WarnSession
  /** Default: that of `shapes/`. */
  allowList?: AllowList
  /** Never given tokens, keys or bodies. */
  log: Log
  limits?: Partial<GatewayLimits>
}

/** Headers of the client that reach the upstream. All others are dropped, above all its credentials. */
const requestHeaders = ['accept', 'user-agent', 'anthropic-version', 'anthropic-beta', 'openai-beta']

/** Headers of the upstream about its connection or our account instead of the answer. */
const droppedAnswerHeaders = new Set([
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'set-cookie',
  'content-length',
  'openai-organization',
  'openai-project',
  'anthropic-organization-id',
])

/** How long the head of a request may take to arrive. */
const headersMs = 10_000

/** Pause between two looks whether an organisation is still suspended. */
const suspendedLookMs = 100

/** Characters of a beta feature's name in a warning. */
const toldBetaMax = 100

interface Answered {
  /** The model with its provider. */
  model: string
  requestBytes: number
  answer: UpstreamAnswer
}

/**
 * The listener between sandboxes and model APIs. It checks the session's token, the model and the budget, replaces the token by the
 * real key, and streams the answer. Sandboxes are hostile clients; keys and bodies are never logged.
 */
export class Gateway {
  readonly #options: GatewayOptions
  readonly #limits: GatewayLimits
  readonly #caller: UpstreamCaller
  readonly #bodies: RequestBodies
  readonly #recorder: UsageRecorder
  readonly #warnings: SessionWarnings
  readonly #terms: RequestTerms
  readonly #listener: FairListener
  /** Requests in flight, by session. */
  readonly #running = new Map<string, number>()

  constructor(options: GatewayOptions) {
    this.#options = options
    this.#limits = { ...defaultGatewayLimits, ...options.limits }
    this.#caller = new UpstreamCaller(this.#limits)
    this.#bodies = new RequestBodies(this.#limits)
    this.#recorder = new UsageRecorder(options.meter, options.log)
    this.#warnings = new SessionWarnings(options.warnSession, options.log)
    const { openai } = options.upstreams
    this.#terms = {
      allowList: options.allowList ?? defaultAllowList,
      // Some compatible servers refuse a request with `store`, and keep nothing.
      keepsCompletions: openai !== undefined && isOpenai(openai.baseUrl),
    }
    const { connectionsMax, requestMs } = this.#limits
    this.#listener = new FairListener({
      http: { headersTimeout: Math.min(headersMs, requestMs), requestTimeout: requestMs },
      connectionsMax,
      ownerAt: options.sandboxAt,
      handle: (request, response) => this.#handle(request, response),
      log: options.log,
    })
  }

  /** Returns the port in use, for `port: 0`. */
  async listen(address: { host: string; port: number }): Promise<number> {
    return await this.#listener.listen(address)
  }

  /** Stops listening, aborts requests in flight, and resolves when their usage is recorded. */
  async close(): Promise<void> {
    await this.#listener.close()
    await this.#recorder.written()
    await this.#warnings.told()
    this.#caller.close()
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = (request.url ?? '').split('?', 1)[0] ?? ''
    const wire = Object.hasOwn(wires, path) ? wires[path] : undefined
    const fallbackWire = wire ?? wireLike(path)
    if (!wire || request.method !== 'POST') {
      answerError(response, fallbackWire, { status: 404, code: 'not_found', message: 'There is nothing here.' })
      return
    }
    const token = clientToken(request)
    const identity = token === undefined ? undefined : await this.#options.meter.identify(sha256(token))
    if (!identity || this.#options.sandboxAt(request.socket.remoteAddress ?? '') !== identity.sandboxId) {
      answerError(response, wire, { status: 401, code: 'unauthorized', message: 'The token is missing or not valid.' })
      return
    }
    const rule = await this.#options.egress?.refusedBy(identity.sandboxId)
    const told = this.#entry(identity, request, path)
    if (rule !== undefined) {
      const message = `The egress rule ${rule} refuses the model gateway.`
      answerError(response, wire, { status: 403, code: 'egress_denied', message })
      this.#options.egress?.onEntry({ ...told(response), decision: 'denied', rule })
      return
    }
    response.once('close', () => this.#options.egress?.onEntry(told(response)))
    const running = this.#running.get(identity.sessionId) ?? 0
    if (running >= this.#limits.concurrentPerSession) {
      const message = `More than ${this.#limits.concurrentPerSession} requests at a time.`
      answerError(response, wire, { status: 429, code: 'too_many_requests', message })
      return
    }
    this.#running.set(identity.sessionId, running + 1)
    try {
      if (await this.#outwaitsSuspension(identity.orgId, response)) await this.#serve(wire, identity, request, response)
      else response.destroy()
    } catch (error) {
      if (response.headersSent || response.destroyed) response.destroy()
      else answerError(response, wire, wireError(error))
      if (!isServiceError(error) && !(error instanceof UpstreamTimeout)) {
        const { sessionId } = identity
        this.#options.log.error({ err: error, sessionId, wire: wire.name }, 'gateway request failed')
      }
    } finally {
      const left = (this.#running.get(identity.sessionId) ?? 1) - 1
      if (left > 0) this.#running.set(identity.sessionId, left)
      else this.#running.delete(identity.sessionId)
    }
  }

  /**
   * Waits while the organisation is suspended. Its sandboxes are on their way to sleep, and an error would end a turn that is to go on when it is
   * resumed. False where the client has left, or the wait was too long: then it gets no answer, and asks again.
   */
  async #outwaitsSuspension(orgId: string, response: ServerResponse): Promise<boolean> {
    const until = performance.now() + this.#limits.suspendedMs
    while (this.#options.isActive?.(orgId) === false) {
      if (response.destroyed || performance.now() > until) return false
      await sleep(suspendedLookMs, undefined, { ref: false })
    }
    return true
  }

  /** What the egress log of its sandbox says of a request that begins now, once it has ended. */
  #entry({ sandboxId: sandbox }: GatewayIdentity, { socket, method = '', headers }: IncomingMessage, path: string) {
    const { bytesWritten, bytesRead } = socket
    const stated = Number(headers['content-length'])
    const begunMs = performance.now()
    const target = {
      protocol: 'http',
      host: this.#options.egress?.host ?? '',
      port: socket.localPort ?? 0,
      method,
      path,
    } as const
    return ({ statusCode: status }: ServerResponse): EgressEntry => ({
      ...{ sandbox, time: Date.now(), decision: 'allowed', ...target, status },
      // The body may have come along with the head.
      sent: Number.isSafeInteger(stated) ? stated : socket.bytesRead - bytesRead,
      received: socket.bytesWritten - bytesWritten,
      ms: Math.round(performance.now() - begunMs),
    })
  }

  async #serve(
    wire: Wire,
    identity: GatewayIdentity,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> {
    const gone = new AbortController()
    // `close` also follows a complete answer; then there is nothing left to abort.
    response.once('close', () => gone.abort())
    // The client may have left during the lookup of its token.
    if (response.destroyed) return
    try {
      const answered = await this.#ask(wire, identity, request, gone.signal)
      if ('code' in answered) answerError(response, wire, answered)
      else await this.#pass(wire, identity, answered, response, gone.signal)
    } catch (error) {
      // The client has left: there is nothing to answer.
      if (!gone.signal.aborted) throw error
    }
  }

  /** Calls the upstream until the first byte of the answer. Separate from `#pass`, so that the body can be freed while the answer streams. */
  async #ask(
    wire: Wire,
    identity: GatewayIdentity,
    request: IncomingMessage,
    signal: AbortSignal,
  ): Promise<Answered | WireError> {
    using share = this.#bodies.open(identity)
    const body = await this.#bodies.read(request, share)
    const { model, pieces, byteCount, valueCount } = await this.#read(wire, identity, body)
    // The name has its provider: the same model has another price at another provider.
    const name = this.#isDemo(model) ? model : `${wire.provider}/${model}`
    if (identity.allowedModels && !identity.allowedModels.includes(name)) {
      return { status: 403, code: 'model_not_allowed', message: 'This session may not use that model.' }
    }
    const upstream = this.#upstream(wire, model)
    if (!upstream) return { status: 404, code: 'model_not_found', message: 'No model API is configured for it.' }
    const { demoBytesMax, demoValuesMax } = this.#limits
    if (this.#isDemo(model) && (byteCount > demoBytesMax || valueCount > demoValuesMax)) {
      const message = `The demo model reads ${demoBytesMax} bytes and ${demoValuesMax} values at most.`
      return { status: 413, code: 'too_large', message }
    }
    if (!(await this.#hasBudget(identity.sessionId))) {
      // Not 429: clients retry that.
      return { status: 402, code: 'budget_exceeded', message: 'The budget of this session is spent.' }
    }
    const url = new URL(upstream.baseUrl.replace(/\/+$/, '') + wire.upstreamPath)
    const headers = { ...this.#passedHeaders(identity, request), ...wire.authHeaders(upstream) }
    const fields = { sessionId: identity.sessionId, wire: wire.name }
    const onUnanswered = (silentMs: number) => {
      this.#recorder.record(identity.sessionId, { ...estimatedUsage(byteCount, silentMs), model: name })
    }
    const call = { url, headers, pieces, byteCount, onUnanswered }
    const answer = await this.#caller.call(call, signal, this.#options.log, fields)
    return { model: name, requestBytes: byteCount, answer: withoutKey(answer, upstream.apiKey) }
  }

  async #read(wire: Wire, { sessionId }: GatewayIdentity, body: Buffer): Promise<ModelRequest> {
    try {
      return await modelRequest(wire, body, this.#terms)
    } catch (error) {
      if (error instanceof RefusedField) {
        const message = `The model gateway refused a request of the agent. ${error.message}`
        this.#warnings.warn(sessionId, error.field, 'model_field_refused', message)
      }
      throw error
    }
  }

  #passedHeaders({ sessionId }: GatewayIdentity, request: IncomingMessage): Record<string, string> {
    const headers = passedHeaders(request)
    const { served, unknown } = betasOf(headers['anthropic-beta'], this.#terms.allowList.betas)
    if (served === undefined) delete headers['anthropic-beta']
    else headers['anthropic-beta'] = served
    for (const beta of unknown) {
      const name = `anthropic-beta:${beta.slice(0, toldBetaMax)}`
      const message = `The model gateway took the beta feature ${name} out of the requests of the agent. The operator can allow it, under this name in ATOLL_GATEWAY_ALLOW.`
      this.#warnings.warn(sessionId, name, 'model_beta_removed', message)
    }
    return headers
  }

  async #hasBudget(sessionId: string): Promise<boolean> {
    try {
      await this.#recorder.checkBudget(sessionId)
      return true
    } catch (error) {
      if (!isServiceError(error) || error.code === 'unavailable' || error.code === 'internal_error') throw error
      return false
    }
  }

  #isDemo(model: string): boolean {
    return model === 'demo' && this.#options.upstreams.demo !== undefined
  }

  #upstream(wire: Wire, model: string): Upstream | undefined {
    const { demo, anthropic, openai } = this.#options.upstreams
    if (!demo || !this.#isDemo(model)) return wire.provider === 'anthropic' ? anthropic : openai
    // The demo model serves all wires at one address; OpenAI's base URL includes `/v1`.
    return { ...demo, baseUrl: demo.baseUrl.replace(/\/+$/, '') + (wire.provider === 'openai' ? '/v1' : '') }
  }

  async #pass(
    wire: Wire,
    identity: GatewayIdentity,
    { model, requestBytes, answer }: Answered,
    response: ServerResponse,
    signal: AbortSignal,
  ): Promise<void> {
    if (answer.kind === 'error') {
      // The gateway has retried it already.
      response.writeHead(answer.status, { ...answerHeaders(answer.headers), 'x-should-retry': 'false' })
      response.end(answer.body)
      return
    }
    const upstream = answer.response
    const call = { wire: wire.name, requestBytes, askedAtMs: answer.askedAtMs }
    const tap = new UsageTap(call, upstream.headers['content-type'] ?? '')
    let isRecorded = false
    const record = (usage: AnswerUsage | undefined) => {
      if (isRecorded || !usage) return
      isRecorded = true
      this.#recorder.record(identity.sessionId, { ...usage, model })
    }
    // Record before the client has the end of the answer: it may call again at once.
    upstream.on('data', (chunk: Buffer) => {
      tap.push(chunk)
      record(tap.reported)
    })
    upstream.on('end', () => record(tap.end()))
    upstream.pause()
    response.writeHead(upstream.statusCode ?? 200, answerHeaders(upstream.headers))
    response.flushHeaders()
    try {
      await pipeline(upstream, response, { signal })
    } finally {
      record(tap.end())
    }
  }
}

/** OpenAI itself, in any region, or at Azure. */
function isOpenai(baseUrl: string): boolean {
  return /(^|\.)openai\.(com|azure\.com)$/i.test(new URL(baseUrl).hostname)
}

function clientToken(request: IncomingMessage): string | undefined {
  const key = request.headers['x-api-key']
  if (typeof key === 'string' && key !== '') return key
  return /^Bearer +(\S+)$/i.exec(request.headers.authorization ?? '')?.[1]
}

function passedHeaders(request: IncomingMessage): Record<string, string> {
  // The usage is read from the passing answer, so it must not be compressed. The body was checked as JSON, so the upstream must not
  // parse it as anything else, such as a form or another character set.
  const headers: Record<string, string> = { 'accept-encoding': 'identity', 'content-type': 'application/json' }
  for (const name of requestHeaders) {
    const value = request.headers[name]
    if (typeof value === 'string') headers[name] = value
  }
  if (!servedOpenaiBetas.has(headers['openai-beta'] ?? '')) delete headers['openai-beta']
  return headers
}

function answerHeaders(headers: IncomingMessage['headers']): IncomingMessage['headers'] {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !droppedAnswerHeaders.has(name)))
}

/** Some APIs repeat the key in the error about it. */
function withoutKey(answer: UpstreamAnswer, key: string | undefined): UpstreamAnswer {
  if (answer.kind !== 'error' || !key || !answer.body.includes(key)) return answer
  return { ...answer, body: Buffer.from(answer.body.toString('utf8').replaceAll(key, '[key]')) }
}

function answerError(response: ServerResponse, wire: Wire, error: WireError): void {
  const body = JSON.stringify(wire.errorBody(error))
  response.writeHead(error.status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
    'x-should-retry': 'false',
    // The rest of the request may still be arriving and is not read.
    connection: 'close',
  })
  response.end(body)
}

/** The most likely wire of an unknown path, for the shape of its error. */
function wireLike(path: string): Wire {
  return wires[path.startsWith('/anthropic') ? '/anthropic/v1/messages' : '/openai/v1/chat/completions']!
}

function wireError(error: unknown): WireError {
  if (error instanceof UpstreamTimeout) return { status: 504, code: 'model_timeout', message: error.message }
  if (isServiceError(error, 'too_large')) return { status: 413, code: error.code, message: error.message }
  if (isServiceError(error, 'invalid_request')) return { status: 400, code: error.code, message: error.message }
  if (isServiceError(error)) return { status: 503, code: error.code, message: error.message }
  return { status: 502, code: 'model_unreachable', message: 'The model API cannot be reached.' }
}
