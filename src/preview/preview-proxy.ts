import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'
import type { EventBus } from '../events/bus.ts'
import type { Log } from '../lib/log.ts'
import type { PreviewService, PreviewTarget } from '../sandbox/index.ts'
import { Certificates } from './certificates.ts'
import { Credentials } from './credentials.ts'
import { admits } from './gate.ts'
import { cameOverTls, requestHeaders } from './headers.ts'
import { isUnder, readHost } from './host.ts'
import { refuse } from './page.ts'
import type { Refusal } from './page.ts'
import { Connections } from './pool.ts'
import { forward } from './proxy.ts'
import { internalError, stopped, unknownHost, wrongToken } from './refusals.ts'
import { trust } from './trust.ts'
import { carryUpgrade, refuseUpgrade } from './upgrade.ts'

export interface PreviewProxyOptions {
  previews: PreviewService
  /** Tells when a sandbox stops or is frozen, so that no kept connection is in its way. */
  bus: EventBus
  /** `preview.localhost`: previews lie under it. */
  previewHost: string
  /** Host names under which the API is reached; none of them is ever a preview. */
  apiHosts?: readonly string[]
  /** Proxies whose `X-Forwarded-*` headers are believed. Default none. */
  trustProxy?: boolean | readonly string[]
  /** SHA-256 in hex of API keys, which an operator may have chosen; those that the server makes are known by their looks too. */
  apiKeyHashes?: readonly string[]
  /** Where a proxy in front serves TLS; absent without one. */
  edge?: { port: number; probeAfterMs?: number }
  log: Log
}

/** See `http/config.ts`, which this implements. */
export interface PreviewProxy {
  claims(host: string | undefined): boolean | Promise<boolean>
  mayHaveCertificate(hostname: string, peer: string): Promise<boolean>
  handle(request: IncomingMessage, response: ServerResponse): void
  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void
  onAnswer(listener: (statusCode: number) => void): void
  drain(): void
}

export function createPreviewProxy(options: PreviewProxyOptions): PreviewProxy {
  const { previews, bus, previewHost, log } = options
  const apiHosts = options.apiHosts ?? []
  const isTrusted = trust(options.trustProxy ?? false)
  const certificates = new Certificates({
    previews,
    isTrusted,
    log,
    apiHosts,
    ...(options.edge === undefined ? {} : { edgePort: options.edge.port }),
    ...(options.edge?.probeAfterMs === undefined ? {} : { probeAfterMs: options.edge.probeAfterMs }),
  })
  const credentials = new Credentials(options.apiKeyHashes)
  const connections = new Connections((target) => previews.dial(target))
  const upgraded = new Set<Duplex>()
  let answered: (statusCode: number) => void = () => {}

  const unsubscribe = bus.subscribe('*', (event) => {
    if (event.type === 'sandbox_changed' && event.status !== 'running') connections.drop(event.sandboxId)
  })

  /** The sandbox and port that a request asks for, or why it may not have them. */
  const enter = async (request: IncomingMessage): Promise<Refusal | { target: PreviewTarget }> => {
    const hostname = readHost(request.headers.host)
    const target = hostname === undefined ? undefined : await previews.resolve(hostname)
    if (hostname === undefined || target === undefined) return unknownHost
    if (target.awaitsCertificate && cameOverTls(request, isTrusted)) certificates.served(hostname)
    if (target.sandbox.status === 'stopped') return stopped
    return admits(target, request.headers) ? { target } : wrongToken
  }

  /** What goes into the sandbox of the head of a request. */
  const headFor = (target: PreviewTarget, request: IncomingMessage) => ({
    path: credentials.strippedUrl(request.url ?? '/'),
    headers: requestHeaders(request, (name, value) => credentials.strippedHeader(name, value, target), isTrusted),
  })

  const serve = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const entry = await enter(request)
    if ('statusCode' in entry) {
      refuse(request, response, entry)
      return
    }
    // Its client has gone while the name was looked up: no reason to wake a sandbox.
    if (response.destroyed) return
    const { target } = entry
    response.once('close', previews.keepAlive(target.sandbox.id))
    forward({ request, response, target, ...headFor(target, request), previewHost, connections, log })
  }

  const carry = async (request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> => {
    const entry = await enter(request)
    if ('statusCode' in entry) {
      answered(entry.statusCode)
      refuseUpgrade(socket, entry)
      return
    }
    if (socket.destroyed) return
    const { target } = entry
    const release = previews.keepAlive(target.sandbox.id)
    upgraded.add(socket)
    socket.once('close', () => {
      upgraded.delete(socket)
      release()
    })
    const dial = (to: PreviewTarget) => previews.dial(to)
    const onAnswer = (code: number) => answered(code)
    await carryUpgrade({ request, socket, head, target, ...headFor(target, request), previewHost, dial, log, onAnswer })
  }

  return {
    claims(host) {
      const hostname = readHost(host)
      if (hostname === undefined) return isNearly(host, previewHost)
      if (isUnder(hostname, previewHost)) return true
      if (apiHosts.includes(hostname) || hostname === previewHost || isLocal(hostname)) return false
      return previews.resolve(hostname).then((target) => target !== undefined)
    },
    mayHaveCertificate: (hostname, peer) => certificates.mayBeIssued(hostname, peer),
    handle(request, response) {
      response.once('finish', () => answered(response.statusCode))
      serve(request, response).catch((error: unknown) => {
        log.error({ err: error }, 'a preview request failed')
        refuse(request, response, internalError)
      })
    },
    upgrade(request, socket, head) {
      socket.on('error', () => socket.destroy())
      carry(request, socket, head).catch((error: unknown) => {
        log.error({ err: error }, 'a preview socket failed')
        refuseUpgrade(socket, internalError)
      })
    },
    onAnswer(listener) {
      answered = listener
    },
    drain() {
      unsubscribe()
      certificates.close()
      connections.close()
      for (const socket of upgraded) socket.end()
    },
  }
}

/** What is no host name but means to be under ours must not fall through to the API. */
function isNearly(host: string | undefined, previewHost: string): boolean {
  return host !== undefined && host.toLowerCase().replace(/:\d*$/, '').endsWith(`.${previewHost}`)
}

/** Names without a dot are of this machine or its network; no custom domain is one. */
function isLocal(hostname: string): boolean {
  return !hostname.includes('.')
}
