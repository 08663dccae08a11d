import { sha256 } from '../lib/secret.ts'
import type { OrganisationStore } from './store.ts'

/** The prefix of keys of the operator that a start makes. */
export const operatorKeyPrefix = 'atoll_op_'

/** Whose key opens the calls that make, bound and delete organisations. It is no key of an organisation. */
export class Operator {
  readonly #store: Pick<OrganisationStore, 'operatorKeyHashes' | 'putOperatorKey'>
  #hashes = new Set<string>()

  constructor(store: Pick<OrganisationStore, 'operatorKeyHashes' | 'putOperatorKey'>) {
    this.#store = store
  }

  async start(): Promise<void> {
    this.#hashes = new Set(await this.#store.operatorKeyHashes())
  }

  hasKey(): boolean {
    return this.#hashes.size > 0
  }

  /** Makes it the only key of the operator. */
  async putKey(secret: string): Promise<void> {
    await this.#store.putOperatorKey(sha256(secret))
    await this.start()
  }

  owns(keyHash: string): boolean {
    return this.#hashes.has(keyHash)
  }
}
