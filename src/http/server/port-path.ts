import type { IncomingMessage } from 'node:http'
import { ServiceError } from '../../errors.ts'

const proxied = /^(?:https?:\/\/[^/?#]*)?(\/api\/sandboxes\/[^/?#]+\/ports\/[^/?#]+\/proxy)(?![^/?#])(.*)$/s

/** What the sandbox is asked for, of requests that are for a server in it. */
const paths = new WeakMap<IncomingMessage, string>()

/** Whether a request is for a server in a sandbox, by its URL. */
export function isForPort(url: string | undefined): boolean {
  return proxied.test(url ?? '')
}

/**
 * The URL by which the router finds the route. What follows `…/proxy` belongs to the server in the sandbox, with its query: it is neither
 * decoded nor checked here, and stays byte for byte.
 */
export function routedUrl(request: IncomingMessage): string {
  const { url = '/' } = request
  const [, route, rest = ''] = proxied.exec(url) ?? []
  if (route === undefined) return url
  paths.set(request, rest.startsWith('/') ? rest : `/${rest}`)
  return `${route}/-`
}

/** Path and query for the server in the sandbox; undefined for all other requests. */
export function portPathOf(request: IncomingMessage): string | undefined {
  return paths.get(request)
}

/** The port in a path. Throws `invalid_request`. */
export function portOf(text: string): number {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 0
  if (port >= 1 && port <= 65_535) return port
  throw new ServiceError('invalid_request', 'port: must be a number from 1 to 65535', { details: { field: 'port' } })
}
