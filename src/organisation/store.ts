import type { Creation } from '../lib/creation.ts'
import type { ApiKey, Organisation, OrganisationUse } from './organisation.ts'

export type OrganisationChange = {
  [Key in keyof Omit<Organisation, 'id' | 'isDefault' | 'createdAt'>]?: Organisation[Key] | undefined
}

/** The port to organisations and keys. A change of a key is in the log of its organisation by the same transaction. */
export interface OrganisationStore {
  /** The organisation of a fresh installation, made at the first call. */
  defaultOrganisation(): Promise<Organisation>
  /** All, in no order. */
  organisations(): Promise<Organisation[]>
  /** Throws `conflict` for an id that is taken. */
  insertOrganisation(
    organisation: Pick<Organisation, 'id' | 'name'> & Partial<Organisation>,
    creation?: Creation,
  ): Promise<void>
  /** A key with the value `undefined` clears its field. Undefined for an unknown id. The log tells of a suspension and its end. */
  updateOrganisation(id: string, change: OrganisationChange): Promise<Organisation | undefined>
  use(id: string): Promise<OrganisationUse>
  /**
   * Deletes its keys, all rows that only the database has, and its own row: the last step of a deletion. The audit stays. Throws `conflict`
   * while it has sandboxes or other things with data beside the database. A repeat completes a call that was cut off.
   */
  deleteOrganisation(id: string): Promise<void>

  /** Adds a key; the same secret of the same organisation again is harmless. Throws `conflict` when another one has it. */
  insertApiKey(key: Omit<ApiKey, 'name' | 'isDefault'> & Partial<ApiKey>): Promise<void>
  /**
   * Adds a key, unless the organisation has `keysMax`. Throws `quota_exceeded`, and `unauthorized` when the key that makes it (`madeBy`) has
   * ended meanwhile.
   */
  addApiKey(key: ApiKey, options: { keysMax: number; creation?: Creation | undefined }): Promise<void>
  /** Ends the default keys of an organisation but one. */
  deleteOtherDefaultKeys(orgId: string, keyHash: string): Promise<void>
  apiKeyByHash(keyHash: string): Promise<ApiKey | undefined>
  /** Newest first. */
  listApiKeys(orgId: string): Promise<ApiKey[]>
  /** Ends a key with those that it has made, and theirs. Returns all that ended; none for an unknown id. */
  deleteApiKey(orgId: string, id: string): Promise<string[]>
  /** Notes a use of a key, unless one after `before` is noted. */
  touchApiKey(id: string, usedAt: Date, before: Date): Promise<void>
  /** Of keys that a start has made or was given, which may have any form. */
  defaultKeyHashes(): Promise<string[]>
  /** Default keys alone. */
  countDefaultKeys(orgId: string): Promise<number>

  /** Of the keys that open the calls of the operator. */
  operatorKeyHashes(): Promise<string[]>
  /** Makes it the only one. */
  putOperatorKey(keyHash: string): Promise<void>
}
