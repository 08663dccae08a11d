/** The owner of sandboxes, checkpoints and sessions. A key of one sees nothing of another. */
export interface Organisation {
  id: string
  name: string
}

/** Keys are kept as SHA-256 in hex and shown once, when they are made. */
export interface OrganisationStore {
  /** The organisation of a fresh installation, made at the first call. */
  defaultOrganisation(): Promise<Organisation>
  insertOrganisation(organisation: Organisation): Promise<void>
  /** Adds a key; the same key of the same organisation again is harmless. Throws `conflict` when another one has it. */
  insertApiKey(key: { id: string; orgId: string; keyHash: string; createdAt: Date }): Promise<void>
  /** Ends all keys of an organisation but one. */
  deleteOtherApiKeys(orgId: string, keyHash: string): Promise<void>
  /** With the id of the key. */
  organisationByKey(keyHash: string): Promise<(Organisation & { keyId: string }) | undefined>
  /** Of all organisations; at most 10 000, in no order. */
  apiKeyHashes(): Promise<string[]>
  countApiKeys(orgId: string): Promise<number>
}
