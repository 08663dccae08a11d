import type { Duplex } from 'node:stream'
import { ServiceError, isServiceError } from '../errors.ts'
import type { CreateOptions, Creation } from '../lib/creation.ts'
import { newId } from '../lib/id.ts'
import { KeyedMutex } from '../lib/async/mutex.ts'
import { sha256 } from '../lib/secret.ts'
import type { PreviewService, PreviewTarget, PutPreview } from './api.ts'
import { readCustomHostname } from './custom-domain.ts'
import type { VerificationRecord } from './custom-domain.ts'
import type { DomainProofs } from './domain-proofs.ts'
import type { Guest } from './ports/guest.ts'
import { demand, demandInteger, previewToken } from './input.ts'
import type { Lifecycle } from './lifecycle.ts'
import type { Preview, PreviewDeclaration, SslStatus } from './preview.ts'
import { demandAlive } from './sandbox.ts'
import type { SandboxStore } from './ports/sandbox-store.ts'

export interface PreviewDomain {
  /** Host of the previews without scheme and port, such as `preview.localhost`. */
  host: string
  /** Whether TLS is served in front; without, `sslStatus` is `disabled`. */
  tls: boolean
  /** Host names that no custom domain may be or lie under, the preview host included. */
  ownHosts: readonly string[]
  /** Whether there are custom domains. Only where `ownHosts` has the name under which clients reach the API. */
  isCustomAllowed: boolean
}

interface PreviewsDeps {
  store: SandboxStore
  lifecycle: Lifecycle
  guest: (sandboxId: string) => Guest
  domain: PreviewDomain
  proofs: DomainProofs
  /** Custom domains of one organisation that are not verified. */
  unverifiedMax: number
}

/** What a certificate's fate may follow on. A failure is news only while one is awaited. */
const statusesBefore: Record<'active' | 'failed', readonly SslStatus[]> = {
  active: ['pending', 'failed', 'disabled'],
  failed: ['pending', 'disabled'],
}
const ownLabelPattern = /^(sb-[a-z0-9]{12,40})-p([1-9][0-9]{0,4})$/

export class Previews implements PreviewService {
  readonly #deps: PreviewsDeps
  /** By organisation: its claims are counted and made one after the other. */
  readonly #claiming = new KeyedMutex()

  constructor(deps: PreviewsDeps) {
    this.#deps = deps
  }

  async put(orgId: string, sandboxId: string, input: PutPreview, { creation }: CreateOptions = {}) {
    const { store, proofs } = this.#deps
    demandInteger(input.port, 'port', 1, 65_535)
    const { domain, auth } = input
    const hostname = typeof domain === 'string' ? this.#customHostname(domain) : undefined
    const token = auth ? previewToken(auth, 'authConfig', creation) : undefined
    const declaration: PreviewDeclaration = {
      id: creation?.id('pv-') ?? newId('pv-'),
      orgId,
      sandboxId,
      port: input.port,
      sslStatus: this.#sslStatus(),
      createdAt: new Date(),
      ...(domain === undefined ? {} : { customHostname: hostname }),
      ...(auth === null ? { authScheme: undefined, tokenHash: undefined } : {}),
      ...(token === undefined ? {} : { authScheme: 'bearer', tokenHash: sha256(token) }),
    }
    const { preview, created } =
      (await this.#made(declaration, creation)) ?? (await this.#declare(declaration, creation))
    await this.#look([preview])
    const seen = (await store.preview(sandboxId, input.port)) ?? preview
    if (domain !== undefined) proofs.watch(seen)
    return { preview: this.#shown(seen), created, ...(token === undefined ? {} : { token }) }
  }

  async list(orgId: string, sandboxId: string): Promise<Preview[]> {
    const { store, lifecycle } = this.#deps
    const { status } = await lifecycle.get(orgId, sandboxId)
    if (status !== 'stopped') await this.#look(await store.listPreviews(sandboxId))
    const previews = await store.listPreviews(sandboxId)
    return previews.map((preview) => this.#shown(preview))
  }

  async delete(orgId: string, sandboxId: string, port: number): Promise<void> {
    await this.#deps.lifecycle.get(orgId, sandboxId)
    if (!(await this.#deps.store.deletePreview(sandboxId, port))) throw noPreview(sandboxId, port)
  }

  async rotate(orgId: string, sandboxId: string): Promise<string> {
    const sandbox = await this.#deps.lifecycle.get(orgId, sandboxId)
    demandAlive(sandbox)
    const token = previewToken({ scheme: 'bearer' }, 'previewAuth')
    await this.#deps.lifecycle.change(sandboxId, { previewTokenHash: sha256(token) })
    return token
  }

  hostname(sandboxId: string, port: number): string {
    return `${sandboxId}-p${port}.${this.#deps.domain.host}`
  }

  verification({ orgId, customHostname }: Pick<Preview, 'orgId' | 'customHostname'>): VerificationRecord | undefined {
    return customHostname === undefined ? undefined : this.#deps.proofs.record(orgId, customHostname)
  }

  async resolve(hostname: string): Promise<PreviewTarget | undefined> {
    const { store, domain } = this.#deps
    const own = hostname.endsWith(`.${domain.host}`)
    const preview = own ? undefined : await store.previewByHostname(hostname)
    const place = own ? parseOwnLabel(hostname.slice(0, -domain.host.length - 1)) : preview
    if (!place) return undefined
    const { sandboxId, port } = place
    const [sandbox, declared] = await Promise.all([store.sandbox(sandboxId), preview ?? store.preview(sandboxId, port)])
    if (!sandbox) return undefined
    const tokenHash = declared?.tokenHash ?? sandbox.previewTokenHash
    const isAboutHost = declared !== undefined && (!own || declared.customHostname === undefined)
    const awaitsCertificate = isAboutHost && domain.tls && declared.sslStatus !== 'active'
    return {
      sandbox,
      port,
      ...(tokenHash === undefined ? {} : { tokenHash }),
      ...(awaitsCertificate ? { awaitsCertificate } : {}),
    }
  }

  async recordCertificate(hostname: string, status: 'active' | 'failed'): Promise<void> {
    const { store, domain } = this.#deps
    if (!domain.tls) return
    const suffix = `.${domain.host}`
    const place = hostname.endsWith(suffix) ? parseOwnLabel(hostname.slice(0, -suffix.length)) : undefined
    const preview = place ?? (await store.previewByHostname(hostname))
    if (preview) await store.setSslStatus(preview, status, statusesBefore[status])
  }

  async dial(target: PreviewTarget, signal?: AbortSignal): Promise<Duplex> {
    await this.#deps.lifecycle.awake(target.sandbox.id)
    return await this.#deps.guest(target.sandbox.id).dial(target.port, signal)
  }

  hold(sandboxId: string): () => void {
    return this.#deps.lifecycle.hold(sandboxId)
  }

  async #look(previews: readonly Preview[]): Promise<void> {
    if (this.#deps.domain.isCustomAllowed) await this.#deps.proofs.look(previews)
  }

  /** What an earlier run of the request has put. */
  async #made({ id, orgId, sandboxId, port }: PreviewDeclaration, creation?: Creation) {
    const [madeId] = creation?.made ?? []
    if (madeId === undefined) return undefined
    await this.#deps.lifecycle.get(orgId, sandboxId)
    const preview = await this.#deps.store.preview(sandboxId, port)
    if (preview?.id !== madeId) throw noPreview(sandboxId, port)
    return { preview, created: madeId === id }
  }

  async #declare(declaration: PreviewDeclaration, creation?: Creation) {
    const { lifecycle, proofs } = this.#deps
    const { orgId, sandboxId, customHostname } = declaration
    demandAlive(await lifecycle.get(orgId, sandboxId))
    if (customHostname !== undefined) await proofs.assertFree(orgId, customHostname)
    return await this.#put(declaration, creation)
  }

  async #put(declaration: PreviewDeclaration, creation?: Creation): Promise<{ preview: Preview; created: boolean }> {
    const { store, unverifiedMax } = this.#deps
    const { orgId, sandboxId, port, customHostname } = declaration
    if (customHostname === undefined) return await store.putPreview(declaration, creation)
    return await this.#claiming.run(orgId, async () => {
      const unverified = await store.unverifiedPreviews(unverifiedMax, orgId)
      const isOneOfThem = unverified.some((preview) => preview.sandboxId === sandboxId && preview.port === port)
      const before = await store.preview(sandboxId, port)
      if (unverified.length >= unverifiedMax && !isOneOfThem && before?.customHostname !== customHostname) {
        const message = `domain is refused: ${unverifiedMax} domains of this organisation wait for their TXT record already`
        throw new ServiceError('conflict', message, { details: { field: 'domain' } })
      }
      return await this.#claim(declaration, customHostname, creation)
    })
  }

  /** A domain whose sandbox is stopped for good is free again, although the preview is remembered for a while. */
  async #claim(
    declaration: PreviewDeclaration,
    customHostname: string,
    creation?: Creation,
  ): Promise<{ preview: Preview; created: boolean }> {
    const { store } = this.#deps
    try {
      return await store.putPreview(declaration, creation)
    } catch (error) {
      const holder = await store.previewByHostname(customHostname, declaration.orgId)
      const sandbox = holder && (await store.sandbox(holder.sandboxId))
      if (!isServiceError(error, 'conflict') || holder === undefined || sandbox?.status !== 'stopped') throw error
      await store.deletePreview(holder.sandboxId, holder.port)
      return await store.putPreview(declaration, creation)
    }
  }

  #shown(preview: Preview): Preview {
    return { ...preview, sslStatus: this.#sslStatus(preview) }
  }

  /** What was recorded under another configuration counts as nothing. */
  #sslStatus(preview?: Preview): SslStatus {
    if (preview?.customHostname !== undefined && preview.verifiedAt === undefined) return 'pending'
    if (!this.#deps.domain.tls) return 'disabled'
    return preview === undefined || preview.sslStatus === 'disabled' ? 'pending' : preview.sslStatus
  }

  #customHostname(domain: string): string {
    const { isCustomAllowed, ownHosts } = this.#deps.domain
    demand(isCustomAllowed, 'domain', 'cannot be given: the operator of this server has not set ATOLL_PUBLIC_URL')
    return readCustomHostname(domain, ownHosts)
  }
}

function noPreview(sandboxId: string, port: number): ServiceError {
  return new ServiceError('not_found', `sandbox ${sandboxId} has no preview of port ${port}`)
}

function parseOwnLabel(label: string): { sandboxId: string; port: number } | undefined {
  const [, sandboxId, digits] = ownLabelPattern.exec(label) ?? []
  const port = Number(digits)
  return sandboxId !== undefined && port <= 65_535 ? { sandboxId, port } : undefined
}
