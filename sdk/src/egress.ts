import type { Atoll, RequestOptions } from './atoll.ts'
import { type EgressPolicy, type EgressRule, withAllowed, withDenied } from './egress-policy.ts'
import { streamOf } from './events.ts'
import type { EgressEntryInfo, EgressInfo, EgressPolicyInfo, OrganisationEgressSetInfo } from './types.ts'

export interface EgressLogOptions extends RequestOptions {
  /** Begin after this number; `newest`: with the last entries. Default: with the oldest that are kept. */
  after?: number | 'newest' | undefined
  /** At most so many, up to 1000. Default 100. */
  limit?: number | undefined
  /** Only those. */
  decision?: EgressEntryInfo['decision'] | undefined
}

export interface FollowEgressOptions extends RequestOptions {
  /** Begin after this number; `newest`: with what comes from now on. Default: with the oldest that is kept. */
  after?: number | 'newest' | undefined
  /** Only those. */
  decision?: EgressEntryInfo['decision'] | undefined
}

interface EgressPage {
  data: EgressEntryInfo[]
}

/** What a sandbox may reach, and what it has asked for outside; `sandbox.egress`. It is never woken. */
export class SandboxEgress {
  readonly #client: Atoll
  readonly #path: string

  /** Use {@link Sandbox.egress}. */
  constructor(client: Atoll, sandboxPath: string) {
    this.#client = client
    this.#path = `${sandboxPath}/egress`
  }

  /** What holds now: all layers, and its secrets without their values. */
  async get(options: RequestOptions = {}): Promise<EgressInfo> {
    return await this.#client.json('GET', this.#path, options)
  }

  /**
   * Replaces the policy of the sandbox, in force when it returns, for open connections too. What its organisation, its image and its secret
   * stores say holds besides.
   */
  async set(policy: EgressPolicy, options: RequestOptions = {}): Promise<EgressInfo> {
    return await this.#client.json('PUT', this.#path, { json: policy, ...options })
  }

  /**
   * Adds rules that let pass, and takes them out of what is denied; a policy of the mode `none` becomes a list. Reads the policy and writes it
   * anew, so of two writers at a time the changes of one may be lost. Throws `InvalidRequestError` where everything passes already.
   */
  async allow(...rules: readonly EgressRule[]): Promise<EgressInfo> {
    return await this.set(withAllowed((await this.get()).policy, rules))
  }

  /**
   * Adds rules that deny, and takes them out of what is allowed. Reads the policy and writes it anew, so of two writers at a time the changes
   * of one may be lost.
   */
  async deny(...rules: readonly EgressRule[]): Promise<EgressInfo> {
    return await this.set(withDenied((await this.get()).policy, rules))
  }

  /** One page of what was let pass, refused or has failed. The next one comes after the number of its last entry. */
  async log({ after, limit, decision, ...request }: EgressLogOptions = {}): Promise<EgressEntryInfo[]> {
    const query = { after, limit, decision }
    return (await this.#client.json<EgressPage>('GET', `${this.#path}/log`, { query, ...request })).data
  }

  /** What is kept after `after`, then what comes: each entry once and in order, over restarts of the server, proxies and sleeps of this machine. */
  async *follow({ after, decision, ...request }: FollowEgressOptions = {}): AsyncGenerator<EgressEntryInfo> {
    // A number, since a connection that breaks before the first entry goes on from it.
    const begin = after === 'newest' ? ((await this.log({ after, limit: 1, ...request })).at(-1)?.number ?? 0) : after
    const query = { follow: true, decision }
    const entries = streamOf<EgressEntryInfo>(this.#client, `${this.#path}/log`, { ...request, after: begin, query })
    for await (const { data } of entries) yield data
  }
}

/** What every sandbox of the organisation is held to besides its own policy; `client.egress`. No creation lifts it. */
export class OrganisationEgress {
  readonly #client: Atoll

  /** Use {@link Atoll.egress}. */
  constructor(client: Atoll) {
    this.#client = client
  }

  /** `null`: there is none. */
  async get(options: RequestOptions = {}): Promise<EgressPolicyInfo | null> {
    return (await this.#client.json<{ policy: EgressPolicyInfo | null }>('GET', '/api/egress', options)).policy
  }

  /** In force when it returns, for open connections too, but for those that are listed in `failures`. */
  async set(policy: EgressPolicy, options: RequestOptions = {}): Promise<OrganisationEgressSetInfo> {
    return await this.#client.json('PUT', '/api/egress', { json: { policy }, ...options })
  }

  async clear(options: RequestOptions = {}): Promise<OrganisationEgressSetInfo> {
    return await this.#client.json('PUT', '/api/egress', { json: { policy: null }, ...options })
  }
}
