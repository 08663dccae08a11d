import type { Atoll, RequestOptions } from './atoll.ts'
import type { SandboxUsageInfo, UsageInfo } from './types.ts'

export interface UsageQuery extends RequestOptions {
  /** `sandbox` by default; `tag:<key>`, `key`, or `session` for tokens and money. */
  groupBy?: string | undefined
  /** ISO 8601; default: thirty days ago. */
  from?: string | undefined
  /** Default: now. */
  to?: string | undefined
  /** By key of a tag, the values of which a sandbox must have one; none: it must not have the key. */
  tags?: Readonly<Record<string, readonly string[]>> | undefined
  sort?: '-memoryGbSeconds' | '-diskOverageGbSeconds' | undefined
  limit?: number | undefined
  cursor?: string | undefined
}

/** What the organisation has used; `client.usage`. */
export class Usage {
  readonly #client: Atoll

  /** Use {@link Atoll.usage}. */
  constructor(client: Atoll) {
    this.#client = client
  }

  /** One page: `nextCursor` names the next. */
  async get(query: UsageQuery = {}): Promise<UsageInfo> {
    return await this.#client.json('GET', '/api/usage', callOf(query))
  }

  /** The page as CSV. */
  async csv(query: UsageQuery = {}): Promise<string> {
    const call = callOf(query)
    const bytes = await this.#client.bytes('GET', '/api/usage', { ...call, query: { ...call.query, format: 'csv' } })
    return new TextDecoder().decode(bytes)
  }

  /** One sandbox, minute by minute. */
  async sandbox(
    id: string,
    { from, to, ...request }: Pick<UsageQuery, 'from' | 'to'> & RequestOptions = {},
  ): Promise<SandboxUsageInfo> {
    const path = `/api/sandboxes/${encodeURIComponent(id)}/usage`
    return await this.#client.json('GET', path, { query: { from, to }, ...request })
  }
}

function callOf({ tags = {}, groupBy = 'sandbox', signal, requestTimeoutMs, ...query }: UsageQuery) {
  const filters = Object.entries(tags).map(([key, values]) => [`filter[tag:${key}]`, values.join(',')] as const)
  return { query: { groupBy, ...query, ...Object.fromEntries(filters) }, signal, requestTimeoutMs }
}
