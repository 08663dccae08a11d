import type { Atoll, RequestOptions } from './atoll.ts'
import type { CreatedKeyInfo, KeyInfo } from './types.ts'

/** What is left out does not bound it. */
export interface NewKey extends RequestOptions {
  /** For people. */
  name?: string | undefined
  /** What it may do. */
  scopes?: NonNullable<KeyInfo['scopes']> | undefined
  /** When it ends, as ISO 8601. */
  expiresAt?: string | undefined
  /** It sees and makes only what has a name that begins so, and what it has made itself. */
  namePrefix?: string | undefined
  /** Sandboxes of it that are not stopped. */
  sandboxesMax?: number | undefined
}

/** The API keys of one organisation: `client.keys` is of the client's own, `client.organisations.keys(id)` of any, with the operator's key. */
export class Keys {
  readonly #client: Atoll
  readonly #path: string

  /** Use {@link Atoll.keys}. */
  constructor(client: Atoll, path = '/api/keys') {
    this.#client = client
    this.#path = path
  }

  /** Makes a key; `key` of the answer is the secret, shown this once. Throws `ForbiddenError` for what the own key does not have. */
  async create(options: NewKey = {}): Promise<CreatedKeyInfo> {
    const { signal, requestTimeoutMs, ...json } = options
    return await this.#client.json('POST', this.#path, { json, creates: true, signal, requestTimeoutMs })
  }

  /** Newest first. A key that is bound in some way sees itself and those that it has made. */
  async list(options: RequestOptions = {}): Promise<KeyInfo[]> {
    return await this.#client.json('GET', this.#path, options)
  }

  /** Ends a key with those that it has made. Throws `NotFoundError`. */
  async delete(id: string, options: RequestOptions = {}): Promise<void> {
    await this.#client.json('DELETE', `${this.#path}/${encodeURIComponent(id)}`, options)
  }
}
