export const sslStatuses = ['pending', 'active', 'failed', 'disabled'] as const
export type SslStatus = (typeof sslStatuses)[number]

export interface Preview {
  id: string
  orgId: string
  sandboxId: string
  /** Unique in its sandbox. */
  port: number
  /** A host name of the user's own, lower case, unique in its organisation and, once it is verified, in the service. */
  customHostname?: string
  /** When the record was seen that proves the host name to be the organisation's. Without it the name leads nowhere. */
  verifiedAt?: Date
  sslStatus: SslStatus
  /** Present when this port demands a token of its own, which overrides the sandbox's. */
  authScheme?: 'bearer'
  /** SHA-256 in hex. */
  tokenHash?: string
  createdAt: Date
}

type PreviewSetting = 'customHostname' | 'authScheme' | 'tokenHash'

/** A preview to insert, or what an update makes of one: there a key that is absent leaves its field, one that is `undefined` clears it. */
export type PreviewDeclaration = Omit<Preview, PreviewSetting | 'verifiedAt'> & {
  [Key in PreviewSetting]?: Preview[Key] | undefined
}
