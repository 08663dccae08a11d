import type { Atoll, RequestOptions } from './atoll.ts'
import { NotFoundError } from './errors.ts'
import type { SecretInfo, SecretSetInfo, SecretsKeyRotatedInfo, SecretStoreInfo } from './types.ts'

export interface NewSecretStore extends RequestOptions {
  /** Sandboxes are given the store by it. */
  name: string
  /** Host names, `*.name` or `*`: a sandbox with the store reaches nothing else. Default: no restriction. */
  egressAllowlist?: string[] | undefined
  /** Whether every sandbox of the organisation has it. */
  isDefault?: boolean | undefined
}

export interface SecretStoreChange extends RequestOptions {
  name?: string | undefined
  /** `[]` takes the restriction away. */
  egressAllowlist?: string[] | undefined
  isDefault?: boolean | undefined
}

/** How a secret is used. What is left out is as for a new one, also when it replaces another. */
export interface SetSecretOptions extends RequestOptions {
  /** Where the value is sent: host names, `*.name` or `*`. Default: what the egress of the sandbox lists. */
  allowedHosts?: string[] | undefined
  /** Parts of a request in which it is put. Default `header`, `basic` and `body`. */
  in?: SecretInfo['in'] | undefined
  /** How placeholders look: a known shape such as `openai`, or a pattern such as `key-{32}`. Default `sealed`. */
  placeholder?: string | undefined
  /** The value signs requests in place of being sent. */
  sign?: SecretInfo['sign']
}

/** Secret stores of the organisation; `client.secrets`. No call answers a value: sandboxes have placeholders, and the host sends the value. */
export class Secrets {
  readonly #client: Atoll

  /** Use {@link Atoll.secrets}. */
  constructor(client: Atoll) {
    this.#client = client
  }

  /** Throws `ConflictError` when the name is taken. */
  async createStore({ signal, requestTimeoutMs, ...json }: NewSecretStore): Promise<SecretStoreInfo> {
    return await this.#client.json('POST', '/api/secret-stores', { json, creates: true, signal, requestTimeoutMs })
  }

  /** Sorted by name. */
  async listStores(options: RequestOptions = {}): Promise<SecretStoreInfo[]> {
    return await this.#client.json('GET', '/api/secret-stores', options)
  }

  /** Throws `NotFoundError`. */
  async getStore(id: string, options: RequestOptions = {}): Promise<SecretStoreInfo> {
    return await this.#client.json('GET', pathOf(id), options)
  }

  /** Throws `NotFoundError`. */
  async storeNamed(name: string, options: RequestOptions = {}): Promise<SecretStoreInfo> {
    const found = (await this.listStores(options)).find((store) => store.name === name)
    if (found === undefined) throw missing(name)
    return found
  }

  /** What is left out stays. Sandboxes that run with it follow. */
  async updateStore(id: string, { signal, requestTimeoutMs, ...json }: SecretStoreChange): Promise<SecretStoreInfo> {
    return await this.#client.json('PUT', pathOf(id), { json, signal, requestTimeoutMs })
  }

  /** Deletes a store with its secrets, which sandboxes that run lose. Throws `NotFoundError`. */
  async deleteStore(id: string, options: RequestOptions = {}): Promise<void> {
    await this.#client.json('DELETE', pathOf(id), options)
  }

  /** Sets a secret in place of an earlier one, for what runs too: `refreshed` says how many sandboxes use it from now on. */
  async set(storeId: string, name: string, value: string, options: SetSecretOptions = {}): Promise<SecretSetInfo> {
    const { signal, requestTimeoutMs, ...rules } = options
    return await this.#client.json('PUT', secretPath(storeId, name), {
      json: { value, ...rules },
      signal,
      requestTimeoutMs,
    })
  }

  /** The secrets of a store without values, sorted by name. */
  async list(storeId: string, options: RequestOptions = {}): Promise<SecretInfo[]> {
    return await this.#client.json('GET', `${pathOf(storeId)}/secrets`, options)
  }

  /** Deletes a secret, which sandboxes that run lose. Throws `NotFoundError`. */
  async delete(storeId: string, name: string, options: RequestOptions = {}): Promise<void> {
    await this.#client.json('DELETE', secretPath(storeId, name), options)
  }

  /** Takes another key for what is stored. For the operator's key. */
  async rotateKey(options: RequestOptions = {}): Promise<SecretsKeyRotatedInfo> {
    return await this.#client.json('POST', '/api/operator/secrets/rotate', options)
  }
}

function missing(name: string): NotFoundError {
  return new NotFoundError(`no secret store is named ${JSON.stringify(name)}`, { code: 'not_found' })
}

function pathOf(id: string): string {
  return `/api/secret-stores/${encodeURIComponent(id)}`
}

function secretPath(storeId: string, name: string): string {
  return `${pathOf(storeId)}/secrets/${encodeURIComponent(name)}`
}
