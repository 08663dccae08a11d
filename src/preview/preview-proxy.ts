import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'
import { isServiceError, ServiceError } from '../errors.ts'
import type { EventBus } from '../events/index.ts'
import { defined } from '../lib/defined.ts'
import { statusOf } from '../lib/error-status.ts'
import type { Log } from '../lib/log.ts'
import type { PreviewService, PreviewTarget } from '../sandbox/index.ts'
import { Certificates, type Edge } from './certificates.ts'
import { Credentials } from './credentials.ts'
import {
  errorFor,
  internalError,
  type PreviewError,
  sendError,
  stopped,
  unavailable,
  unknownHost,
  wrongToken,
} from './errors.ts'
import { addressList, answerHeaders, cameOverTls, hasBody, portAnswerHeaders, requestHeaders } from './headers.ts'
import { PreviewHosts, readHost } from './host.ts'
import { PreviewAgent } from './pool.ts'
import { forward } from './proxy.ts'
import { onceBodyOver } from './request-body.ts'
import { carryUpgrade, sendUpgradeError } from './upgrade.ts'
import { Visitors } from './visitors.ts'
import { Visits } from './visits.ts'

export interface PreviewProxyOptions {
  previews: PreviewService
  /** Says when a sandbox leaves `running`; its idle connections are then closed. */
  bus: EventBus
  /** Host of the previews, such as `preview.localhost`. */
  previewHost: string
  /** Host names of the API; none of them is a preview. */
  apiHosts?: readonly string[]
  /** Proxies whose `X-Forwarded-*` headers count. Default none. */
  trustProxy?: boolean | readonly string[]
  /** SHA-256 in hex of API keys that an operator chose. Generated keys are recognised by their prefix. */
  apiKeyHashes?: readonly string[]
  /** Of this server: cookies of visitors are made with it. */
  signingSecret: string
  /** Called when somebody opens a preview and is allowed to. */
  opened?: (target: PreviewTarget, request: IncomingMessage) => void
  /** The TLS proxy in front; absent without one. */
  edge?: Edge
  log: Log
}

/** A request of the API to a server in a sandbox. */
interface PortRequest {
  request: IncomingMessage
  response: ServerResponse
  target: PreviewTarget
  /** Path and query. */
  path: string
}

/** Implements `PreviewPort` of `http/server/config.ts`. */
export function createPreviewProxy(options: PreviewProxyOptions) {
  const { previews, bus, previewHost, log } = options
  const apiHosts = options.apiHosts ?? []
  const isTrusted = addressList(options.trustProxy ?? false)
  const hosts = new PreviewHosts({ previews, previewHost, apiHosts })
  const certificates = new Certificates({
    previews,
    hosts,
    isTrusted,
    log,
    apiHosts,
    ...defined({ edge: options.edge }),
  })
  const credentials = new Credentials(options.apiKeyHashes)
  const visits = new Visits(options.signingSecret)
  const visitors = new Visitors({
    secret: options.signingSecret,
    visits,
    isTls: (request) => options.edge !== undefined || cameOverTls(request, isTrusted),
  })
  const dial = (target: PreviewTarget) => previews.dial(target)
  const agent = new PreviewAgent(dial)
  const upgraded = new Set<Duplex>()
  const headersBack = (answer: IncomingMessage) => answerHeaders(answer, previewHost)
  let answered: (statusCode: number) => void = () => {}

  const unsubscribe = bus.subscribe('*', (event) => {
    if (event.type === 'sandbox_changed' && event.status !== 'running') agent.drop(event.sandboxId)
  })

  /** The preview of a request, or the error that answers it. */
  const find = async (request: IncomingMessage): Promise<PreviewError | { target: PreviewTarget }> => {
    const hostname = readHost(request.headers.host)
    const target = await hosts.find(hostname)
    if (hostname === undefined || target === undefined) return unknownHost
    if (target.awaitsCertificate && cameOverTls(request, isTrusted)) certificates.served(hostname)
    if (target.sandbox.status === 'stopped') return stopped
    try {
      previews.assertServed(target)
    } catch (error) {
      return errorFor(error, target.port) ?? internalError
    }
    return { target }
  }

  /** The answer where the database fails, or where a bug shows, which is logged. */
  const failureOf = (error: unknown, what: string): PreviewError => {
    if (isServiceError(error, 'unavailable')) return unavailable
    log.error({ err: error }, what)
    return internalError
  }

  /** The path and headers that enter the sandbox. */
  const headFor = (target: PreviewTarget, request: IncomingMessage) => ({
    path: credentials.strippedUrl(request.url ?? '/', target),
    headers: requestHeaders(request, (name, value) => credentials.strippedHeader(name, value, target), isTrusted),
  })

  const serve = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const result = await find(request)
    if ('code' in result) {
      sendError(request, response, result)
      return
    }
    const { target } = result
    if (await visitors.takeToken(target, request, response)) return
    if (!visitors.isAllowed(target, request)) {
      sendError(request, response, wrongToken)
      return
    }
    // The client left while the name was looked up: do not wake the sandbox.
    if (response.destroyed) return
    options.opened?.(target, request)
    const release = previews.keepAlive(target.sandbox.id)
    // The rest of a body may follow its answer into the sandbox.
    response.once('close', () => (hasBody(request) ? onceBodyOver(request, release) : release()))
    const refuse = (error: PreviewError) => sendError(request, response, error)
    forward({ request, response, target, ...headFor(target, request), headersBack, refuse, agent, log })
  }

  const carry = async (request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> => {
    const found = await find(request)
    const result = 'code' in found || visitors.isAllowed(found.target, request) ? found : wrongToken
    if ('code' in result) {
      answered(statusOf[result.code])
      sendUpgradeError(socket, result)
      return
    }
    if (socket.destroyed) return
    const { target } = result
    options.opened?.(target, request)
    const release = previews.keepAlive(target.sandbox.id)
    upgraded.add(socket)
    socket.once('close', () => {
      upgraded.delete(socket)
      release()
    })
    const onAnswer = (code: number) => answered(code)
    await carryUpgrade({ request, socket, head, target, ...headFor(target, request), headersBack, dial, log, onAnswer })
  }

  return {
    claims: (request: IncomingMessage) => hosts.claims(request.headers.host),
    mayHaveCertificate: (hostname: string, peer: string) => certificates.mayBeIssued(hostname, peer),
    visit: (preview: { hostname: string; tokenHash: string }) => visits.begin(preview),
    handle(request: IncomingMessage, response: ServerResponse): void {
      response.once('finish', () => answered(response.statusCode))
      serve(request, response).catch((error: unknown) => {
        sendError(request, response, failureOf(error, 'a preview request failed'))
      })
    },
    upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
      socket.on('error', () => socket.destroy())
      carry(request, socket, head).catch((error: unknown) => {
        sendUpgradeError(socket, failureOf(error, 'a preview socket failed'))
      })
    },
    async forward({ request, response, target, path }: PortRequest): Promise<void> {
      const { 'x-api-key': key } = request.headers
      const endToEnd = requestHeaders(
        request,
        (name, value) => {
          // The key in the one of both that has it, or in both, and cookies of the API's origin.
          if (name === 'host' || name === 'x-api-key' || name === 'cookie') return undefined
          if (name === 'authorization' && (!key || value.includes(String(key)))) return undefined
          return credentials.strippedHeader(name, value, target)
        },
        isTrusted,
      )
      // HTTP/1.0 has none, and what is sent is HTTP/1.1, which must (RFC 9112 § 3.2).
      const headers = ['Host', `localhost:${target.port}`, ...endToEnd]
      await new Promise<void>((resolve, reject) => {
        // The rest of a body may follow its answer into the sandbox.
        response.once('close', () => (hasBody(request) ? onceBodyOver(request, resolve) : resolve()))
        const refuse = ({ code, message }: PreviewError, cause?: unknown) => {
          if (response.headersSent) response.destroy()
          reject(isServiceError(cause) ? cause : new ServiceError(code, message))
        }
        const inside = { path: credentials.strippedUrl(path, target), headers }
        forward({ request, response, target, ...inside, headersBack: portAnswerHeaders, refuse, agent, log })
      })
    },
    onAnswer(listener: (statusCode: number) => void): void {
      answered = listener
    },
    drain(): void {
      unsubscribe()
      certificates.close()
      agent.close()
      for (const socket of upgraded) socket.end()
    },
  }
}
