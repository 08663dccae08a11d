import { checkServerIdentity, connect } from 'node:tls'
import { ServiceError } from '../errors.ts'
import type { Log } from '../lib/log.ts'
import { TokenBuckets } from '../lib/token-bucket.ts'
import type { PreviewService } from '../sandbox/index.ts'
import { type PreviewHosts, readHost } from './host.ts'
import { addressList } from './headers.ts'

/** Issuing takes seconds, so a requested certificate exists after this time. */
const defaultProbeAfterMs = 60_000
/** Bounds a handshake with the edge, which may issue the certificate meanwhile. */
const probeMs = 30_000
/** Bounds the pending probes of all sandboxes. Beyond it the first request over TLS records the certificate. */
const probesMax = 1000
/** Questions of the edge a second, over all names: its clients choose the names. */
const questions = { perSecond: 50, burst: 200 }
const isLocal = addressList(['127.0.0.0/8', '::1'])

export interface Edge {
  /** At which it serves TLS. */
  port: number
  /** Default one minute. */
  probeAfterMs?: number
}

interface CertificatesOptions {
  previews: Pick<PreviewService, 'recordCertificate'>
  hosts: PreviewHosts
  /** Host names of the API, which need certificates too. */
  apiHosts: readonly string[]
  /** The TLS proxy in front; absent without one. */
  edge?: Edge
  /** Addresses of proxies on other machines. */
  isTrusted: (address: string) => boolean
  log: Log
}

/** Decides for which names the edge may get certificates, and records whether they were issued. */
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
   * Whether a certificate may be issued for a name: a host of the API, or a preview of a sandbox that is not stopped. `peer` is the
   * edge's address. A probe asks it later for a certificate that is still awaited.
   */
  async mayBeIssued(name: string, peer: string): Promise<boolean> {
    const { hosts, apiHosts, edge, isTrusted } = this.#options
    const hostname = readHost(name)
    if (edge === undefined || hostname === undefined || !(isLocal(peer) || isTrusted(peer))) return false
    const waitMs = this.#buckets.take('all')
    if (waitMs > 0) {
      throw new ServiceError('rate_limited', 'too many questions', { details: { retryAfterSeconds: waitMs / 1000 } })
    }
    if (apiHosts.includes(hostname)) return true
    const target = await hosts.find(hostname)
    if (target === undefined || target.sandbox.status === 'stopped') return false
    if (target.awaitsCertificate) this.#probeLater(hostname, peer, edge)
    return true
  }

  /** Records a certificate as served, after a request over TLS. */
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

  #probeLater(hostname: string, address: string, { port, probeAfterMs = defaultProbeAfterMs }: Edge): void {
    if (this.#probes.has(hostname) || this.#probes.size >= probesMax) return
    const probe = async (): Promise<void> => {
      const fate = await handshake(hostname, address, port)
      // Not earlier: the handshake makes the edge ask again, which must not start a second probe.
      this.#probes.delete(hostname)
      if (fate !== 'unknown') await this.#record(hostname, fate)
    }
    const timer = setTimeout(() => void probe(), probeAfterMs)
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

/** Whether the edge serves a valid certificate for a name. Its issuer is not checked. */
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
    // A TLS alert means no certificate; a refused connection means nothing.
    socket.once('error', ({ code = '' }: NodeJS.ErrnoException) => {
      settle(code.startsWith('ERR_SSL') || code === 'ECONNRESET' ? 'failed' : 'unknown')
    })
  })
}
