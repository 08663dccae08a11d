import { createHmac } from 'node:crypto'
import { idFrom, type IdPrefix } from './id.ts'

/** The row of an `Idempotency-Key`. Each life of a key has a random seed. */
export interface Claim {
  orgId: string
  key: string
  /** Sealed, as in the row. */
  seed: string
}

/** An answer that a key replays. */
export interface StoredResponse {
  statusCode: number
  body: string
  headers?: Record<string, string>
}

export type IdempotencyState =
  /** The request is to be run, as no run of it was answered. It gets the seed of its first run, and what the runs have made. */
  | { state: 'claimed'; seed: string; made: string[] }
  | ({ state: 'done' } & StoredResponse)
  /** The key was used with another request. */
  | { state: 'conflict' }

/**
 * A request that creates something and can be repeated under its `Idempotency-Key`. Ids and secrets are derived from the seed. So the
 * repeat of an interrupted request derives the same ones and finds the remains of the first run outside the database, on a host or in a
 * guest. `made` lists the records of the request; each is added in the transaction that creates the record.
 */
export class Creation {
  readonly claim: Claim
  /** Ids that earlier runs of the request have committed. */
  readonly made: readonly string[]
  /** Whether the request creates several things and this is one of them. */
  readonly isPart: boolean
  readonly #seed: string | Buffer
  readonly #reservedId: string | undefined

  /** `seed` is unsealed: random characters, and an id that was reserved for the request, with a blank before it. */
  constructor(claim: Claim, made: readonly string[], seed: string | Buffer, isPart = false) {
    this.claim = claim
    this.made = made
    this.isPart = isPart
    this.#seed = seed
    this.#reservedId = typeof seed === 'string' ? seed.split(' ')[1] : undefined
  }

  id(prefix: IdPrefix): string {
    if (this.#reservedId?.startsWith(prefix)) return this.#reservedId
    let block = 0
    return idFrom(prefix, () => this.#derive(`id ${prefix} ${block++}`))
  }

  /** 256 bits that cannot be derived from the database alone. */
  secret(purpose: string): string {
    return this.#derive(`secret ${purpose}`).toString('base64url')
  }

  /** One of several things that the request creates, with its own ids. */
  part(index: number): Creation {
    return new Creation(this.claim, this.made, this.#derive(`part ${index}`), true)
  }

  #derive(purpose: string): Buffer {
    return createHmac('sha256', this.#seed).update(purpose).digest()
  }
}

export interface CreateOptions {
  /** Set for a request with an `Idempotency-Key`. A repeat creates nothing again and returns the current state. */
  creation?: Creation | undefined
}

/** Recorded in the transaction that creates something, or undoes it. */
export interface CreationNote {
  creation: Creation
  outcome: 'made' | 'undone'
}
