import type { EgressSecret } from './egress.ts'

/** A secret of a sandbox, after layering; without its value. */
export interface ChainSecret {
  name: string
  /** Host names, `*.name` or `*`. */
  allowedHosts: string[]
  places: EgressSecret['in']
  /** How its placeholders look. */
  shape: string
  /** It signs requests; `accessKeyId` is the name of the secret of the same chain that has the id. */
  sign?: { type: 'aws-sigv4'; accessKeyId: string }
}

export interface OpenedSecret extends ChainSecret {
  value: string
}

/** What an inline secret of a creation says. */
export interface InlineSecret {
  value: string
  allowedHosts?: string[] | undefined
  in?: EgressSecret['in'] | undefined
  placeholder?: string | undefined
  sign?: { type: 'aws-sigv4'; accessKeyId?: string | undefined } | undefined
}

export interface SecretChain<Secret extends ChainSecret = ChainSecret> {
  /** In the order of the layers. */
  stores: { id: string; name: string; egressAllowlist: string[] }[]
  /** Names of which there is no store. */
  missing: string[]
  secrets: Secret[]
}

/** The layers of a sandbox: the default stores of its organisation, then the named ones, then those of creations. A later one wins, name by name. */
export interface ChainOf {
  orgId: string
  stores: readonly string[]
  /** Ids of what `putInline` has put away. */
  inline: readonly string[]
}

/** Secrets, for sandboxes. */
export interface SecretSource {
  chain(of: ChainOf): Promise<SecretChain>
  /** With their values. Throws `unavailable` when the key that opens them is not there. */
  openChain(of: ChainOf): Promise<SecretChain<OpenedSecret>>
  /** Whether an organisation has stores that apply to all of its sandboxes. */
  hasDefaults(orgId: string): Promise<boolean>
  /** Keeps secrets of one creation under a new id. Throws `invalid_request` with the field. */
  putInline(orgId: string, id: string, secrets: Readonly<Record<string, InlineSecret>>): Promise<void>
  newPlaceholder(shape: string): string
  /** For the keys of certificate authorities. */
  seal(orgId: string, text: string): Promise<string>
  unseal(orgId: string, sealed: string): Promise<string>
}
