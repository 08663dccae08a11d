import type { Duplex } from 'node:stream'
import { ServiceError, isServiceError } from '../errors.ts'
import { actingAsServer } from '../events/index.ts'
import { KeyedMutex } from '../lib/async/mutex.ts'
import type { CreateOptions, Creation } from '../lib/creation.ts'
import { defined } from '../lib/defined.ts'
import { newId } from '../lib/id.ts'
import { sha256 } from '../lib/secret.ts'
import { type DomainVerification, type VerificationRecord, readCustomHostname } from './custom-domain.ts'
import { assertInput, previewToken } from './input.ts'
import type { Lifecycle, LifecycleContext } from './lifecycle.ts'
import { type PreviewAuth, type Sandbox, assertAlive } from './sandbox.ts'

export const sslStatuses = ['pending', 'active', 'failed', 'disabled'] as const
export type SslStatus = (typeof sslStatuses)[number]

export interface Preview {
  id: string
  orgId: string
  sandboxId: string
  /** Unique in its sandbox. */
  port: number
  /** A host name of the user's own, lower case, unique in its organisation and, once it is verified, in the service. */
  customHostname?: string
  /** When the TXT record was seen that proves the host name. Until then the name leads nowhere. */
  verifiedAt?: Date
  sslStatus: SslStatus
  /** Present when this port requires a token of its own, which overrides the sandbox's. */
  authScheme?: 'bearer'
  /** SHA-256 in hex. */
  tokenHash?: string
  createdAt: Date
}

type PreviewSetting = 'customHostname' | 'authScheme' | 'tokenHash'

/** A preview to insert or to update. In an update an absent key leaves its field and `undefined` clears it. */
export type PreviewDeclaration = Omit<Preview, PreviewSetting | 'verifiedAt'> & {
  [Key in PreviewSetting]?: Preview[Key] | undefined
}

export interface PutPreview {
  port: number
  /** Of a port that has a preview, an absent field stays as it was and `null` removes it. */
  domain?: string | null
  auth?: PreviewAuth | null
}

export interface PreviewTarget {
  sandbox: Sandbox
  port: number
  /** SHA-256 in hex of the token to require: the port's own, else the sandbox's; absent when the port is open. */
  tokenHash?: string
  /** A declared preview whose `sslStatus` concerns this very host name and is not `active` yet. Never without TLS. */
  awaitsCertificate?: true
}

export type PreviewService = Pick<Previews, keyof Previews>

export interface PreviewDomain {
  /** Host of the previews without scheme and port, such as `preview.localhost`. */
  host: string
  /** Whether TLS is served in front; without, `sslStatus` is `disabled`. */
  tls: boolean
  /** Of URLs, where it is not that of their scheme. */
  urlPort?: number
  /** Host names that no custom domain may be or lie under, the preview host included. */
  ownHosts: readonly string[]
  /** Whether there are custom domains. Only where `ownHosts` has the name under which clients reach the API. */
  isCustomAllowed: boolean
}

interface PreviewsContext extends Pick<LifecycleContext, 'store' | 'guest' | 'assertActive'> {
  lifecycle: Lifecycle
  domain: PreviewDomain
  domains: DomainVerification
  /** Custom domains of one organisation that are not verified. */
  unverifiedMax: number
}

/** The statuses that a certificate's outcome may follow. A failure matters only while a certificate is awaited. */
const statusesBefore: Record<'active' | 'failed', readonly SslStatus[]> = {
  active: ['pending', 'failed', 'disabled'],
  failed: ['pending', 'disabled'],
}
const ownLabelPattern = /^(sb-[a-z0-9]{12,40})-p([1-9][0-9]{0,4})$/

export class Previews {
  readonly #context: PreviewsContext
  /** By organisation: count and claim are one step. */
  readonly #claiming = new KeyedMutex()

  constructor(context: PreviewsContext) {
    this.#context = context
  }

  /** Creates or updates the preview of a port. A domain leads to it once its record is seen. `conflict`: another preview has it. */
  async put(
    orgId: string,
    sandboxId: string,
    input: PutPreview,
    { creation }: CreateOptions = {},
  ): Promise<{ preview: Preview; created: boolean; token?: string }> {
    const { store, domains } = this.#context
    const { domain, auth } = input
    const hostname = typeof domain === 'string' ? this.#customHostname(domain) : undefined
    const token = auth ? previewToken(auth, 'authConfig', creation) : undefined
    const declaration: PreviewDeclaration = {
      id: creation?.id('pv-') ?? newId('pv-'),
      orgId,
      sandboxId,
      port: input.port,
      sslStatus: this.#sslStatusOf(),
      createdAt: new Date(),
      ...(domain === undefined ? {} : { customHostname: hostname }),
      ...(auth === null ? { authScheme: undefined, tokenHash: undefined } : {}),
      ...(token === undefined ? {} : { authScheme: 'bearer', tokenHash: sha256(token) }),
    }
    const { preview, created } =
      (await this.#findMade(declaration, creation)) ?? (await this.#declare(declaration, creation))
    await this.#checkDomains([preview])
    const seen = (await store.preview(sandboxId, input.port)) ?? preview
    if (domain !== undefined) domains.watch(seen)
    return { preview: this.#shownOf(seen), created, ...defined({ token }) }
  }

  async list(orgId: string, sandboxId: string): Promise<Preview[]> {
    const { store, lifecycle } = this.#context
    const { status } = await lifecycle.read(sandboxId, orgId)
    if (status !== 'stopped') await this.#checkDomains(await store.listPreviews(sandboxId))
    const previews = await store.listPreviews(sandboxId)
    return previews.map((preview) => this.#shownOf(preview))
  }

  async delete(orgId: string, sandboxId: string, port: number): Promise<void> {
    await this.#context.lifecycle.read(sandboxId, orgId)
    if (!(await this.#context.store.deletePreview(sandboxId, port))) throw noPreview(sandboxId, port)
  }

  /** Makes a new token for all ports of the sandbox without one of their own. */
  async rotate(orgId: string, sandboxId: string): Promise<string> {
    const sandbox = await this.#context.lifecycle.read(sandboxId, orgId)
    assertAlive(sandbox)
    const token = previewToken({ scheme: 'bearer' }, 'previewAuth')
    await this.#context.lifecycle.changeAlive(sandboxId, { previewTokenHash: sha256(token) })
    return token
  }

  /**
   * Where a port answers, below the preview domain, and the hash of the token that it demands. Throws `not_found`, `sandbox_stopped` and
   * `organisation_suspended`. It wakes nothing.
   */
  async address(
    orgId: string,
    sandboxId: string,
    port: number,
  ): Promise<{ url: string; hostname: string; tokenHash?: string }> {
    const sandbox = await this.#context.lifecycle.read(sandboxId, orgId)
    assertAlive(sandbox)
    this.assertServed({ sandbox, port })
    const declared = await this.#context.store.preview(sandboxId, port)
    const tokenHash = declared?.tokenHash ?? sandbox.previewTokenHash
    const url = this.#urlOf({ sandboxId, port })
    return { url, hostname: this.hostname(sandboxId, port), ...defined({ tokenHash }) }
  }

  /** `<sandbox_id>-p<port>.<preview domain>` */
  hostname(sandboxId: string, port: number): string {
    return `${sandboxId}-p${port}.${this.#context.domain.host}`
  }

  /** The TXT record that proves the preview's domain; undefined when it has none. */
  verification({ orgId, customHostname }: Pick<Preview, 'orgId' | 'customHostname'>): VerificationRecord | undefined {
    return customHostname === undefined ? undefined : this.#context.domains.record(orgId, customHostname)
  }

  /** Finds the target of a host name (lower case, without port). Wakes nothing and needs no key: the proxy checks the token. */
  async resolve(hostname: string): Promise<PreviewTarget | undefined> {
    const { store, domain } = this.#context
    const own = hostname.endsWith(`.${domain.host}`)
    const preview = own ? undefined : await store.previewByHostname(hostname)
    const address = own ? this.#parseOwn(hostname) : preview
    if (!address) return undefined
    const { sandboxId, port } = address
    const [sandbox, declared] = await Promise.all([store.sandbox(sandboxId), preview ?? store.preview(sandboxId, port)])
    if (!sandbox) return undefined
    const tokenHash = declared?.tokenHash ?? sandbox.previewTokenHash
    const isAboutHost = declared !== undefined && (!own || declared.customHostname === undefined)
    const awaitsCertificate = isAboutHost && domain.tls && declared.sslStatus !== 'active'
    return {
      sandbox,
      port,
      ...defined({ tokenHash }),
      ...(awaitsCertificate ? { awaitsCertificate } : {}),
    }
  }

  /** Throws `organisation_suspended`; a sandbox that goes to sleep may still run. */
  assertServed({ sandbox }: PreviewTarget): void {
    this.#context.assertActive?.(sandbox.orgId)
  }

  /** Records whether a certificate was served. Host names without a declared preview are ignored. */
  async recordCertificate(hostname: string, status: 'active' | 'failed'): Promise<void> {
    const { store, domain } = this.#context
    if (!domain.tls) return
    const preview = this.#parseOwn(hostname) ?? (await store.previewByHostname(hostname))
    if (preview) await store.setSslStatus(preview, status, statusesBefore[status])
  }

  /** Connects to the port, waking the sandbox. Throws `nothing_listening`, `sandbox_stopped`, and `forbidden` for a private port. */
  async dial(target: PreviewTarget, signal?: AbortSignal): Promise<Duplex> {
    this.assertServed(target)
    await actingAsServer('preview', () => this.#context.lifecycle.wakes.ensureRunning(target.sandbox.id))
    return await this.#context.guest(target.sandbox.id, target.sandbox.orgId).dial(target.port, signal)
  }

  /**
   * A port for who owns its sandbox and needs no token, and a keep-alive lease: call `release` when the request or connection ends. Wakes
   * the sandbox. Throws `not_found`, `sandbox_stopped`, `conflict`, and what a wake throws.
   */
  async use(orgId: string, sandboxId: string, port: number): Promise<{ target: PreviewTarget; release: () => void }> {
    return await this.#context.lifecycle.useOn(orgId, sandboxId, async (_guest, sandbox, release) => ({
      target: { sandbox, port },
      release,
    }))
  }

  /** Takes a keep-alive lease; call the result when the request or socket ends. */
  keepAlive(sandboxId: string): () => void {
    return this.#context.lifecycle.keepAlive(sandboxId)
  }

  /** The inverse of `hostname`; undefined for other names. */
  #parseOwn(hostname: string): { sandboxId: string; port: number } | undefined {
    const suffix = `.${this.#context.domain.host}`
    if (!hostname.endsWith(suffix)) return undefined
    const [, sandboxId, digits] = ownLabelPattern.exec(hostname.slice(0, -suffix.length)) ?? []
    const port = Number(digits)
    return sandboxId !== undefined && port <= 65_535 ? { sandboxId, port } : undefined
  }

  async #checkDomains(previews: readonly Preview[]): Promise<void> {
    if (this.#context.domain.isCustomAllowed) await this.#context.domains.check(previews)
  }

  /** The preview of an earlier run of the request. */
  async #findMade({ id, orgId, sandboxId, port }: PreviewDeclaration, creation?: Creation) {
    const [madeId] = creation?.made ?? []
    if (madeId === undefined) return undefined
    await this.#context.lifecycle.read(sandboxId, orgId)
    const preview = await this.#context.store.preview(sandboxId, port)
    if (preview?.id !== madeId) throw noPreview(sandboxId, port)
    return { preview, created: madeId === id }
  }

  async #declare(declaration: PreviewDeclaration, creation?: Creation) {
    const { store, lifecycle, domains, unverifiedMax } = this.#context
    const { orgId, sandboxId, port, customHostname } = declaration
    assertAlive(await lifecycle.read(sandboxId, orgId))
    if (customHostname === undefined) return await store.putPreview(declaration, this.#urlOf(declaration), creation)
    await domains.assertFree(orgId, customHostname)
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

  /** The domain of a stopped sandbox is free again, although the preview's record stays until the purge. */
  async #claim(
    declaration: PreviewDeclaration,
    customHostname: string,
    creation?: Creation,
  ): Promise<{ preview: Preview; created: boolean }> {
    const { store } = this.#context
    try {
      return await store.putPreview(declaration, this.#urlOf(declaration), creation)
    } catch (error) {
      const holder = await store.previewByHostname(customHostname, declaration.orgId)
      const sandbox = holder && (await store.sandbox(holder.sandboxId))
      if (!isServiceError(error, 'conflict') || holder === undefined || sandbox?.status !== 'stopped') throw error
      await store.deletePreview(holder.sandboxId, holder.port)
      return await store.putPreview(declaration, this.#urlOf(declaration), creation)
    }
  }

  #urlOf({
    sandboxId,
    port,
    customHostname,
  }: Pick<PreviewDeclaration, 'sandboxId' | 'port' | 'customHostname'>): string {
    const { tls, urlPort } = this.#context.domain
    const host = customHostname ?? this.hostname(sandboxId, port)
    return `${tls ? 'https' : 'http'}://${host}${urlPort === undefined ? '' : `:${urlPort}`}`
  }

  #shownOf(preview: Preview): Preview {
    return { ...preview, sslStatus: this.#sslStatusOf(preview) }
  }

  /** A status recorded under another configuration does not count. */
  #sslStatusOf(preview?: Preview): SslStatus {
    if (preview?.customHostname !== undefined && preview.verifiedAt === undefined) return 'pending'
    if (!this.#context.domain.tls) return 'disabled'
    return preview === undefined || preview.sslStatus === 'disabled' ? 'pending' : preview.sslStatus
  }

  #customHostname(domain: string): string {
    const { isCustomAllowed, ownHosts } = this.#context.domain
    assertInput(isCustomAllowed, 'domain', 'cannot be given: the operator of this server has not set ATOLL_PUBLIC_URL')
    return readCustomHostname(domain, ownHosts)
  }
}

function noPreview(sandboxId: string, port: number): ServiceError {
  return new ServiceError('not_found', `sandbox ${sandboxId} has no preview of port ${port}`)
}
