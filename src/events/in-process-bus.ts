import type { EventBus, ServiceEvent } from './index.ts'

/** Undelivered events. Beyond it the oldest are dropped, which costs their subscribers delay and never data. */
const pendingMax = 10_000

const allTopics = '*'

type Listener = (event: ServiceEvent) => void

export interface InProcessBusOptions {
  /** Called with the error or rejection of a listener. Default: a process warning. */
  onListenerError?: (error: unknown) => void
}

/**
 * The bus of one server. `publish` queues an event; delivery follows in the order of publishing on a later iteration of the event loop,
 * so no listener runs inside the publisher's transaction. A listener that throws affects neither other listeners nor publishers.
 */
export function createInProcessBus({ onListenerError = warn }: InProcessBusOptions = {}): EventBus {
  const listeners = new Map<string, Set<Listener>>()
  let pending: ServiceEvent[] = []
  let scheduled: NodeJS.Immediate | undefined

  const deliver = () => {
    scheduled = undefined
    const events = pending
    pending = []
    for (const event of events) {
      for (const topic of [topicOf(event), allTopics]) {
        const subscribed = listeners.get(topic)
        // A copy: a subscription made by a listener gets later events only.
        for (const listener of [...(subscribed ?? [])]) {
          if (subscribed?.has(listener)) notify(listener, event, onListenerError)
        }
      }
    }
  }

  return {
    publish(event) {
      if (!listeners.has(topicOf(event)) && !listeners.has(allTopics)) return
      if (pending.length >= pendingMax) pending.shift()
      pending.push(event)
      scheduled ??= setImmediate(deliver)
    },

    subscribe(topic, listener) {
      // A new function, so that the same listener can have two subscriptions.
      const own: Listener = (event) => listener(event)
      const subscribed = listeners.get(topic) ?? new Set()
      listeners.set(topic, subscribed.add(own))
      return () => {
        subscribed.delete(own)
        if (subscribed.size === 0 && listeners.get(topic) === subscribed) listeners.delete(topic)
      }
    },

    close() {
      clearImmediate(scheduled)
      scheduled = undefined
      pending = []
      listeners.clear()
      return Promise.resolve()
    },
  }
}

/** The topic of an event. */
export function topicOf(event: ServiceEvent): string {
  if (event.type === 'log_grew') return event.orgId
  return 'sessionId' in event ? event.sessionId : event.sandboxId
}

function notify(listener: Listener, event: ServiceEvent, onError: (error: unknown) => void): void {
  try {
    // The type allows an async listener; its rejection must not end the process.
    const result: unknown = listener(event)
    if (result instanceof Promise) result.catch(onError)
  } catch (error) {
    onError(error)
  }
}

function warn(error: unknown): void {
  process.emitWarning(error instanceof Error ? error : String(error), { code: 'ATOLL_BUS_LISTENER' })
}
