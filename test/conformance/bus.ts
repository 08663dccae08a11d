import assert from 'node:assert/strict'
import { setImmediate as turn } from 'node:timers/promises'
import { suite, test } from 'node:test'
import type { EventBus, ServiceEvent } from '../../src/events/index.ts'

export interface OpenedBus {
  bus: EventBus
  /** What listeners threw so far. */
  listenerErrors: unknown[]
}

/** What every bus promises to subscribers in the same process. */
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

    /** Runs with a bus and a list that collects; the bus is closed afterwards. */
    const on =
      (work: (opened: OpenedBus, heard: ServiceEvent[], listen: (event: ServiceEvent) => void) => Promise<void>) =>
      async () => {
        const opened = await open()
        const heard: ServiceEvent[] = []
        try {
          await work(opened, heard, (event) => heard.push(event))
        } finally {
          await opened.bus.close()
        }
      }
    /** Waits until so many events were heard; the test's own time limit ends a wait for what never comes. */
    const until = async (heard: unknown[], count: number) => {
      while (heard.length < count) await turn()
    }

    test(
      'a subscriber hears the events of its topic alone, whatever their type',
      on(async ({ bus }, heard, listen) => {
        bus.subscribe('sb-1', listen)
        bus.subscribe('session_1', listen)
        bus.publish(sandboxChanged('sb-2'))
        bus.publish(sandboxChanged('sb-1'))
        bus.publish(sessionChanged('session_2'))
        bus.publish(sessionChanged('session_1'))
        await until(heard, 2)
        assert.deepEqual(heard, [sandboxChanged('sb-1'), sessionChanged('session_1')])
      }),
    )

    test(
      'a subscriber of everything hears all events',
      on(async ({ bus }, heard, listen) => {
        bus.subscribe('*', listen)
        const events = [sandboxChanged('sb-1'), sessionChanged('session_1'), sandboxChanged('sb-2')]
        for (const event of events) bus.publish(event)
        await until(heard, 3)
        assert.deepEqual(heard, events)
      }),
    )

    test(
      'events of one topic come in the order of publishing',
      on(async ({ bus }, heard, listen) => {
        bus.subscribe('session_1', listen)
        const events = Array.from({ length: 500 }, (_, index) => sessionChanged('session_1', index))
        for (const event of events) bus.publish(event)
        await until(heard, 500)
        assert.deepEqual(heard, events)
      }),
    )

    test(
      'a publisher does not run its subscribers',
      on(async ({ bus }, heard, listen) => {
        bus.subscribe('sb-1', listen)
        bus.publish(sandboxChanged('sb-1'))
        assert.equal(heard.length, 0)
        await until(heard, 1)
      }),
    )

    test(
      'a listener that throws or rejects harms nobody else, and is told',
      on(async ({ bus, listenerErrors }, heard, listen) => {
        const [thrown, rejected] = [new Error('thrown'), new Error('rejected')]
        bus.subscribe('sb-1', () => {
          throw thrown
        })
        bus.subscribe('sb-1', () => Promise.reject(rejected) as unknown as void)
        bus.subscribe('sb-1', listen)
        bus.publish(sandboxChanged('sb-1'))
        bus.publish(sandboxChanged('sb-1', 'stopped'))
        await until(heard, 2)
        await until(listenerErrors, 4)
        assert.deepEqual(heard, [sandboxChanged('sb-1'), sandboxChanged('sb-1', 'stopped')])
        assert.equal(listenerErrors.filter((error) => error === thrown).length, 2)
        assert.equal(listenerErrors.filter((error) => error === rejected).length, 2)
      }),
    )

    test(
      'an ended subscription hears nothing, not even what was published before its end',
      on(async ({ bus }, heard, listen) => {
        const ended: ServiceEvent[] = []
        const end = bus.subscribe('sb-1', (event) => ended.push(event))
        bus.subscribe('sb-1', listen)
        bus.publish(sandboxChanged('sb-1'))
        end()
        end()
        bus.publish(sandboxChanged('sb-1'))
        await until(heard, 2)
        assert.deepEqual(ended, [])
      }),
    )

    test(
      'the same listener twice is two subscriptions with two ends',
      on(async ({ bus }, heard, listen) => {
        const end = bus.subscribe('sb-1', listen)
        bus.subscribe('sb-1', listen)
        bus.publish(sandboxChanged('sb-1'))
        await until(heard, 2)
        end()
        bus.publish(sandboxChanged('sb-1'))
        await until(heard, 3)
        await turn()
        assert.equal(heard.length, 3)
      }),
    )

    test(
      'a listener may subscribe, unsubscribe and publish',
      on(async ({ bus }, heard, listen) => {
        const end = bus.subscribe('sb-1', () => {
          end()
          bus.subscribe('sb-2', listen)
          bus.publish(sandboxChanged('sb-2'))
          bus.publish(sandboxChanged('sb-1'))
        })
        bus.publish(sandboxChanged('sb-1'))
        await until(heard, 1)
        await turn()
        assert.deepEqual(heard, [sandboxChanged('sb-2')])
      }),
    )

    test(
      'a listener that subscribes to its own topic hears later events only',
      on(async ({ bus }, heard, listen) => {
        const resubscribe = (event: ServiceEvent) => {
          listen(event)
          bus.subscribe('sb-1', resubscribe)
        }
        bus.subscribe('sb-1', resubscribe)
        bus.publish(sandboxChanged('sb-1'))
        bus.publish(sandboxChanged('sb-1', 'stopped'))
        await until(heard, 3)
        await turn()
        assert.deepEqual(
          heard.map((event) => event.type === 'sandbox_changed' && event.status),
          ['running', 'stopped', 'stopped'],
        )
      }),
    )

    test(
      'a closed bus is silent and takes no offence',
      on(async ({ bus }, heard, listen) => {
        bus.subscribe('*', listen)
        bus.publish(sandboxChanged('sb-1'))
        await bus.close()
        bus.publish(sandboxChanged('sb-1'))
        await turn()
        await turn()
        assert.deepEqual(heard, [])
        await bus.close()
      }),
    )

    test(
      'a flood without a pause costs old events, never memory without end',
      on(async ({ bus }, heard, listen) => {
        bus.subscribe('session_1', listen)
        const flood = 100_000
        for (let index = 1; index <= flood; index++) bus.publish(sessionChanged('session_1', index))
        while (!isLast(heard.at(-1), flood)) await turn()
        assert.ok(heard.length < flood, 'all events were kept waiting')
        const numbers = heard.map((event) => (event.type === 'session_changed' ? event.lastSequence : 0))
        assert.deepEqual(
          numbers,
          numbers.toSorted((a, b) => a - b),
        )
      }),
    )
  })
}

function isLast(event: ServiceEvent | undefined, lastSequence: number): boolean {
  return event?.type === 'session_changed' && event.lastSequence === lastSequence
}
