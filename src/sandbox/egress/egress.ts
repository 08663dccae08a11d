import { ServiceError } from '../../errors.ts'
import { KeyedMutex } from '../../lib/async/mutex.ts'
import { Semaphore } from '../../lib/async/semaphore.ts'
import { defined } from '../../lib/defined.ts'
import { newId } from '../../lib/id.ts'
import type { Log } from '../../lib/log.ts'
import { assertInput } from '../input.ts'
import type { EgressAuthority, EgressLayer, StatedEgress } from '../ports/egress.ts'
import type { EgressStore } from '../ports/egress-store.ts'
import type { Guest } from '../ports/guest.ts'
import type { RuntimeDriver } from '../ports/runtime-driver.ts'
import type { SandboxStore } from '../ports/sandbox-store.ts'
import type { SecretChain, SecretSource } from '../ports/secret-source.ts'
import { assertAlive, type Sandbox } from '../sandbox.ts'
import { changedEnvironment, clientEnvs, environmentOf } from './environment.ts'
import { type EgressInput, narrowed, unitedHosts } from './input.ts'
import { inheritPlaceholders, placeholdersFor } from './placeholders.ts'
import { layersOf, listedHosts, needsAuthority, statedEgress } from './plan.ts'
import { type EgressPolicy, type PolicyInput, readPolicy, restricts } from './policy.ts'
import { type AllowedHosts, allowedHostsOf, type EgressReport, reportOf } from './report.ts'
import { isNothing, none, type SandboxEgress } from './state.ts'
import { trust } from './trust.ts'

/** What a start from a checkpoint inherits. */
export interface InheritedEgress {
  egress: SandboxEgress | undefined
  /** Whether the checkpoint is of another organisation: then nothing of its secrets, nor its authority, comes along. */
  isForeign: boolean
  /** Whether the start is for somebody else than who used the source: then what restricts comes along, and no secret. */
  isHandedOver?: boolean
  checkpointId: string
}

export interface PrepareOptions {
  /** Those of the client, which win: a secret of the name of one is not used. */
  envs?: Readonly<Record<string, string>>
  /** Builds get no secrets. */
  isBuild?: boolean
  inherited?: InheritedEgress
}

export interface PreparedEgress {
  egress?: SandboxEgress
  /** The client's own win over them. */
  envs: Record<string, string>
}

export interface EgressOptions {
  store: SandboxStore
  egressStore: EgressStore
  secrets: SecretSource
  driver: Pick<RuntimeDriver, 'egress'>
  /** The guest of a sandbox that runs. */
  guest: (sandboxId: string, orgId?: string) => Guest
  log: Log
}

export interface Refreshed {
  refreshed: number
  failures: { sandboxId: string; error: string }[]
}

const noChain: SecretChain = { stores: [], missing: [], secrets: [] }
const refreshesAtOnce = 8

/**
 * The egress of sandboxes: what their records say of it, and what holds. The record is the truth, and names stores and placeholders alone; values are
 * read when a sandbox starts or something changes, go to the process of the host, and are kept nowhere else.
 */
export class Egress {
  readonly #options: EgressOptions
  readonly #changes = new KeyedMutex()
  /** By organisation: asked at each start. */
  readonly #policies = new Map<string, EgressPolicy | undefined>()

  constructor(options: EgressOptions) {
    this.#options = options
  }

  /** For a record that is about to be made. Throws `invalid_request` with the field, and `unavailable` where the host cannot hold egress. */
  async prepare(
    orgId: string,
    input: EgressInput,
    { envs = {}, isBuild = false, inherited }: PrepareOptions = {},
  ): Promise<PreparedEgress> {
    const all = inheritedFrom(inherited)
    const base = inherited?.isHandedOver === true ? await this.#withoutSecrets(orgId, all) : all
    const ofImage = inherited && (await this.#options.egressStore.imagePolicy(inherited.checkpointId))
    const named = input.secretStore === undefined ? [] : [input.secretStore]
    const drafted: SandboxEgress = {
      ...base,
      ...defined({ imagePolicy: ofImage ?? base.imagePolicy }),
      ...defined({ policy: input.egress === undefined ? base.policy : readPolicy(input.egress, 'egress') }),
      ...defined({ hosts: unitedHosts(base.hosts, input.egressAllowlist) }),
      ...defined({ secretHosts: narrowed(base.secretHosts, input.secretAllowedHosts) }),
      stores: [...base.stores.filter((name) => !named.includes(name)), ...named],
      inheritedStores: base.stores.filter((name) => !named.includes(name)).length,
    }
    const { secrets } = this.#options
    if (input.secrets !== undefined && Object.keys(input.secrets).length > 0) {
      const id = newId('ss-')
      await secrets.putInline(orgId, id, input.secrets)
      drafted.inline = [...base.inline, id]
    }
    const chain = isBuild ? noChain : await this.#chain(orgId, drafted)
    assertStores(chain, named)
    const make = (shape: string) => secrets.newPlaceholder(shape)
    const kept = inheritPlaceholders(base.placeholders, chain.secrets, make)
    const taken = new Set(Object.keys(envs))
    drafted.placeholders = placeholdersFor(chain.secrets, kept, make, taken)
    const layers = layersOf(drafted, await this.#policyOf(orgId), chain.stores)
    if (needsAuthority(drafted, layers)) drafted.authorityId ??= await this.#makeAuthority(orgId)
    const isPlain = isNothing(drafted)
    if (!isPlain || layers.length > 0) this.#assertAvailable()
    return isPlain ? { envs: {} } : { egress: drafted, envs: environmentOf(drafted) }
  }

  /** Throws what `prepare` would throw for what a creation says. */
  async assertInput(
    orgId: string,
    { secretStore, egress }: Pick<EgressInput, 'secretStore' | 'egress'>,
  ): Promise<void> {
    if (egress !== undefined) readPolicy(egress, 'egress')
    if (secretStore !== undefined) assertStores(await this.#chain(orgId, { ...none, stores: [secretStore] }))
    if (egress !== undefined || secretStore !== undefined) this.#assertAvailable()
  }

  /** For the driver: what holds for a sandbox that starts. One without a record is warm, and open until somebody has it. */
  async egressOf(sandboxId: string): Promise<StatedEgress> {
    const sandbox = await this.#options.store.sandbox(sandboxId)
    return sandbox === undefined ? { state: 'open' } : await this.#stated(sandbox)
  }

  /** The rule that closes the model gateway, which has a name among rules and is open unless one denies it. */
  async gatewayRefusal(sandboxId: string, host: string): Promise<string | undefined> {
    const sandbox = await this.#options.store.sandbox(sandboxId)
    if (sandbox === undefined) return undefined
    const layers = layersOf(sandbox.egress, await this.#policyOf(sandbox.orgId), [])
    const denials = layers.filter(({ log_only }) => !log_only).flatMap(({ deny }) => deny)
    return denials.find((rule) => rule.host === host)?.id
  }

  /** Makes programs of a started sandbox trust the authority that its record names. Harmless when they do. */
  async trust(guest: Guest, { egress }: Pick<Sandbox, 'egress'>): Promise<void> {
    if (egress?.authorityId === undefined) return
    const authority = await this.#options.egressStore.authority(egress.authorityId)
    if (authority !== undefined) await trust(guest, authority.certificate)
  }

  /** Replaces what the creation has said. In force, for open connections too, when it returns. */
  async setPolicy(sandbox: Sandbox, input: PolicyInput): Promise<void> {
    assertAlive(sandbox)
    const policy = readPolicy(input, 'egress')
    if (restricts(policy)) this.#assertAvailable()
    await this.#change(sandbox.id, (egress) => ({ ...egress, policy }))
  }

  /** What every sandbox of the organisation is held to besides. */
  async organisationPolicy(orgId: string): Promise<EgressPolicy | undefined> {
    return await this.#policyOf(orgId)
  }

  /** Undefined takes it away. In force for all that run, or listed as a failure, when it returns. */
  async setOrganisationPolicy(orgId: string, input: PolicyInput | undefined): Promise<Refreshed> {
    const policy = input && readPolicy(input, 'egress')
    if (policy && restricts(policy)) this.#assertAvailable()
    await this.#options.egressStore.setOrganisationPolicy(orgId, policy)
    this.#policies.set(orgId, policy)
    return await this.refresh(orgId)
  }

  /** Brings running sandboxes of an organisation to what their stores and policies say now; with a store, those that use it. */
  async refresh(orgId: string, store?: { name: string; isDefault: boolean }): Promise<Refreshed> {
    const isConcerned = ({ egress }: Sandbox) =>
      store === undefined || store.isDefault || egress?.stores.includes(store.name) === true
    const running = await this.#runningOf(orgId)
    const semaphore = new Semaphore({ permits: refreshesAtOnce })
    const failures: Refreshed['failures'] = []
    let refreshed = 0
    const bring = async ({ id }: Sandbox) => {
      try {
        await this.#change(id, (egress) => egress)
        refreshed += 1
      } catch (error) {
        this.#options.log.warn(
          { err: error, sandboxId: id },
          'the egress of a running sandbox could not be brought up to date',
        )
        failures.push({ sandboxId: id, error: error instanceof ServiceError ? error.message : 'internal error' })
      }
    }
    await Promise.all(running.filter(isConcerned).map((sandbox) => semaphore.use(() => bring(sandbox))))
    return { refreshed, failures }
  }

  /** What sandboxes that start from an image are held to besides; those that run keep what they started with. */
  async imagePolicy(checkpointId: string): Promise<EgressPolicy | undefined> {
    return await this.#options.egressStore.imagePolicy(checkpointId)
  }

  async setImagePolicy(checkpointId: string, input: PolicyInput | undefined): Promise<void> {
    await this.#options.egressStore.setImagePolicy(checkpointId, input && readPolicy(input, 'egress'))
  }

  async report({ orgId, egress = none }: Sandbox): Promise<EgressReport> {
    const { chain, layers } = await this.#layered(orgId, egress)
    return { ...reportOf(egress, layers, chain), ...defined({ unavailable: this.#unavailable() }) }
  }

  /** Read from the stores as they are now. */
  async allowedHosts({ orgId, egress = none }: Sandbox): Promise<AllowedHosts> {
    return allowedHostsOf(egress, await this.#chain(orgId, egress))
  }

  /** Changes the record, makes what is missing for it (placeholders, an authority), and puts it in force when the sandbox runs. */
  async #change(sandboxId: string, decide: (egress: SandboxEgress) => SandboxEgress): Promise<void> {
    await this.#changes.run(sandboxId, async () => {
      const { store, secrets, driver, guest } = this.#options
      const sandbox = await store.sandbox(sandboxId)
      if (sandbox === undefined) throw new ServiceError('not_found', `no sandbox ${sandboxId}`)
      const before = sandbox.egress
      const after = { ...decide(before ?? none) }
      const { chain, layers } = await this.#layered(sandbox.orgId, after)
      const taken = new Set(Object.keys(clientEnvs(sandbox.envs, before)))
      after.placeholders = placeholdersFor(
        chain.secrets,
        after.placeholders,
        (shape) => secrets.newPlaceholder(shape),
        taken,
      )
      if (needsAuthority(after, layers)) after.authorityId ??= await this.#makeAuthority(sandbox.orgId)
      const isNews = JSON.stringify(after) !== JSON.stringify(before ?? none)
      if (isNews) {
        const envs = changedEnvironment(sandbox.envs, before, after)
        await store.updateSandbox(sandboxId, { egress: isNothing(after) ? undefined : after, envs })
      }
      if (sandbox.status !== 'running') return
      if (after.authorityId !== before?.authorityId)
        await this.trust(guest(sandboxId, sandbox.orgId), { egress: after })
      await driver.egress?.refresh(sandboxId)
    })
  }

  async #stated({ orgId, egress }: Sandbox): Promise<StatedEgress> {
    const policy = await this.#policyOf(orgId)
    const usesSecrets = egress !== undefined && Object.keys(egress.placeholders).length > 0
    if (!usesSecrets && policy === undefined && egress === undefined) return { state: 'open' }
    const of = { orgId, stores: egress?.stores ?? [], inline: egress?.inline ?? [] }
    const chain = usesSecrets
      ? await this.#options.secrets.openChain(of)
      : { ...(await this.#chain(orgId, egress ?? none)), secrets: [] }
    const layers = layersOf(egress, policy, chain.stores)
    return statedEgress(egress, layers, chain.secrets, await this.#authority(egress?.authorityId, orgId))
  }

  async #chain(orgId: string, { stores, inline }: SandboxEgress): Promise<SecretChain> {
    const { secrets } = this.#options
    if (stores.length === 0 && inline.length === 0 && !(await secrets.hasDefaults(orgId))) return noChain
    return await secrets.chain({ orgId, stores, inline })
  }

  async #layered(orgId: string, egress: SandboxEgress): Promise<{ chain: SecretChain; layers: EgressLayer[] }> {
    const chain = await this.#chain(orgId, egress)
    return { chain, layers: layersOf(egress, await this.#policyOf(orgId), chain.stores) }
  }

  async #policyOf(orgId: string): Promise<EgressPolicy | undefined> {
    if (!this.#policies.has(orgId)) {
      const policy = await this.#options.egressStore.organisationPolicy(orgId)
      // A change meanwhile is newer.
      if (!this.#policies.has(orgId)) this.#policies.set(orgId, policy)
    }
    return this.#policies.get(orgId)
  }

  async #authority(id: string | undefined, orgId: string): Promise<EgressAuthority | undefined> {
    const stored = id === undefined ? undefined : await this.#options.egressStore.authority(id)
    if (stored === undefined || stored.orgId !== orgId) return undefined
    return { certificate: stored.certificate, key: await this.#options.secrets.unseal(orgId, stored.sealedKey) }
  }

  async #makeAuthority(orgId: string): Promise<string> {
    const { driver, secrets, egressStore } = this.#options
    this.#assertAvailable()
    const made = await driver.egress!.makeAuthority()
    const id = newId('ca-')
    await egressStore.insertAuthority({
      ...{ id, orgId, certificate: made.certificate },
      sealedKey: await secrets.seal(orgId, made.key),
    })
    return id
  }

  /** The hosts that a store lists go on to restrict when the store is left out. */
  async #withoutSecrets(orgId: string, egress: SandboxEgress): Promise<SandboxEgress> {
    const listed = listedHosts(egress, (await this.#chain(orgId, egress)).stores)
    const { policy, imagePolicy } = egress
    return { ...none, ...defined({ policy, imagePolicy, hosts: listed.length === 0 ? undefined : listed }) }
  }

  #unavailable(): string | undefined {
    const { egress } = this.#options.driver
    return egress === undefined ? 'this runtime cannot hold the egress of sandboxes' : egress.unavailable()
  }

  #assertAvailable(): void {
    const why = this.#unavailable()
    if (why !== undefined) throw new ServiceError('unavailable', `the egress of sandboxes cannot be held: ${why}`)
  }

  async #runningOf(orgId: string): Promise<Sandbox[]> {
    const running = await this.#options.store.sandboxesIn(['running'])
    return running.filter((sandbox) => sandbox.orgId === orgId)
  }
}

function inheritedFrom(inherited: InheritedEgress | undefined): SandboxEgress {
  const egress = inherited?.egress
  if (egress === undefined) return none
  return inherited?.isForeign === true ? { ...none, ...defined({ imagePolicy: egress.imagePolicy }) } : egress
}

/** Throws for those of `named`, or for all, of which there is no store. */
function assertStores({ missing }: SecretChain, named: readonly string[] = missing): void {
  const name = missing.find((one) => named.includes(one))
  if (name === undefined) return
  assertInput(false, 'secretStore', `is not the name of a secret store: ${JSON.stringify(name)}`)
}
