import type { Atoll, RequestOptions } from './atoll.ts'
import type { WebhookDeliveryInfo, WebhookInfo, WebhookMessageInfo, WebhookWithSecret } from './types.ts'

export interface NewWebhook extends RequestOptions {
  url: string
  /** For people. */
  name?: string | undefined
  /** Default: one is made. */
  secret?: string | undefined
  /** Types of events, or `prefix.*`; default: all. */
  eventTypes?: string[] | undefined
  /** Only what happens to this sandbox. */
  sandboxId?: string | undefined
  enabled?: boolean | undefined
  /** Headers of each delivery. */
  metadata?: Record<string, string> | undefined
  /** `thin`: ids alone. */
  payload?: 'full' | 'thin' | undefined
}

export interface WebhookChange extends RequestOptions {
  url?: string | undefined
  name?: string | undefined
  /** `null` clears the filter. */
  eventTypes?: string[] | null | undefined
  enabled?: boolean | undefined
  payload?: 'full' | 'thin' | undefined
  rotateSecret?: boolean | undefined
}

/** Calls to URLs when something happens; `client.webhooks`. */
export class Webhooks {
  readonly #client: Atoll

  /** Use {@link Atoll.webhooks}. */
  constructor(client: Atoll) {
    this.#client = client
  }

  /** The answer has the secret. */
  async create({ signal, requestTimeoutMs, ...json }: NewWebhook): Promise<WebhookWithSecret> {
    return await this.#client.json('POST', '/api/webhooks', { json, creates: true, signal, requestTimeoutMs })
  }

  /** Newest first. */
  async list(options: RequestOptions = {}): Promise<WebhookInfo[]> {
    return (await this.#client.json<{ data: WebhookInfo[] }>('GET', '/api/webhooks', options)).data
  }

  /** Throws `NotFoundError`. */
  async get(id: string, options: RequestOptions = {}): Promise<WebhookInfo> {
    return await this.#client.json('GET', pathOf(id), options)
  }

  async secret(id: string, options: RequestOptions = {}): Promise<string> {
    return (await this.#client.json<{ secret: string }>('GET', `${pathOf(id)}/secret`, options)).secret
  }

  async update(id: string, { signal, requestTimeoutMs, ...json }: WebhookChange): Promise<WebhookWithSecret> {
    return await this.#client.json('PATCH', pathOf(id), { json, signal, requestTimeoutMs })
  }

  /** Throws `NotFoundError`. */
  async delete(id: string, options: RequestOptions = {}): Promise<void> {
    await this.#client.json('DELETE', pathOf(id), options)
  }

  /** Sends an example; returns the id of its message. */
  async test(id: string, options: RequestOptions = {}): Promise<string> {
    const { messageId } = await this.#client.json<{ messageId: string }>('POST', `${pathOf(id)}/test`, options)
    return messageId
  }

  /** The newest 50 attempts. */
  async deliveries(id: string, options: RequestOptions = {}): Promise<WebhookDeliveryInfo[]> {
    const path = `${pathOf(id)}/deliveries`
    return (await this.#client.json<{ data: WebhookDeliveryInfo[] }>('GET', path, options)).data
  }

  async delivery(id: string, messageId: string, options: RequestOptions = {}): Promise<WebhookMessageInfo> {
    return await this.#client.json('GET', `${pathOf(id)}/deliveries/${encodeURIComponent(messageId)}`, options)
  }

  /** A new attempt under the same id. */
  async redeliver(id: string, messageId: string, options: RequestOptions = {}): Promise<void> {
    await this.#client.json('POST', `${pathOf(id)}/deliveries/${encodeURIComponent(messageId)}/redeliver`, options)
  }
}

function pathOf(id: string): string {
  return `/api/webhooks/${encodeURIComponent(id)}`
}
