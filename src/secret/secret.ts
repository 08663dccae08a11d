/** Where in a request a placeholder is replaced by its value. `basic` is user and password of Basic authentication, which are encoded. */
export const places = ['header', 'basic', 'body', 'query', 'path'] as const
export type Place = (typeof places)[number]

/** What Basic authentication, headers and bodies need. Servers log queries and paths. */
export const defaultPlaces: readonly Place[] = ['header', 'basic', 'body']

/** Requests are signed with the value, which is itself never sent. */
export interface Signing {
  type: 'aws-sigv4'
  /** Name of the secret of the same chain whose value is the id of the access key. */
  accessKeyId: string
}

/** A named set of secrets, with hosts that a sandbox which uses it may reach. */
export interface Store {
  id: string
  orgId: string
  name: string
  /** Empty: no restriction. */
  egressAllowlist: string[]
  /** Whether it applies to every sandbox of the organisation. */
  isDefault: boolean
  createdAt: Date
  updatedAt: Date
}

/** How a secret is used. */
export interface SecretRules {
  /** Empty: what the egress of the sandbox lists. */
  allowedHosts: string[]
  places: Place[]
  /** How its placeholders look (`shape.ts`). */
  shape: string
  sign?: Signing
}

/** A secret without its value. */
export interface Secret extends SecretRules {
  id: string
  storeId: string
  name: string
  createdAt: Date
  updatedAt: Date
}

export interface SealedSecret extends Secret {
  /** By `KeyRing`, for `purposeOf` it. */
  sealedValue: string
}

/** A secret of a sandbox, after layering. */
export interface ChainSecret extends SecretRules {
  name: string
  /** Absent: it came with the creation. */
  storeName?: string
}

export interface ResolvedSecret extends ChainSecret {
  value: string
}

export function purposeOf({ storeId, name }: Pick<Secret, 'storeId' | 'name'>): string {
  return `secret ${storeId} ${name}`
}

/** Of what other parts seal with the keys of secrets: the private keys of certificate authorities. */
export const authorityPurpose = 'egress authority'
