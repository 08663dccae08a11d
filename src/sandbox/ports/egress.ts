/**
 * What a sandbox may reach, as the host of its driver enforces it. Terms and frames: docs/internals/egress.md.
 */

/** See docs/internals/egress.md § States of a sandbox. */
export type EgressState = 'open' | 'proxied' | 'confined'

export interface EgressRule {
  /** Where the rule stands, such as `creation.allow[0]`; refusals name it. */
  id: string
  /** A name in lower case and punycode, `*.name` for all below it, or `*`. Either this or `cidr`. */
  host?: string
  cidr?: string
  /** Inclusive ranges; absent: any. */
  ports?: [number, number][]
  /** In upper case; absent: any. */
  methods?: string[]
  /** `*` is any run of characters. */
  paths?: string[]
  /** TLS ends at the host although nothing else asks for it, so that the host name of each request is seen. */
  inspect?: boolean
}

export interface EgressLayer {
  source: 'organisation' | 'image' | 'store' | 'creation'
  mode: 'none' | 'list' | 'all'
  log_only: boolean
  allow: EgressRule[]
  deny: EgressRule[]
}

export interface EgressSecret {
  name: string
  placeholders: string[]
  value: string
  hosts: string[]
  in: ('header' | 'basic' | 'body' | 'query' | 'path')[]
  sign?: { type: 'aws-sigv4'; access_key_placeholder: string; access_key: string }
}

/** PEM texts. */
export interface EgressAuthority {
  certificate: string
  key: string
}

/** What the process of the host gets; the fields have the names of its frames. */
export interface EgressPlan {
  layers: EgressLayer[]
  secrets: EgressSecret[]
  authority?: EgressAuthority
  connections_max?: number
}

export interface StatedEgress {
  state: EgressState
  /** Of a sandbox that is not `open`. */
  plan?: EgressPlan
}

/** A connection, request or name that a sandbox asked for. No field holds a value of a secret. */
export interface EgressEntry {
  sandbox: string
  /** Milliseconds since 1970. */
  time: number
  decision: 'allowed' | 'denied' | 'would_deny' | 'failed'
  protocol: 'tls' | 'http' | 'https' | 'tcp' | 'dns' | 'h2' | 'ws'
  host?: string
  address?: string
  port: number
  method?: string
  path?: string
  status?: number
  rule?: string
  reason?: string
  /** Bytes, as the sandbox sees them. */
  sent: number
  received: number
  /** Names of those whose values were sent. */
  secrets?: string[]
  ms: number
}

/** Entries of a sandbox that came too fast to be told one by one. */
export interface EgressEntriesDropped {
  sandbox: string
  count: number
  sent: number
  received: number
}

/** Given to the driver. */
export interface EgressContext {
  /**
   * What holds for a sandbox of this id, asked before its link goes up, at each start, wake, restore and adoption. The driver fails the start
   * when this throws.
   */
  egressOf(sandboxId: string): Promise<StatedEgress>
  onEgressEntry(entry: EgressEntry): void
  onEgressEntriesDropped(dropped: EgressEntriesDropped): void
}

/** Of the driver. */
export interface DriverEgress {
  /** Why the host cannot hold egress; undefined when it can. A sandbox that is not `open` is then refused (`unavailable`). */
  unavailable(): string | undefined
  /** Asks `egressOf` again for a running sandbox; resolves when the answer is in force. Harmless for one that does not run. */
  refresh(sandboxId: string): Promise<void>
  /** Makes a certificate authority. Throws `unavailable`. */
  makeAuthority(): Promise<EgressAuthority>
}
