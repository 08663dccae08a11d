import type { Creation } from '../lib/creation.ts'
import type { SealedSecret, Store } from './secret.ts'

export type StoreChange = Partial<Pick<Store, 'name' | 'egressAllowlist' | 'isDefault'>> & { updatedAt: Date }

/** What a chain is made of. */
export interface ChainQuery {
  names: readonly string[]
  /** Ids of hidden stores. */
  hidden: readonly string[]
}

/** A text that a key of the ring has sealed. */
export interface SealedRow {
  of: 'secret' | 'authority'
  id: string
  orgId: string
  /** Of a secret. */
  storeId?: string
  name?: string
  sealed: string
}

/**
 * The port to the rows. Each method is one transaction, durable when it returns. A hidden store has the secrets of one creation; `listStores`,
 * `store`, `updateStore` and `deleteStore` do not see it.
 */
export interface SecretStorePort {
  /** Throws `quota_exceeded` beyond `storesMax`, and `conflict` when the name is taken. */
  insertStore(store: Store, options: { storesMax: number; creation?: Creation | undefined }): Promise<void>
  /** By name. */
  listStores(orgId: string): Promise<Store[]>
  store(orgId: string, id: string): Promise<Store | undefined>
  /** Throws `conflict` when the name is taken. Undefined when there is none. */
  updateStore(orgId: string, id: string, change: StoreChange): Promise<{ before: Store; after: Store } | undefined>
  /** With its secrets. */
  deleteStore(orgId: string, id: string): Promise<Store | undefined>

  /** Replaces the one of the name, whose id and time of creation stay. Throws `not_found` without the store, `quota_exceeded` beyond `secretsMax`. */
  putSecret(secret: SealedSecret, options: { secretsMax: number }): Promise<void>
  /** By name. */
  listSecrets(storeId: string): Promise<SealedSecret[]>
  deleteSecret(storeId: string, name: string): Promise<boolean>

  /** Replaces the hidden store of this id. */
  putHidden(store: Store, hiddenId: string, secrets: readonly SealedSecret[]): Promise<void>
  deleteHidden(orgId: string, hiddenId: string): Promise<boolean>
  /** The stores that a chain is made of, in no order, each with its secrets. Hidden ones have `hiddenId`. */
  chainStores(orgId: string, query: ChainQuery): Promise<{ store: Store; hiddenId?: string; secrets: SealedSecret[] }[]>
  hasDefaults(orgId: string): Promise<boolean>

  /** Ids of the keys that rows are sealed with. */
  keysInUse(): Promise<string[]>
  /** Rows of one kind that another key has sealed, by id. */
  sealedByOthers(of: SealedRow['of'], keyId: string, page: { after: string; limit: number }): Promise<SealedRow[]>
  /** Replaces sealed texts, where a row still has the text that it had. Returns how many. */
  reseal(rows: readonly { row: SealedRow; sealed: string }[]): Promise<number>
}
