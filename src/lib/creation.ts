import { createHmac } from 'node:crypto'
import { idFrom, type IdPrefix } from './id.ts'

/** The row of an `Idempotency-Key`. The seed tells apart the lives of a key: each has a random one. */
export interface Claim {
  orgId: string
  key: string
  /** Sealed, as the row has it. */
  seed: string
}

/**
 * A request that creates, and may be repeated under its `Idempotency-Key`. Ids and secrets come from the seed, so a repeat of a
 * request that was cut off derives the same ones and finds what the first run has left where no transaction reaches: in a
 * machine or a guest. What the database holds of it is named by `made`, which is written in the transaction that makes it.
 */
export class Creation {
  readonly claim: Claim
  /** Ids of what runs before this one have committed. */
  readonly made: readonly string[]
  /** Whether the request makes several things, of which this is one. */
  readonly isPart: boolean
  readonly #seed: string | Buffer

  /** `seed` is the opened one. */
  constructor(claim: Claim, made: readonly string[], seed: string | Buffer, isPart = false) {
    this.claim = claim
    this.made = made
    this.isPart = isPart
    this.#seed = seed
  }

  id(prefix: IdPrefix): string {
    let block = 0
    return idFrom(prefix, () => this.#derive(`id ${prefix} ${block++}`))
  }

  /** 256 bits that nobody knows who has the database alone. */
  secret(purpose: string): string {
    return this.#derive(`secret ${purpose}`).toString('base64url')
  }

  /** One of several things that the request makes, with ids of its own. */
  part(index: number): Creation {
    return new Creation(this.claim, this.made, this.#derive(`part ${index}`), true)
  }

  #derive(purpose: string): Buffer {
    return createHmac('sha256', this.#seed).update(purpose).digest()
  }
}

export interface CreateOptions {
  /** Of a request with an `Idempotency-Key`. What it has made before is not made again, and answered as it is now. */
  creation?: Creation | undefined
}

/** Written down in the transaction that makes something, or takes it back. */
export interface CreationNote {
  creation: Creation
  outcome: 'made' | 'undone'
}
