import { createMcpHandler } from '@modelcontextprotocol/server'
import { Atoll } from '../../sdk/src/index.ts'
import { ServiceError } from '../errors.ts'
import type { McpPort } from '../http/server/config.ts'
import type { Log } from '../lib/log.ts'
import { chosenTools, mcpServer } from '../mcp/index.ts'
import type { Config } from './config.ts'

/** Streams of change notices that are open at once. The tools never change, so no client needs one. */
const subscriptionsMax = 16

/** The MCP server at `/mcp`. Its tools call this server's own API with the key of the request, so they can do what the key can. */
export function createMcp({ url, version, log }: { url: () => string; version: string; log: Log }): McpPort {
  return async (request, { apiKey, body, tools: list }) => {
    const tools = toolsOf(list)
    const handler = createMcpHandler(() => mcpServer(new Atoll({ url: url(), apiKey }), tools, version), {
      maxSubscriptions: subscriptionsMax,
      onerror: (error) => log.debug({ err: error }, 'a request of MCP was refused'),
    })
    return await handler.fetch(request, { parsedBody: body })
  }
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
