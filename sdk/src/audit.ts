import type { Atoll, RequestOptions } from './atoll.ts'
import { pagesOf } from './pages.ts'
import type { AuditEntryInfo, AuditHeadInfo } from './types.ts'

export interface AuditQuery extends RequestOptions {
  /** Id of the key, session or sandbox that acted. */
  actor?: string | undefined
  /** `operationId` of the reference. */
  operation?: string | undefined
  /** An id, name or path that the call was about. */
  subject?: string | undefined
  from?: string | undefined
  to?: string | undefined
  /** `ok`: calls that were let in; a status: those that were refused with it or failed. */
  status?: string | undefined
}

/** Who has done what in the organisation; `client.audit`. */
export class Audit {
  readonly #client: Atoll
  readonly #path: string

  /** Use {@link Atoll.audit}. */
  constructor(client: Atoll, path = '/api/audit') {
    this.#client = client
    this.#path = path
  }

  /** Newest first. */
  list({ signal, requestTimeoutMs, ...query }: AuditQuery = {}): AsyncIterable<AuditEntryInfo> {
    return pagesOf(this.#client, this.#path, query, { signal, requestTimeoutMs })
  }

  /** All of it as JSON lines, oldest first; `atoll audit verify` checks them. */
  async export(options: RequestOptions & { after?: number | undefined } = {}): Promise<ReadableStream<Uint8Array>> {
    const { after, ...request } = options
    const { body } = await this.#client.open('GET', `${this.#path}/export`, { query: { after }, ...request })
    return body ?? new ReadableStream({ start: (controller) => controller.close() })
  }

  /** The newest entry. Kept elsewhere, it shows later that nothing was cut off. */
  async head(options: RequestOptions = {}): Promise<AuditHeadInfo> {
    return await this.#client.json('GET', `${this.#path}/head`, options)
  }

  /** Tells the head as an event, which a webhook gets. */
  async tellHead(options: RequestOptions = {}): Promise<AuditHeadInfo> {
    return await this.#client.json('POST', `${this.#path}/head`, options)
  }
}
