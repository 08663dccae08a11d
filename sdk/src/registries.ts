import type { Atoll, RequestOptions } from './atoll.ts'
import type { RegistryInfo } from './types.ts'

/** The credentials of the organisation at registries of images; `client.registries`. No answer has a password. */
export class Registries {
  readonly #client: Atoll

  /** Use {@link Atoll.registries}. */
  constructor(client: Atoll) {
    this.#client = client
  }

  /** Stores credentials in place of earlier ones. Throws `InvalidRequestError` for a registry that the operator does not allow. */
  async login(
    host: string,
    credentials: { username: string; password: string },
    options: RequestOptions = {},
  ): Promise<RegistryInfo> {
    return await this.#client.json('PUT', pathOf(host), { json: credentials, ...options })
  }

  /** Sorted by host. */
  async list(options: RequestOptions = {}): Promise<RegistryInfo[]> {
    return await this.#client.json('GET', '/api/registries', options)
  }

  /** Throws `NotFoundError` where there are no credentials. */
  async get(host: string, options: RequestOptions = {}): Promise<RegistryInfo> {
    return await this.#client.json('GET', pathOf(host), options)
  }

  /** Removes the credentials. Throws `NotFoundError`. */
  async logout(host: string, options: RequestOptions = {}): Promise<void> {
    await this.#client.json('DELETE', pathOf(host), options)
  }
}

function pathOf(host: string): string {
  return `/api/registries/${encodeURIComponent(host)}`
}
