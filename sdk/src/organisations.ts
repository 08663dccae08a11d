import type { Atoll, RequestOptions } from './atoll.ts'
import { Keys } from './keys.ts'
import { pagesOf } from './pages.ts'
import type { OrganisationInfo, OrganisationLimits } from './types.ts'

export interface NewOrganisation extends RequestOptions {
  name: string
  /** Those that differ from the defaults of the installation. */
  limits?: OrganisationLimits | undefined
}

export interface OrganisationChange extends RequestOptions {
  name?: string | undefined
  /** `null` is the default of the installation again; those that are left out stay. */
  limits?: OrganisationLimits | undefined
}

/** The organisations of an installation; `client.organisations`. The client needs the operator's key. */
export class Organisations {
  readonly #client: Atoll

  /** Use {@link Atoll.organisations}. */
  constructor(client: Atoll) {
    this.#client = client
  }

  /** It has no key yet: `keys(id).create()`. */
  async create({ name, limits, ...request }: NewOrganisation): Promise<OrganisationInfo> {
    return await this.#client.json('POST', '/api/orgs', { json: { name, limits }, creates: true, ...request })
  }

  /** By name. */
  list(options: RequestOptions = {}): AsyncIterable<OrganisationInfo> {
    return pagesOf(this.#client, '/api/orgs', {}, options)
  }

  /** Throws `NotFoundError`. */
  async get(id: string, options: RequestOptions = {}): Promise<OrganisationInfo> {
    return await this.#client.json('GET', pathOf(id), options)
  }

  async update(id: string, { name, limits, ...request }: OrganisationChange): Promise<OrganisationInfo> {
    return await this.#client.json('PATCH', pathOf(id), { json: { name, limits }, ...request })
  }

  /** Refuses its calls, ends its streams, and hibernates what runs. */
  async suspend(
    id: string,
    { reason, ...request }: { reason?: string | undefined } & RequestOptions = {},
  ): Promise<OrganisationInfo> {
    return await this.#client.json('POST', `${pathOf(id)}/suspend`, { json: { reason }, repeat: 'always', ...request })
  }

  async resume(id: string, options: RequestOptions = {}): Promise<OrganisationInfo> {
    return await this.#client.json('POST', `${pathOf(id)}/resume`, { repeat: 'always', ...options })
  }

  /** Begins the deletion of an organisation with all that it has. When all is gone, `get` throws `NotFoundError`. */
  async delete(id: string, options: RequestOptions = {}): Promise<OrganisationInfo> {
    return await this.#client.json('DELETE', pathOf(id), options)
  }

  /** The keys of one organisation. */
  keys(id: string): Keys {
    return new Keys(this.#client, `${pathOf(id)}/keys`)
  }
}

function pathOf(id: string): string {
  return `/api/orgs/${encodeURIComponent(id)}`
}
