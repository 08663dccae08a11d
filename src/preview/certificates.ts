import { checkServerIdentity, connect } from 'node:tls'
import { ServiceError } from '../errors.ts'
import type { Log } from '../lib/log.ts'
import { TokenBuckets } from '../lib/token-bucket.ts'
import type { PreviewService } from '../sandbox/index.ts'
import { readHost } from './host.ts'
import { trust } from './trust.ts'

/** Issuing takes some seconds; by now a certificate that was asked for should be there. */
const probeAfterMs = 60_000
/** How long the edge may take to answer a handshake; it may be issuing meanwhile. */
const probeMs = 30_000
/** Host names whose certificate is looked at later, all sandboxes together; beyond it their first request tells. */
const probesMax = 1000
/** Questions a second, all names together: whoever connects to the edge chooses what it asks. */
const questions = { perSecond: 50, burst: 200 }
const isLocal = trust(['127.0.0.0/8', '::1'])

export interface CertificatesOptions {
  previews: PreviewService
  /** Host names of the API, which need certificates too. */
  apiHosts: readonly string[]
  /** Port at which the edge serves TLS; undefined where there is none. */
  edgePort?: number
  /** Addresses of proxies on other machines. */
  isTrusted: (address: string) => boolean
  /** Default one minute. */
  probeAfterMs?: number
  log: Log
}

/** Tells the edge for which names it may get certificates, and finds out what became of them. */
export class Certificates {
  readonly #options: CertificatesOptions
  readonly #probes = new Map<string, NodeJS.Timeout>()
  /** Names whose first request is being recorded. */
  readonly #recording = new Set<string>()
  readonly #buckets = new TokenBuckets(questions)

  constructor(options: CertificatesOptions) {
    this.#options = options
  }

  /**
   * Whether a certificate may be issued for a name: the API's own, and previews of sandboxes that are not stopped. `edge` is
   * the address of who asks; when nothing has been heard of an awaited certificate some time later, it is asked for it.
   */
  async mayBeIssued(name: string, edge: string): Promise<boolean> {
    const { previews, apiHosts, edgePort, isTrusted } = this.#options
    const hostname = readHost(name)
    if (edgePort === undefined || hostname === undefined || !(isLocal(edge) || isTrusted(edge))) return false
    const waitMs = this.#buckets.take('all')
    if (waitMs > 0) {
      throw new ServiceError('rate_limited', 'too many questions', { details: { retryAfterSeconds: waitMs / 1000 } })
    }
    if (apiHosts.includes(hostname)) return true
    const target = await previews.resolve(hostname)
    if (target === undefined || target.sandbox.status === 'stopped') return false
    if (target.awaitsCertificate) this.#probeLater(hostname, edge, edgePort)
    return true
  }

  /** A request came over TLS, so a certificate was served. */
  served(hostname: string): void {
    if (this.#recording.has(hostname)) return
    this.#recording.add(hostname)
    clearTimeout(this.#probes.get(hostname))
    this.#probes.delete(hostname)
    void this.#record(hostname, 'active').finally(() => this.#recording.delete(hostname))
  }

  close(): void {
    for (const timer of this.#probes.values()) clearTimeout(timer)
    this.#probes.clear()
  }

  #probeLater(hostname: string, edge: string, port: number): void {
    if (this.#probes.has(hostname) || this.#probes.size >= probesMax) return
    const probe = async (): Promise<void> => {
      const fate = await handshake(hostname, edge, port)
      // While it ran, a question of the edge about this very handshake must not have started another.
      this.#probes.delete(hostname)
      if (fate !== 'unknown') await this.#record(hostname, fate)
    }
    const timer = setTimeout(() => void probe(), this.#options.probeAfterMs ?? probeAfterMs)
    timer.unref()
    this.#probes.set(hostname, timer)
  }

  async #record(hostname: string, status: 'active' | 'failed'): Promise<void> {
    const { previews, log } = this.#options
    try {
      await previews.recordCertificate(hostname, status)
    } catch (error) {
      log.warn({ err: error, hostname }, 'the status of a certificate was not recorded')
    }
  }
}

/** What the edge shows to a client that asks for the name. Who signed it is the clients' business. */
async function handshake(servername: string, host: string, port: number): Promise<'active' | 'failed' | 'unknown'> {
  return await new Promise((resolve) => {
    const socket = connect({ host, port, servername, rejectUnauthorized: false })
    const settle = (fate: 'active' | 'failed' | 'unknown') => {
      clearTimeout(timer)
      socket.destroy()
      resolve(fate)
    }
    const timer = setTimeout(() => settle('failed'), probeMs)
    socket.once('secureConnect', () => {
      const certificate = socket.getPeerCertificate()
      const isValid = checkServerIdentity(servername, certificate) === undefined
      settle(isValid && new Date(certificate.valid_to) > new Date() ? 'active' : 'failed')
    })
    // A refused connection says nothing about certificates; an alert does.
    socket.once('error', ({ code = '' }: NodeJS.ErrnoException) => {
      settle(code.startsWith('ERR_SSL') || code === 'ECONNRESET' ? 'failed' : 'unknown')
    })
  })
}
