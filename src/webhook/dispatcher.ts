import { setTimeout as sleep } from 'node:timers/promises'
import { type EventBus, type LogEvent, nameOf } from '../events/index.ts'
import { Semaphore } from '../lib/async/semaphore.ts'
import type { Log } from '../lib/log.ts'
import type { Destination } from './destination.ts'
import { messageTo } from './envelope.ts'
import { matches } from './filter.ts'
import type { NewMessage, WebhookStore } from './store.ts'

/** Events of one transaction. */
const eventsAtOnce = 500
/** Organisations at a time, so that others use the database in between. */
const handoversAtOnce = 2
const retryMs = 1000

interface DispatcherDeps {
  store: WebhookStore
  bus: EventBus
  log: Log
}

/**
 * Hands events of the log over to the queue of deliveries, for each organisation that has destinations, in order. The log says that it has
 * grown; a lost word costs delay alone, since the next one is enough, and a start looks at all.
 *
 *     idle ── news ──► handing over ──► idle
 *                       └── news meanwhile ──► handing over
 */
export class Dispatcher {
  readonly #deps: DispatcherDeps
  readonly #ended = new AbortController()
  readonly #permits = new Semaphore({ permits: handoversAtOnce })
  /** By organisation: how its subscription is ended, whether it hands over, and whether there was news meanwhile. */
  readonly #watched = new Map<
    string,
    { unsubscribe: () => void; running?: Promise<void> | undefined; hasNews: boolean }
  >()

  constructor(deps: DispatcherDeps) {
    this.#deps = deps
  }

  /** Returns whether there are destinations. */
  async start(): Promise<boolean> {
    const orgIds = await this.#deps.store.organisationsWithDestinations()
    for (const orgId of orgIds) this.watch(orgId)
    return orgIds.length > 0
  }

  async close(): Promise<void> {
    this.#ended.abort()
    for (const { unsubscribe } of this.#watched.values()) unsubscribe()
    await Promise.all([...this.#watched.values()].flatMap(({ running }) => running ?? []))
  }

  /** Follows the log of an organisation, and hands over what it has. A repeat is harmless. */
  watch(orgId: string): void {
    if (!this.#watched.has(orgId)) {
      const unsubscribe = this.#deps.bus.subscribe(orgId, ({ type }) => {
        if (type === 'log_grew') this.#hasNews(orgId)
      })
      this.#watched.set(orgId, { unsubscribe, hasNews: false })
    }
    this.#hasNews(orgId)
  }

  /** Of an organisation that is being deleted: what it does from here on is nobody's. */
  async forget(orgId: string): Promise<void> {
    const watched = this.#watched.get(orgId)
    watched?.unsubscribe()
    this.#watched.delete(orgId)
    await watched?.running
  }

  /** The message of an event for a destination; undefined when it is not for it. */
  messageOf(destination: Destination, event: LogEvent): NewMessage | undefined {
    const { sandboxId, eventTypes, afterNumber } = destination
    const isMeant =
      event.number > afterNumber &&
      (sandboxId === undefined || sandboxId === event.sandboxId) &&
      matches(eventTypes, event.type)
    return isMeant ? messageTo(destination, event, nameOf(event)) : undefined
  }

  #hasNews(orgId: string): void {
    const watched = this.#watched.get(orgId)
    if (watched === undefined || this.#ended.signal.aborted) return
    watched.hasNews = true
    watched.running ??= this.#handOverAll(orgId, watched).finally(() => {
      watched.running = undefined
    })
  }

  async #handOverAll(orgId: string, watched: { hasNews: boolean }): Promise<void> {
    const { signal } = this.#ended
    while (watched.hasNews && !signal.aborted && this.#watched.get(orgId) === watched) {
      watched.hasNews = false
      try {
        const { hasMore } = await this.#permits.use(() =>
          this.#deps.store.handOver(orgId, eventsAtOnce, (destination, event) => this.messageOf(destination, event)),
        )
        if (hasMore) watched.hasNews = true
      } catch (error) {
        if (signal.aborted) return
        this.#deps.log.warn({ err: error, orgId }, 'events could not be handed over to webhooks; it is tried again')
        watched.hasNews = true
        await sleep(retryMs, undefined, { signal }).catch(() => undefined)
      }
    }
  }
}
