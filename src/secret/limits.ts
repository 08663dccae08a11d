/** Bounds of secret stores (`ATOLL_LIMITS`). */
export interface SecretLimits {
  /** Of an organisation, without those of single sandboxes. */
  storesMax: number
  secretsPerStoreMax: number
  valueBytesMax: number
  /** Hosts of a secret. */
  hostsMax: number
  /** Hosts of the egress list of a store. */
  egressHostsMax: number
}

export const defaultSecretLimits: SecretLimits = {
  storesMax: 100,
  secretsPerStoreMax: 100,
  valueBytesMax: 64 * 1024,
  hostsMax: 100,
  egressHostsMax: 500,
}
