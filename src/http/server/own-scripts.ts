import type { FastifyRequest } from 'fastify'
import { ServiceError } from '../../errors.ts'

/** What a browser runs, or lays a page out with, in the origin that asks (https://fetch.spec.whatwg.org/#concept-request-destination). */
const running: ReadonlySet<unknown> = new Set([
  ...['script', 'style', 'worker', 'sharedworker', 'serviceworker', 'audioworklet', 'paintworklet', 'xslt'],
  ...['object', 'embed'],
])
/** Where scripts and styles of the server's own pages are. */
const ownPaths = /^\/(?:assets|docs)\//

/**
 * Refuses what a page of this origin would run and the server has not brought. The policies of its pages allow scripts of the origin, and files of
 * sandboxes have addresses in it too: a page into which somebody has brought a tag must not run a tenant's file. Throws `forbidden`.
 */
export function assertOwnScript({ headers, url }: Pick<FastifyRequest, 'headers' | 'url'>): void {
  const { 'sec-fetch-dest': destination, 'sec-fetch-site': site } = headers
  if (site !== 'same-origin' || !running.has(destination) || ownPaths.test(url)) return
  throw new ServiceError('forbidden', 'pages of this server load no scripts and styles but its own')
}
