import assert from 'node:assert/strict'
import { setImmediate as nextTick } from 'node:timers/promises'
import { afterEach, beforeEach, suite, test } from 'node:test'
import type { EventBus, ServiceEvent } from '../../src/events/index.ts'

export interface OpenedBus {
  bus: EventBus
  /** Errors of listeners so far. */
  listenerErrors: unknown[]
}

/** The contract of every bus within one process. */
export function busConformance(name: string, open: () => Promise<OpenedBus>): void {
  suite(`event bus conformance: ${name}`, () => {
    const sandboxChanged = (sandboxId: string, status = 'running'): ServiceEvent => ({
      type: 'sandbox_changed',
      sandboxId,
      status,
    })
    const sessionChanged = (sessionId: string, lastSequence = 1): ServiceEvent => ({
      type: 'session_changed',
      sessionId,
      lastSequence,
    })

    let bus: EventBus
    let listenerErrors: unknown[]
    let received: ServiceEvent[]
    const listen = (event: ServiceEvent) => void received.push(event)
    beforeEach(async () => {
      ;({ bus, listenerErrors } = await open())
      received = []
    })
    afterEach(() => bus.close())

    /** Waits for `count` events; the timeout of the test bounds the wait. */
    const until = async (events: unknown[], count: number) => {
      while (events.length < count) await nextTick()
    }

    test('bus: a subscriber gets the events of its topic alone, of every type', async () => {
      bus.subscribe('sb-1', listen)
      bus.subscribe('session_1', listen)
      bus.publish(sandboxChanged('sb-2'))
      bus.publish(sandboxChanged('sb-1'))
      bus.publish(sessionChanged('session_2'))
      bus.publish(sessionChanged('session_1'))
      await until(received, 2)
      assert.deepEqual(received, [sandboxChanged('sb-1'), sessionChanged('session_1')])
    })

    test('bus: a subscriber of * gets all events', async () => {
      bus.subscribe('*', listen)
      const events = [sandboxChanged('sb-1'), sessionChanged('session_1'), sandboxChanged('sb-2')]
      for (const event of events) bus.publish(event)
      await until(received, 3)
      assert.deepEqual(received, events)
    })

    test('bus: events of one topic arrive in the order of publishing', async () => {
      bus.subscribe('session_1', listen)
      const events = Array.from({ length: 500 }, (_, index) => sessionChanged('session_1', index))
      for (const event of events) bus.publish(event)
      await until(received, 500)
      assert.deepEqual(received, events)
    })

    test('bus: publish does not run listeners', async () => {
      bus.subscribe('sb-1', listen)
      bus.publish(sandboxChanged('sb-1'))
      assert.equal(received.length, 0)
      await until(received, 1)
    })

    test('bus: a listener that throws or rejects is reported and affects no other', async () => {
      const [thrown, rejected] = [new Error('thrown'), new Error('rejected')]
      bus.subscribe('sb-1', () => {
        throw thrown
      })
      bus.subscribe('sb-1', () => Promise.reject(rejected) as unknown as void)
      bus.subscribe('sb-1', listen)
      bus.publish(sandboxChanged('sb-1'))
      bus.publish(sandboxChanged('sb-1', 'stopped'))
      await until(received, 2)
      await until(listenerErrors, 4)
      assert.deepEqual(received, [sandboxChanged('sb-1'), sandboxChanged('sb-1', 'stopped')])
      assert.equal(listenerErrors.filter((error) => error === thrown).length, 2)
      assert.equal(listenerErrors.filter((error) => error === rejected).length, 2)
    })

    test('bus: an ended subscription gets nothing, not even events published before its end', async () => {
      const ended: ServiceEvent[] = []
      const end = bus.subscribe('sb-1', (event) => ended.push(event))
      bus.subscribe('sb-1', listen)
      bus.publish(sandboxChanged('sb-1'))
      end()
      end()
      bus.publish(sandboxChanged('sb-1'))
      await until(received, 2)
      assert.deepEqual(ended, [])
    })

    test('bus: the same listener twice is two subscriptions with two ends', async () => {
      const end = bus.subscribe('sb-1', listen)
      bus.subscribe('sb-1', listen)
      bus.publish(sandboxChanged('sb-1'))
      await until(received, 2)
      end()
      bus.publish(sandboxChanged('sb-1'))
      await until(received, 3)
      await nextTick()
      assert.equal(received.length, 3)
    })

    test('bus: a listener may subscribe, unsubscribe and publish', async () => {
      const end = bus.subscribe('sb-1', () => {
        end()
        bus.subscribe('sb-2', listen)
        bus.publish(sandboxChanged('sb-2'))
        bus.publish(sandboxChanged('sb-1'))
      })
      bus.publish(sandboxChanged('sb-1'))
      await until(received, 1)
      await nextTick()
      assert.deepEqual(received, [sandboxChanged('sb-2')])
    })

    test('bus: a listener that subscribes to its own topic gets later events only', async () => {
      const resubscribe = (event: ServiceEvent) => {
        listen(event)
        bus.subscribe('sb-1', resubscribe)
      }
      bus.subscribe('sb-1', resubscribe)
      bus.publish(sandboxChanged('sb-1'))
      bus.publish(sandboxChanged('sb-1', 'stopped'))
      await until(received, 3)
      await nextTick()
      assert.deepEqual(
        received.map((event) => event.type === 'sandbox_changed' && event.status),
        ['running', 'stopped', 'stopped'],
      )
    })

    test('bus: a closed bus delivers nothing and accepts every call', async () => {
      bus.subscribe('*', listen)
      bus.publish(sandboxChanged('sb-1'))
      await bus.close()
      bus.publish(sandboxChanged('sb-1'))
      await nextTick()
      await nextTick()
      assert.deepEqual(received, [])
      await bus.close()
    })

    test('bus: a flood without a pause drops old events and bounds the memory', async () => {
      bus.subscribe('session_1', listen)
      const flood = 100_000
      for (let index = 1; index <= flood; index++) bus.publish(sessionChanged('session_1', index))
      while (!isLast(received.at(-1), flood)) await nextTick()
      assert.ok(received.length < flood, 'all events were kept waiting')
      const numbers = received.map((event) => (event.type === 'session_changed' ? event.lastSequence : 0))
      assert.deepEqual(
        numbers,
        numbers.toSorted((a, b) => a - b),
      )
    })
  })
}

function isLast(event: ServiceEvent | undefined, lastSequence: number): boolean {
  return event?.type === 'session_changed' && event.lastSequence === lastSequence
}
