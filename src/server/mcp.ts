import { createMcpHandler } from '@modelcontextprotocol/server'
import { randomUUID } from 'node:crypto'
import { Atoll } from '../../sdk/src/index.ts'
import { ServiceError } from '../errors.ts'
import type { McpPort } from '../http/server/config.ts'
import { isRecord } from '../lib/json.ts'
import type { Log } from '../lib/log.ts'
import { sha256 } from '../lib/secret.ts'
import { chosenTools, mcpServer } from '../mcp/index.ts'
import type { Config } from './config.ts'

/** Streams of change notices that are open at once. The tools never change, so no client needs one. */
const subscriptionsMax = 16

interface McpConfig {
  /** Where this server reaches itself. */
  url: () => string
  previewUrl: string
  version: string
  log: Log
}

/** The MCP server at `/mcp`. Its tools call this server's own API with the key of the request, so they can do what the key can. */
export function createMcp({ url, previewUrl, version, log }: McpConfig): McpPort {
  const calls = new RunningCalls()
  return async (request, { apiKey, body, tools: list, origin }) => {
    const tools = toolsOf(list)
    const addresses = { api: origin, preview: previewUrl }
    const handler = createMcpHandler(() => mcpServer(new Atoll({ url: url(), apiKey }), tools, version, addresses), {
      maxSubscriptions: subscriptionsMax,
      onerror: (error) => log.debug({ err: error }, 'a request of MCP was refused'),
    })
    const client = `${sha256(apiKey)} ${request.headers.get(sessionHeader) ?? ''}`
    calls.cancel(client, body)
    const { signal, end } = calls.begin(client, body, request.signal)
    const answer = await handler
      .fetch(new Request(request, { signal }), { parsedBody: body })
      .catch((error: unknown) => {
        end()
        throw error
      })
    if (isRecord(body) && body['method'] === 'initialize') answer.headers.set(sessionHeader, randomUUID())
    if (answer.body !== null) return new Response(answer.body.pipeThrough(new TransformStream({ flush: end })), answer)
    end()
    return answer
  }
}

const sessionHeader = 'mcp-session-id'

/**
 * The calls that are under way, by client and id of the request. A client of the protocol of 2025 cancels a call by another request, so
 * it gets a session id at `initialize`, which tells its requests from those of others with its key. Nothing else is kept of a session.
 */
class RunningCalls {
  readonly #calls = new Map<string, AbortController>()

  begin(client: string, body: unknown, gone: AbortSignal): { signal: AbortSignal; end: () => void } {
    const id = isRecord(body) && body['method'] === 'tools/call' ? body['id'] : undefined
    if (typeof id !== 'string' && typeof id !== 'number') return { signal: gone, end: () => undefined }
    const name = nameOf(client, id)
    const cancelled = new AbortController()
    this.#calls.set(name, cancelled)
    const end = () => {
      if (this.#calls.get(name) === cancelled) this.#calls.delete(name)
    }
    const signal = AbortSignal.any([gone, cancelled.signal])
    signal.addEventListener('abort', end, { once: true })
    return { signal, end }
  }

  cancel(client: string, body: unknown): void {
    if (!isRecord(body) || body['method'] !== 'notifications/cancelled' || !isRecord(body['params'])) return
    this.#calls.get(nameOf(client, body['params']['requestId']))?.abort()
  }
}

/** Ids 1 and "1" are two. */
function nameOf(client: string, requestId: unknown): string {
  return `${client} ${JSON.stringify(requestId)}`
}

function toolsOf(list: string | undefined) {
  try {
    return chosenTools(list)
  } catch (error) {
    if (!(error instanceof RangeError)) throw error
    throw new ServiceError('invalid_request', `tools: ${error.message}`, { details: { field: 'tools' } })
  }
}

/** The URL at which this machine reaches a server that listens there. */
export function ownUrl({ host, port }: Config['listen']): string {
  return `http://${ownHost(host)}:${port}`
}

function ownHost(host: string): string {
  if (host === '0.0.0.0') return '127.0.0.1'
  if (host === '::') return '[::1]'
  return host.includes(':') ? `[${host}]` : host
}
