import type { EventBus, ServiceEvent } from './index.ts'

/** Events that wait for delivery. Beyond it the oldest are lost, which costs their subscribers delay and never data. */
const pendingMax = 10_000

const everything = '*'

type Listener = (event: ServiceEvent) => void

export interface InProcessBusOptions {
  /** Told of what a listener throws or rejects with. Default: a process warning. */
  onListenerError?: (error: unknown) => void
}

/**
 * The bus of one server. `publish` queues; delivery follows in the order of publishing, after the publisher's current
 * work, so that no listener runs inside somebody's transaction. A listener that throws harms neither others nor publishers.
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
      for (const topic of [topicOf(event), everything]) {
        const subscribed = listeners.get(topic)
        // A copy: what a listener subscribes while it is told hears later events only.
        for (const listener of [...(subscribed ?? [])]) {
          if (subscribed?.has(listener)) tell(listener, event, onListenerError)
        }
      }
    }
  }

  return {
    publish(event) {
      if (!listeners.has(topicOf(event)) && !listeners.has(everything)) return
      if (pending.length >= pendingMax) pending.shift()
      pending.push(event)
      scheduled ??= setImmediate(deliver)
    },

    subscribe(topic, listener) {
      // A function of its own, so that the same listener subscribed twice is two subscriptions.
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

function topicOf(event: ServiceEvent): string {
  return event.type === 'session_changed' ? event.sessionId : event.sandboxId
}

function tell(listener: Listener, event: ServiceEvent, onError: (error: unknown) => void): void {
  try {
    // An async function is a listener too, as far as types go; its rejection must not end the process.
    const result: unknown = listener(event)
    if (result instanceof Promise) result.catch(onError)
  } catch (error) {
    onError(error)
  }
}

function warn(error: unknown): void {
  process.emitWarning(error instanceof Error ? error : String(error), {
    code: 'ATOLL_BUS_LISTENER',
  })
}
