import { ServiceError } from '../errors.ts'
import { KeyedMutex } from '../lib/async/mutex.ts'
import type { CreateOptions } from '../lib/creation.ts'
import { newId } from '../lib/id.ts'
import { defaultOrganisationLimits, organisationLimitBounds, type OrganisationLimits } from './limits.ts'
import { type Organisation, type OrganisationUse, statusOf } from './organisation.ts'
import type { OrganisationChange, OrganisationStore } from './store.ts'

/** Announced after the commit, in the order of the changes. */
export type OrganisationEvent =
  | { type: 'key_ended'; orgId: string; keyId: string }
  | { type: 'suspended' | 'resumed' | 'deleting' | 'removed' | 'limits_changed'; orgId: string }

export interface OrganisationsDeps {
  store: OrganisationStore
  /** Of the installation. */
  defaults?: Partial<OrganisationLimits>
}

const organisationsMax = 10_000
const nameLengthMax = 128
const reasonLengthMax = 512

/**
 * The organisations of an installation. All are in memory from `start` on: what admits a call, a start or a stream asks without waiting.
 *
 *     new ── start ──► started
 */
export class Organisations {
  readonly #store: OrganisationStore
  readonly #defaults: OrganisationLimits
  readonly #byId = new Map<string, Organisation>()
  /** Deleted ones: calls that were admitted before may still ask. */
  readonly #removed = new Set<string>()
  readonly #changes = new KeyedMutex()
  readonly #listeners = new Set<(event: OrganisationEvent) => void>()

  constructor({ store, defaults = {} }: OrganisationsDeps) {
    this.#store = store
    this.#defaults = { ...defaultOrganisationLimits, ...defaults }
  }

  async start(): Promise<void> {
    await this.#store.defaultOrganisation()
    await this.refresh()
  }

  /** Reads all again, after something else than this object has written them. */
  async refresh(): Promise<void> {
    const all = await this.#store.organisations()
    this.#byId.clear()
    for (const organisation of all) this.#byId.set(organisation.id, organisation)
  }

  /** Calls the listener after each change, until the returned function is called. It must not throw. */
  subscribe(listener: (event: OrganisationEvent) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  announce(event: OrganisationEvent): void {
    for (const listener of this.#listeners) listener(event)
  }

  find(orgId: string): Organisation | undefined {
    return this.#byId.get(orgId)
  }

  /** Throws `not_found`. */
  get(orgId: string): Organisation {
    const organisation = this.#byId.get(orgId)
    if (organisation === undefined) throw new ServiceError('not_found', `no organisation ${orgId}`)
    return organisation
  }

  /** Throws `not_found`. */
  async use(orgId: string): Promise<OrganisationUse> {
    return await this.#store.use(orgId)
  }

  /** By name, then id. */
  list(): Organisation[] {
    const order = ({ name, id }: Organisation) => `${name}\0${id}`
    return [...this.#byId.values()].toSorted((one, other) => (order(one) < order(other) ? -1 : 1))
  }

  /** A page of `list`. The cursor is the id of the last one; throws `invalid_request` for another. */
  page({ limit, cursor }: { limit: number; cursor?: string }): { items: Organisation[]; nextCursor?: string } {
    const all = this.list()
    const last = cursor === undefined ? -1 : all.findIndex(({ id }) => id === cursor)
    if (cursor !== undefined && last === -1) {
      throw new ServiceError('invalid_request', 'cursor: is of no list of organisations', {
        details: { field: 'cursor' },
      })
    }
    const items = all.slice(last + 1, last + 1 + limit)
    const end = items.at(-1)
    return { items, ...(end !== undefined && last + 1 + limit < all.length ? { nextCursor: end.id } : {}) }
  }

  /** The one of a fresh installation. */
  default(): Organisation {
    const found = [...this.#byId.values()].find(({ isDefault }) => isDefault)
    if (found === undefined) throw new Error('the organisations are not read yet')
    return found
  }

  /** In force: its own over those of the installation. */
  limitsOf(orgId: string): OrganisationLimits {
    return { ...this.#defaults, ...this.#byId.get(orgId)?.limits }
  }

  /** Throws `organisation_suspended` unless it may call and start. */
  assertActive(orgId: string): void {
    const organisation = this.#byId.get(orgId)
    if (organisation === undefined && this.#removed.has(orgId)) {
      throw new ServiceError('organisation_suspended', 'the organisation is deleted', {
        details: { status: 'deleting' },
      })
    }
    if (organisation === undefined) return
    const status = statusOf(organisation)
    if (status === 'active') return
    const why = organisation.suspendedReason === undefined ? '' : `: ${organisation.suspendedReason}`
    const what = status === 'deleting' ? 'is being deleted' : `is suspended${why}`
    throw new ServiceError('organisation_suspended', `the organisation ${what}`, { details: { status } })
  }

  isActive(orgId: string): boolean {
    const organisation = this.#byId.get(orgId)
    return organisation === undefined ? !this.#removed.has(orgId) : statusOf(organisation) === 'active'
  }

  async create(
    input: { name: string; limits?: Partial<OrganisationLimits> },
    { creation }: CreateOptions = {},
  ): Promise<Organisation> {
    const [madeId] = creation?.made ?? []
    if (madeId !== undefined) return this.get(madeId)
    assertName(input.name)
    assertLimits(input.limits)
    if (this.#byId.size >= organisationsMax) {
      throw new ServiceError(
        'quota_exceeded',
        `there are ${organisationsMax} organisations, the most that there may be`,
      )
    }
    const { name, limits = {} } = input
    const id = creation?.id('org_') ?? newId('org_')
    const organisation: Organisation = { id, name, limits, isDefault: false, createdAt: new Date() }
    await this.#store.insertOrganisation(organisation, creation)
    this.#byId.set(organisation.id, organisation)
    return organisation
  }

  /** A limit of `undefined` is again that of the installation; those that are left out stay. */
  async update(
    orgId: string,
    {
      name,
      limits,
    }: { name?: string; limits?: { [Limit in keyof OrganisationLimits]?: OrganisationLimits[Limit] | undefined } },
  ): Promise<Organisation> {
    if (name !== undefined) assertName(name)
    assertLimits(limits)
    const changed = await this.#change(orgId, ({ limits: former }) => {
      const merged = Object.entries({ ...former, ...limits }).filter(([, value]) => value !== undefined)
      return {
        ...(name === undefined ? {} : { name }),
        ...(limits === undefined ? {} : { limits: Object.fromEntries(merged) }),
      }
    })
    if (limits !== undefined) this.announce({ type: 'limits_changed', orgId })
    return changed
  }

  /** Calls are refused from here on; listeners end what is open and hibernate what runs. A repeat changes the reason. */
  async suspend(orgId: string, reason?: string): Promise<Organisation> {
    if (reason !== undefined && reason.length > reasonLengthMax) {
      const message = `reason: must have at most ${reasonLengthMax} characters`
      throw new ServiceError('invalid_request', message, { details: { field: 'reason' } })
    }
    const suspend = ({ suspendedAt = new Date() }: Organisation) => ({ suspendedAt, suspendedReason: reason })
    const changed = await this.#change(orgId, suspend)
    this.announce({ type: 'suspended', orgId })
    return changed
  }

  /** A repeat is harmless. */
  async resume(orgId: string): Promise<Organisation> {
    const changed = await this.#change(orgId, () => ({ suspendedAt: undefined, suspendedReason: undefined }))
    this.announce({ type: 'resumed', orgId })
    return changed
  }

  /** Begins its deletion; `removed` ends it. Throws `conflict` for the default one. A repeat is harmless. */
  async beginDeletion(orgId: string): Promise<Organisation> {
    const { isDefault, ...organisation } = this.get(orgId)
    if (isDefault) throw new ServiceError('conflict', 'the default organisation cannot be deleted')
    if (organisation.deletingAt !== undefined) return this.get(orgId)
    const changed = await this.#change(orgId, () => ({ deletingAt: new Date() }))
    this.announce({ type: 'deleting', orgId })
    return changed
  }

  /** The last step of a deletion, after all that it has is gone. */
  async removed(orgId: string): Promise<void> {
    await this.#store.deleteOrganisation(orgId)
    this.#removed.add(orgId)
    this.#byId.delete(orgId)
    this.announce({ type: 'removed', orgId })
  }

  /** One after another, so that each sees the one before. Throws `not_found`, and `conflict` once it is being deleted. */
  async #change(orgId: string, change: (organisation: Organisation) => OrganisationChange): Promise<Organisation> {
    return await this.#changes.run(orgId, async () => {
      const organisation = this.get(orgId)
      if (organisation.deletingAt !== undefined) {
        throw new ServiceError('conflict', 'the organisation is being deleted')
      }
      const changed = await this.#store.updateOrganisation(orgId, change(organisation))
      if (changed === undefined) throw new ServiceError('not_found', `no organisation ${orgId}`)
      this.#byId.set(orgId, changed)
      return changed
    })
  }
}

function assertName(name: string): void {
  if (name.trim() !== '' && name.length <= nameLengthMax) return
  throw new ServiceError('invalid_request', `name: must have 1 to ${nameLengthMax} characters, and not blanks alone`, {
    details: { field: 'name' },
  })
}

function assertLimits(limits: { [Limit in keyof OrganisationLimits]?: number | null | undefined } = {}): void {
  for (const [limit, value] of Object.entries(limits)) {
    const bounds = organisationLimitBounds[limit as keyof OrganisationLimits] as readonly [number, number] | undefined
    const field = `limits.${limit}`
    if (bounds === undefined)
      throw new ServiceError('invalid_request', `${field}: there is no such limit`, { details: { field } })
    const isNone = value === undefined || (value === null && limit === 'budgetUsdPerMonth')
    const isWhole = limit === 'budgetUsdPerMonth' ? Number.isFinite(value) : Number.isInteger(value)
    const [lowest, highest] = bounds
    if (isNone || (typeof value === 'number' && isWhole && value >= lowest && value <= highest)) continue
    throw new ServiceError('invalid_request', `${field}: must be from ${lowest} to ${highest}`, { details: { field } })
  }
}
