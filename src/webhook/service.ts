import { randomBytes } from 'node:crypto'
import { ServiceError } from '../errors.ts'
import type { EventBus, LogEvent, LogEventType } from '../events/index.ts'
import type { CreateOptions, Creation } from '../lib/creation.ts'
import { defined } from '../lib/defined.ts'
import { newId } from '../lib/id.ts'
import type { Log } from '../lib/log.ts'
import type { Sealer } from '../lib/sealed.ts'
import { type Destination, type Message, type Payload, purposeOf, type SealedDestination } from './destination.ts'
import { Dispatcher } from './dispatcher.ts'
import { messageTo } from './envelope.ts'
import { assertFilter, firstOf } from './filter.ts'
import { assertHeaders } from './headers.ts'
import { assertSecret, newSecret } from './secret.ts'
import { assertWithinQuota } from './quota.ts'
import type { Delivery, WebhookStore } from './store.ts'
import { type AllowedTargets, urlFault } from './target.ts'

/** Bounds of webhooks. */
export interface WebhookLimits {
  /** How long messages and attempts are kept. */
  keptMs: number
  /** How long what comes for a disabled destination waits, and how much of it. */
  waitingMs: number
  waitingMax: number
  /** How long the secret before a rotation signs too. */
  oldSecretMs: number
  deliveriesMax: number
}

const dayMs = 86_400_000
export const defaultWebhookLimits: WebhookLimits = {
  keptMs: 30 * dayMs,
  waitingMs: dayMs,
  waitingMax: 10_000,
  oldSecretMs: dayMs,
  deliveriesMax: 50,
}

const nameLengthMax = 128
const inlineMax = 5

export interface NewDestination {
  url: string
  name?: string
  secret?: string
  eventTypes?: string[]
  sandboxId?: string
  isEnabled?: boolean
  headers?: Record<string, string>
  payload?: Payload
}

/** As a create of a sandbox takes them. */
export type InlineWebhook = Pick<NewDestination, 'url' | 'secret' | 'eventTypes'>

export interface ChangeDestination {
  url?: string
  name?: string
  /** `null` clears the filter. */
  eventTypes?: string[] | null
  isEnabled?: boolean
  payload?: Payload
  rotateSecret?: boolean
}

interface WebhooksDeps {
  store: WebhookStore
  bus: EventBus
  sealer: Sealer
  targets: AllowedTargets
  /** Of events that may be asked for. */
  eventTypes: readonly LogEventType[]
  /** Destinations that an organisation may have. */
  destinationsMaxOf: (orgId: string) => number
  /** Throws `not_found`. */
  assertSandbox: (orgId: string, sandboxId: string) => Promise<void>
  /** Called when the first destination is there: something must deliver now. */
  onDestination: () => void
  limits?: Partial<WebhookLimits>
  log: Log
}

/** Destinations of webhooks and what they get. A destination of another organisation is `not_found`. */
export class Webhooks {
  readonly #deps: WebhooksDeps
  readonly #limits: WebhookLimits
  readonly #dispatcher: Dispatcher

  constructor(deps: WebhooksDeps) {
    this.#deps = deps
    this.#limits = { ...defaultWebhookLimits, ...deps.limits }
    this.#dispatcher = new Dispatcher({ store: deps.store, bus: deps.bus, log: deps.log })
  }

  /** Hands over what a killed server has not. */
  async start(): Promise<void> {
    if (!(await this.#dispatcher.start())) return
    await this.#deps.store.prepare()
    this.#deps.onDestination()
  }

  async close(): Promise<void> {
    await this.#dispatcher.close()
  }

  /** Hands over nothing more of an organisation, which is being deleted. */
  async forget(orgId: string): Promise<void> {
    await this.#dispatcher.forget(orgId)
  }

  /** The answer has the secret. */
  async create(
    orgId: string,
    input: NewDestination,
    { creation }: CreateOptions = {},
  ): Promise<{ destination: Destination; secret: string }> {
    this.#assertInput(input)
    const [madeId] = creation?.made ?? []
    if (madeId !== undefined) {
      const made = await this.#read(orgId, madeId)
      return { destination: made, secret: this.#secretOf(made) }
    }
    if (input.sandboxId !== undefined) await this.#deps.assertSandbox(orgId, input.sandboxId)
    const id = creation?.id('whk_') ?? newId('whk_')
    const made = this.#draft(orgId, id, input, secretOf(input, creation, 'webhook'))
    await this.#insert(orgId, [made.row], creation)
    return { destination: await this.#read(orgId, id), secret: made.secret }
  }

  /** Throws what `create` would throw for these, before a sandbox starts. */
  async assertInline(orgId: string, webhooks: readonly InlineWebhook[], { creation }: CreateOptions): Promise<void> {
    if (webhooks.length > inlineMax) throw invalid('webhooks', `must be at most ${inlineMax}`)
    for (const [index, webhook] of webhooks.entries()) this.#assertInput(webhook, `webhooks.${index}.`)
    // A repeat may have registered them before.
    if (creation !== undefined && creation.made.length > 0) return
    const { length: count } = await this.list(orgId)
    assertWithinQuota(count, webhooks.length, this.#deps.destinationsMaxOf(orgId))
  }

  /**
   * Registers the webhooks that a create has asked for: they get all that the sandbox does, from its creation on. A repeat of the request
   * registers the same. The sandbox runs already: if they cannot be registered, none is in the answer, and the log says why.
   */
  async addInline(
    orgId: string,
    sandboxId: string,
    webhooks: readonly InlineWebhook[],
    creation: Creation | undefined,
  ): Promise<{ id: string; url: string; secret?: string }[]> {
    const drafts = webhooks.map((webhook, index) => {
      const id = creation === undefined ? newId('whk_') : creation.part(index).id('whk_')
      return {
        ...this.#draft(orgId, id, { ...webhook, sandboxId }, secretOf(webhook, creation, `webhook ${index}`)),
        webhook,
      }
    })
    try {
      await this.#insert(
        orgId,
        drafts.map(({ row }) => row),
        undefined,
      )
    } catch (error) {
      this.#deps.log.warn({ err: error, sandboxId }, 'the webhooks of a new sandbox could not be registered')
      return []
    }
    return drafts.map(({ row: { id, url }, secret, webhook }) => ({
      ...{ id, url },
      ...(webhook.secret === undefined ? { secret } : {}),
    }))
  }

  list(orgId: string): Promise<Destination[]> {
    return this.#deps.store.listDestinations(orgId)
  }

  async get(orgId: string, id: string): Promise<Destination> {
    return await this.#read(orgId, id)
  }

  async secret(orgId: string, id: string): Promise<string> {
    return this.#secretOf(await this.#read(orgId, id))
  }

  /** With a new secret the former one signs too for a day. */
  async update(
    orgId: string,
    id: string,
    change: ChangeDestination,
  ): Promise<{ destination: Destination; secret?: string }> {
    const { store, sealer } = this.#deps
    const { url, name, eventTypes, isEnabled, payload, rotateSecret = false } = change
    const former = await this.#read(orgId, id)
    this.#assertInput({ ...defined({ name, payload }), url: url ?? former.url, ...(eventTypes ? { eventTypes } : {}) })
    const secret = rotateSecret ? newSecret() : undefined
    const rotated =
      secret === undefined
        ? {}
        : {
            sealedSecret: sealer.seal(secret, { orgId, purpose: purposeOf({ id }) }),
            sealedOldSecret: former.sealedSecret,
            oldSecretUntil: new Date(Date.now() + this.#limits.oldSecretMs),
          }
    // Another address begins without the failures of the former one.
    const begun =
      url === undefined || url === former.url ? {} : { failures: 0, failingSince: undefined, circuitUntil: undefined }
    let destination = await store.updateDestination(orgId, id, {
      ...defined({ url, name, payload }),
      ...(eventTypes === undefined ? {} : { eventTypes: eventTypes ?? [] }),
      ...(isEnabled === false ? { isEnabled } : {}),
      ...rotated,
      ...begun,
      updatedAt: new Date(),
    })
    if (isEnabled === true && !former.isEnabled) {
      const { waitingMs, waitingMax: messagesMax } = this.#limits
      destination = await store.enable(orgId, id, { before: new Date(Date.now() - waitingMs), messagesMax })
      this.#deps.onDestination()
    }
    if (destination === undefined) throw unknown(id)
    return { destination, ...defined({ secret }) }
  }

  async delete(orgId: string, id: string): Promise<void> {
    if (!(await this.#deps.store.deleteDestination(orgId, id))) throw unknown(id)
  }

  /** Sends an example to this destination, whether the event has happened or not. */
  async test(orgId: string, id: string): Promise<{ eventType: LogEventType; messageId: string }> {
    const destination = await this.#assertEnabled(orgId, id)
    const type = firstOf(destination.eventTypes, this.#deps.eventTypes)
    const { sandboxId = 'sb-test' } = destination
    const eventId = `test.${id}.${randomBytes(6).toString('hex')}`
    const event: LogEvent = {
      ...{ number: 0, ts: new Date(), orgId, type, sandboxId, subject: sandboxId },
      ...{ actor: { type: 'server' }, cause: 'request', data: { test: true } },
    }
    const message = messageTo(destination, event, eventId)
    await this.#deps.store.addMessage(message)
    return { eventType: type, messageId: message.id }
  }

  async listDeliveries(orgId: string, id: string): Promise<Delivery[]> {
    await this.#read(orgId, id)
    return await this.#deps.store.listDeliveries(id, this.#limits.deliveriesMax)
  }

  async delivery(orgId: string, id: string, ofMessage: string): Promise<Message> {
    await this.#read(orgId, id)
    const found = await this.#deps.store.message(id, ofMessage)
    if (found === undefined) throw new ServiceError('not_found', `no delivery ${ofMessage}`)
    return found.message
  }

  /** A new attempt under the same id. Throws `conflict` while the destination is disabled, or for a message without its body. */
  async redeliver(orgId: string, id: string, ofMessage: string): Promise<void> {
    const { state } = await this.delivery(orgId, id, ofMessage)
    if (state === 'dropped')
      throw new ServiceError('conflict', 'the message was dropped: its destination was disabled for too long')
    await this.#assertEnabled(orgId, id)
    await this.#deps.store.redeliver(id, ofMessage)
  }

  /** Deletes what is over for long enough, and what belongs to sandboxes that are gone. */
  async purge(now = new Date()): Promise<void> {
    const ago = (ms: number) => new Date(now.getTime() - ms)
    await this.#deps.store.purge(ago(this.#limits.keptMs), ago(this.#limits.waitingMs))
    await this.#deps.store.purgePinned()
  }

  /** Tells in the log which destinations their failures have disabled. */
  async tellDisabled(): Promise<void> {
    await this.#deps.store.tellDisabled()
  }

  async #insert(
    orgId: string,
    rows: readonly Omit<SealedDestination, 'afterNumber'>[],
    creation: Creation | undefined,
  ): Promise<void> {
    await this.#deps.store.insertDestinations(rows, {
      destinationsMax: this.#deps.destinationsMaxOf(orgId),
      messagesOf: (destination, event) => this.#dispatcher.messageOf(destination, event),
      creation,
    })
    this.#dispatcher.watch(orgId)
    this.#deps.onDestination()
  }

  #draft(orgId: string, id: string, input: NewDestination, secret: string) {
    const { url, name, eventTypes = [], sandboxId, isEnabled = true, headers, payload = 'full' } = input
    const { sealer } = this.#deps
    const sealing = { orgId, purpose: purposeOf({ id }) }
    const now = new Date()
    const row: Omit<SealedDestination, 'afterNumber'> = {
      ...{ id, orgId, url: new URL(url).href, eventTypes, isEnabled, payload, failures: 0, dropped: 0 },
      ...{ createdAt: now, updatedAt: now, sealedSecret: sealer.seal(secret, sealing) },
      ...defined({ name, sandboxId, sealedHeaders: headers && sealer.seal(JSON.stringify(headers), sealing) }),
    }
    return { row, secret }
  }

  #assertInput({ url, name = '', secret, eventTypes = [], headers }: NewDestination, place = ''): void {
    const fault = urlFault(url, this.#deps.targets)
    if (fault !== undefined) throw invalid(`${place}url`, fault)
    if (name.length > nameLengthMax) throw invalid(`${place}name`, `must have at most ${nameLengthMax} characters`)
    if (secret !== undefined) assertSecret(secret, `${place}secret`)
    assertFilter(eventTypes, this.#deps.eventTypes, `${place}eventTypes`)
    if (headers !== undefined) assertHeaders(headers, `${place}metadata`)
  }

  async #read(orgId: string, id: string): Promise<SealedDestination> {
    const found = await this.#deps.store.destination(orgId, id)
    if (found === undefined) throw unknown(id)
    return found
  }

  async #assertEnabled(orgId: string, id: string): Promise<Destination> {
    const destination = await this.#read(orgId, id)
    if (!destination.isEnabled) throw new ServiceError('conflict', `webhook ${id} is disabled: enable it first`)
    return destination
  }

  #secretOf({ orgId, id, sealedSecret }: SealedDestination): string {
    const secret = this.#deps.sealer.open(sealedSecret, { orgId, purpose: purposeOf({ id }) })
    if (secret !== undefined) return secret
    throw new ServiceError(
      'conflict',
      `the secret of webhook ${id} cannot be opened: it was sealed by another installation`,
    )
  }
}

/** Of the client, or a new one, which a repeat of the request derives again. */
function secretOf({ secret }: Pick<NewDestination, 'secret'>, creation: Creation | undefined, purpose: string): string {
  if (secret !== undefined) return secret
  return creation === undefined ? newSecret() : newSecret(Buffer.from(creation.secret(purpose), 'base64url'))
}

function unknown(id: string): ServiceError {
  return new ServiceError('not_found', `no webhook ${id}`)
}

function invalid(field: string, rule: string): ServiceError {
  return new ServiceError('invalid_request', `${field}: ${rule}`, { details: { field } })
}
