import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer, request as httpRequest, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { pipeline } from 'node:stream/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { backOffMs } from '../lib/async/retry.ts'
import { addTokens, noTokens, type TokenUsage } from '../lib/model-price.ts'
import { equalSecrets } from '../lib/secret.ts'
import type { ModelApi } from '../protocol/agent.ts'
import { UsageTap, type AskedCall } from '../protocol/usage-tap.ts'
import { concealSecret } from './output.ts'
import { isFromProgram } from './peer-process.ts'

/** The bounds of the gateway, which refuses larger bodies. */
const bodyBytesMax = 32 * 1024 * 1024
const errorBytesMax = 256 * 1024
const credentialBytes = 32

const passedHeaders = ['content-type', 'accept', 'user-agent', 'anthropic-version', 'anthropic-beta', 'openai-beta']

const wires: Readonly<Record<string, ModelApi>> = {
  '/anthropic/v1/messages': 'anthropic-messages',
  '/openai/v1/chat/completions': 'openai-completions',
  '/openai/v1/responses': 'openai-responses',
}

/** The calls of one turn. */
export interface ModelCalls {
  count: number
  usage: TokenUsage
  /** The failure of the last call. */
  failure: { code: 'budget_exceeded' | 'model_error'; message: string } | undefined
  /** The program attempted more calls than the turn allows. */
  stoppedAtMax: boolean
}

/**
 * The gateway for an agent program in a separate process: a loopback listener that adds the token, so the program and its commands never
 * hold it. It also counts calls and usage and records the reason of a failure, which such a program does not report.
 *
 * Other programs can reach the loopback, and a request spends the session's budget. So each request must have `credential` as its API
 * key, and this listener in its `Host` header, which neither a preview nor a page with a rebound DNS name has. Commands of the program
 * inherit the credential with its environment, so a request must also come from the process of the program (`admit`).
 */
export class ModelProxy {
  /** Valid for this listener alone. */
  readonly credential = randomBytes(credentialBytes).toString('base64url')
  readonly #server: Server
  readonly #gateway: { url: string; token: string }
  #host = ''
  #leader: () => number | undefined = () => undefined
  /** Connections whose client is known to be the program: a connection does not change its client. */
  readonly #admitted = new WeakSet<Socket>()
  #calls = newCalls()
  #callsMax = Number.POSITIVE_INFINITY
  #onMax = () => {}
  readonly #endConcealment = concealSecret(this.credential)

  private constructor(gateway: { url: string; token: string }) {
    this.#gateway = gateway
    this.#server = createServer((request, response) => {
      this.#serve(request, response).catch((error: unknown) => {
        console.error(error)
        response.destroy()
      })
    })
  }

  static async start(gateway: { url: string; token: string }): Promise<ModelProxy> {
    const proxy = new ModelProxy(gateway)
    proxy.#server.listen(0, '127.0.0.1')
    await once(proxy.#server, 'listening')
    proxy.#host = `127.0.0.1:${(proxy.#server.address() as AddressInfo).port}`
    return proxy
  }

  /** Without a path: programs add `/anthropic` or `/openai/v1`. */
  get url(): string {
    return `http://${this.#host}`
  }

  /**
   * Serves a process and those below it in its process group, instead of those of an earlier program. `leader` gives its id while it is
   * alive, because ids are reused. Without an id, no process is served.
   */
  admit(leader: () => number | undefined): void {
    this.#leader = leader
  }

  /** Resets the counters. A call beyond `callsMax` is refused and calls `onMax`. */
  beginTurn(callsMax: number, onMax: () => void): ModelCalls {
    this.#calls = newCalls()
    this.#callsMax = callsMax
    this.#onMax = onMax
    return this.#calls
  }

  async close(): Promise<void> {
    const closed = once(this.#server, 'close')
    this.#server.close()
    this.#server.closeAllConnections()
    await closed
    this.#endConcealment()
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    // Before the method and the path are checked, so an unknown client learns nothing.
    if (request.headers.host !== this.#host) return refuse(response, 421, 'wrong_host')
    if (!this.#isKnown(request)) return refuse(response, 401, 'unauthorized', 'authentication_error')
    if (!this.#isAdmitted(request.socket)) return refuse(response, 403, 'not_the_agent', 'permission_error')
    const path = (request.url ?? '').split('?', 1)[0] ?? ''
    const wire = Object.hasOwn(wires, path) ? wires[path] : undefined
    if (!wire || request.method !== 'POST') return refuse(response, 404, 'not_found')
    const calls = this.#calls
    if (calls.count >= this.#callsMax) {
      calls.stoppedAtMax = true
      this.#onMax()
      return refuse(response, 403, 'error_max_turns')
    }
    calls.count += 1
    const body = await readBody(request, bodyBytesMax)
    if (!body) return refuse(response, 413, 'too_large')
    const call = { wire, requestBytes: body.length, askedAtMs: performance.now() }
    const gone = new AbortController()
    response.once('close', () => gone.abort())
    let answer: IncomingMessage
    try {
      answer = await this.#ask(path, request, body, gone.signal)
    } catch (error) {
      if (gone.signal.aborted) return
      const message = `The model gateway cannot be reached: ${(error as Error).message}`
      calls.failure = { code: 'model_error', message }
      return refuse(response, 502, 'model_unreachable')
    }
    if ((answer.statusCode ?? 502) >= 400) await passError(answer, response, calls)
    else await passAnswer(call, answer, response, calls, gone.signal)
  }

  /** Anthropic's clients send their key in one header, OpenAI's in the other, and some both. */
  #isKnown({ headers }: IncomingMessage): boolean {
    const [, bearer = ''] = /^Bearer +(\S+)$/i.exec(headers.authorization ?? '') ?? []
    return [String(headers['x-api-key'] ?? ''), bearer].some((shown) => equalSecrets(shown, this.credential))
  }

  #isAdmitted(connection: Socket): boolean {
    if (this.#admitted.has(connection)) return true
    const leader = this.#leader()
    if (leader === undefined || !isFromProgram(connection, leader)) return false
    this.#admitted.add(connection)
    return true
  }

  async #ask(path: string, from: IncomingMessage, body: Buffer, signal: AbortSignal): Promise<IncomingMessage> {
    const headers: Record<string, string> = { 'x-api-key': this.#gateway.token, 'content-length': String(body.length) }
    for (const name of passedHeaders) {
      const value = from.headers[name]
      if (typeof value === 'string') headers[name] = value
    }
    const url = this.#gateway.url.replace(/\/+$/, '') + path
    const startedAt = performance.now()
    for (let attempt = 0; ; attempt++) {
      try {
        return await send(url, headers, body, signal)
      } catch (error) {
        const pauseMs = backOffMs(attempt + 1, gatewayBackOff)
        // The gateway may be restarting.
        if (signal.aborted || performance.now() + pauseMs - startedAt > gatewayRetryMs) throw error
        await sleep(pauseMs, undefined, { signal })
      }
    }
  }
}

function newCalls(): ModelCalls {
  return { count: 0, usage: noTokens(), failure: undefined, stoppedAtMax: false }
}

function send(url: string, headers: Record<string, string>, body: Buffer, signal: AbortSignal) {
  return new Promise<IncomingMessage>((resolve, reject) => {
    // No keep-alive: an idle connection breaks when the sandbox hibernates or is restored.
    const request = httpRequest(url, { method: 'POST', headers, signal, agent: false })
    request.on('response', resolve)
    request.on('error', reject)
    request.end(body)
  })
}

async function passAnswer(
  call: AskedCall,
  answer: IncomingMessage,
  response: ServerResponse,
  calls: ModelCalls,
  signal: AbortSignal,
): Promise<void> {
  const tap = new UsageTap(call, answer.headers['content-type'] ?? '')
  answer.on('data', (chunk: Buffer) => tap.push(chunk))
  answer.pause()
  response.writeHead(answer.statusCode ?? 200, { 'content-type': answer.headers['content-type'] ?? 'application/json' })
  try {
    await pipeline(answer, response, { signal })
    calls.failure = undefined
  } catch (error) {
    if (!signal.aborted) calls.failure = { code: 'model_error', message: `The answer broke off: ${String(error)}` }
    response.destroy()
  } finally {
    addTokens(calls.usage, tap.end())
  }
}

async function passError(answer: IncomingMessage, response: ServerResponse, calls: ModelCalls): Promise<void> {
  const body = (await readBody(answer, errorBytesMax)) ?? Buffer.alloc(0)
  const text = body.toString('utf8')
  calls.failure = {
    code: text.includes('budget_exceeded') ? 'budget_exceeded' : 'model_error',
    message: `${answer.statusCode} ${text}`.slice(0, 4000),
  }
  const type = answer.headers['content-type'] ?? 'application/json'
  response.writeHead(answer.statusCode ?? 502, { 'content-type': type, 'x-should-retry': 'false' })
  response.end(body)
}

/** In the shape of both wires: some of Anthropic's clients read the type, some of OpenAI's the code. */
function refuse(response: ServerResponse, status: number, code: string, type = code): void {
  const error = { type, code, message: code }
  response.writeHead(status, { 'content-type': 'application/json', 'x-should-retry': 'false', connection: 'close' })
  response.end(JSON.stringify({ type: 'error', error }))
}

async function readBody(stream: IncomingMessage, bytesMax: number): Promise<Buffer | undefined> {
  const chunks: Buffer[] = []
  let length = 0
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    length += chunk.length
    if (length > bytesMax) return undefined
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}

/** How long calls of an unreachable gateway, or one that breaks off answers, are retried (docs/use/agent.md § Harness pi). */
export const gatewayRetryMs = 60_000

export const gatewayBackOff = { firstMs: 500, maxMs: 8000, jitter: 0.5 }
