import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { defined } from '../../lib/defined.ts'
import { sha256 } from '../../lib/secret.ts'
import { Gateway, type GatewayIdentity, type GatewayOptions, type RecordedUsage } from '../index.ts'
import type { GatewayLimits } from '../limits.ts'
import { eventually } from '../../lib/testing/eventually.ts'

export const token = 'atoll-token-7d21'
export const key = 'sk-real-key-93aa'

type Handler = (request: IncomingMessage, response: ServerResponse, body: string) => void | Promise<void>

/** A gateway in front of a fake model API. */
export class GatewaySetup implements AsyncDisposable {
  readonly requests: { url: string; headers: IncomingMessage['headers']; body: string }[] = []
  readonly usage: RecordedUsage[] = []
  readonly logged: unknown[] = []
  readonly warnings: { sessionId: string; code: string; message: string }[] = []
  identity: GatewayIdentity = { orgId: 'org-a', sessionId: 'session_a', sandboxId: 'sb-a' }
  /** The sandbox that requests come from. */
  peer: string | undefined = 'sb-a'
  /** Organisations that are suspended. */
  readonly suspended = new Set<string>()
  budget: () => Promise<void> = () => Promise.resolve()
  /** Delays the lookup of a token. */
  lookup: () => Promise<void> = () => Promise.resolve()
  /** Delays the write of usage. */
  saving: () => Promise<void> = () => Promise.resolve()
  url = ''
  #closers: (() => Promise<void>)[] = []

  static async create(handler: Handler, limits: Partial<GatewayLimits> = {}): Promise<GatewaySetup> {
    const setup = new GatewaySetup()
    const upstream = createServer((request, response) => {
      void (async () => {
        const body = Buffer.concat(await request.toArray()).toString()
        setup.requests.push({ url: request.url ?? '', headers: request.headers, body })
        await handler(request, response, body)
      })()
    })
    upstream.listen(0, '127.0.0.1')
    await once(upstream, 'listening')
    const upstreamUrl = `http://127.0.0.1:${(upstream.address() as AddressInfo).port}`
    const log = (fields: object, message: string) => setup.logged.push([fields, message])
    const options: GatewayOptions = {
      meter: {
        identify: async (hash) => {
          await setup.lookup()
          return hash === sha256(token) ? setup.identity : undefined
        },
        checkBudget: () => setup.budget(),
        record: async (_sessionId, usage) => {
          await setup.saving()
          setup.usage.push(usage)
        },
      },
      upstreams: {
        anthropic: { baseUrl: upstreamUrl, apiKey: key },
        openai: { baseUrl: `${upstreamUrl}/v1/`, apiKey: key },
        demo: { baseUrl: upstreamUrl },
      },
      sandboxAt: () => setup.peer,
      isActive: (orgId) => !setup.suspended.has(orgId),
      warnSession: async (sessionId, code, message) => void setup.warnings.push({ sessionId, code, message }),
      log: { debug: log, info: log, warn: log, error: log },
      limits: { retryPauseFirstMs: 1, retryPauseMaxMs: 5, ...limits },
    }
    const gateway = new Gateway(options)
    setup.url = `http://127.0.0.1:${await gateway.listen({ host: '127.0.0.1', port: 0 })}`
    setup.#closers = [
      () => gateway.close(),
      async () => {
        upstream.closeAllConnections()
        upstream.close()
        await once(upstream, 'close')
      },
    ]
    return setup
  }

  post(
    path: string,
    body: object | string | Buffer<ArrayBuffer>,
    headers: Record<string, string> = {},
    signal?: AbortSignal,
  ): Promise<Response> {
    return fetch(this.url + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-api-key': token, ...headers },
      body: typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body),
      ...defined({ signal }),
    })
  }

  /** The client may have an answer before its usage is written. */
  async recorded(): Promise<RecordedUsage> {
    await eventually(() => this.usage.length > 0)
    return this.usage[0]!
  }

  /** Closes the gateway, after which all usage is recorded. */
  async close(): Promise<void> {
    for (const close of this.#closers.splice(0)) await close()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }
}

/** An upstream that answers every request with the begin of an event stream, and ends it unless `isOpen`. */
export const streaming =
  (text: string, isOpen = false) =>
  (_request: unknown, response: ServerResponse): void => {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    if (isOpen) response.write(text)
    else response.end(text)
  }

export function answer(value: object): Handler {
  return (_request, response) => {
    response.writeHead(200, { 'content-type': 'application/json', 'x-request-id': 'req_1', 'set-cookie': 'a=b' })
    response.end(JSON.stringify(value))
  }
}

export const messages = '/anthropic/v1/messages'
export const completions = '/openai/v1/chat/completions'
export const responses = '/openai/v1/responses'
export const hello = { model: 'm-1', messages: [{ role: 'user', content: 'secret prompt' }] }
/** The same body on the wire of OpenAI's responses. */
export const helloResponses = { model: 'm-1', input: 'secret prompt' }
