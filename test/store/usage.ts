import assert from 'node:assert/strict'
import { suite, test } from 'node:test'
import fc from 'fast-check'
import { Meter } from '../../src/organisation/usage/index.ts'
import { newId } from '../../src/lib/id.ts'
import { silentLog } from '../../src/lib/log.ts'
import type { Store } from '../../src/store/index.ts'
import { newOrganisation, newSession, sandboxOf } from './kit.ts'

const all = new Map<string, string[]>()
const hourMs = 3_600_000

export function usageTests(store: Store): void {
  const window = () => ({ from: new Date(Date.now() - hourMs), to: new Date(Date.now() + hourMs) })

  suite('usage', () => {
    test('usage: a sandbox accrues while it runs, with the size that it has', async () => {
      const { id: orgId } = await newOrganisation(store)
      const sandbox = sandboxOf(orgId, { status: 'creating', memoryMb: 1024, diskMb: 40_960, cpuCount: 2 })
      await store.sandboxes.insertSandbox(sandbox)
      assert.deepEqual(await store.usage.spans(sandbox.id, window()), [], 'not before it runs')
      await store.sandboxes.updateSandbox(sandbox.id, { status: 'running' })
      await store.sandboxes.updateSandbox(sandbox.id, { memoryMb: 2048, cpuCount: 4 })
      await store.sandboxes.updateSandbox(sandbox.id, { timeoutSeconds: 60 })
      await store.sandboxes.updateSandbox(sandbox.id, { status: 'hibernated' })
      await store.sandboxes.updateSandbox(sandbox.id, { status: 'running' })
      await store.sandboxes.updateSandbox(sandbox.id, { status: 'stopped', stoppedAt: new Date() })
      const spans = await store.usage.spans(sandbox.id, window())
      assert.deepEqual(
        spans.map(({ memoryMb, endedAt }) => [memoryMb, endedAt !== undefined]),
        [1024, 2048, 2048].map((memoryMb) => [memoryMb, true]),
      )
      const [item] = await store.usage.sandboxUsage(orgId, window(), all)
      const seconds = spans.map(({ startedAt, endedAt }) => ((endedAt?.getTime() ?? 0) - startedAt.getTime()) / 1000)
      const [first = 0, second = 0, third = 0] = seconds
      const near = (found: number | undefined, wanted: number) => assert.ok(Math.abs((found ?? -1) - wanted) < 1e-6)
      near(item?.memoryGbSeconds, first + 2 * (second + third))
      near(item?.diskOverageGbSeconds, 20 * (first + second + third))
      near(item?.cpuAllocatedSeconds, 2 * first + 4 * (second + third))
    })

    test('usage: the record of a sandbox may go, and what it has used stays with its tags', async () => {
      const { id: orgId } = await newOrganisation(store)
      const sandbox = await newSandboxIn(store, orgId)
      await store.sandboxes.updateSandbox(sandbox, { tags: { team: 'reef' }, tagsUpdatedAt: new Date() })
      await store.sandboxes.updateSandbox(sandbox, { status: 'stopped', stoppedAt: new Date() })
      await store.sandboxes.purgeSandboxes([sandbox])
      const tagged = await store.usage.sandboxUsage(orgId, window(), new Map([['team', ['reef', 'x']]]))
      assert.deepEqual(
        tagged.map(({ sandboxId, status }) => [sandboxId, status]),
        [[sandbox, 'stopped']],
      )
      assert.deepEqual(await store.usage.sandboxUsage(orgId, window(), new Map([['team', []]])), [])
      assert.deepEqual(await store.usage.sandboxUsage((await newOrganisation(store)).id, window(), all), [])
    })

    let counted = 0
    test('usage: no counted unit is lost or counted twice, whatever is killed when', async () => {
      const { id: orgId } = await newOrganisation(store)
      // A machine works, or starts anew (its counters begin at 0 and its epoch is another); the server reads, writes, or is killed.
      const step = fc.oneof(
        fc.record({ do: fc.constant('work' as const), amount: fc.integer({ min: 1, max: 1000 }) }),
        fc.record({ do: fc.constantFrom('read' as const, 'flush' as const, 'kill' as const, 'restart' as const) }),
      )
      await fc.assert(
        fc.asyncProperty(fc.array(step, { maxLength: 30 }), async (steps) => {
          const sandboxId = newId('sb-')
          let meter = new Meter(store.usage, silentLog)
          let clock = Date.now()
          let [counter, ledger] = [0, 0]
          let epoch = new Date(clock)
          const reading = () => ({
            ...{ sandboxId, orgId, epoch, readAt: new Date((clock += 1000)) },
            ...{ cpuUs: counter, sentBytes: counter, receivedBytes: counter, memoryBytes: 0 },
          })
          for (const one of steps) {
            if (one.do === 'work') {
              counter += one.amount
              ledger += one.amount
            }
            if (one.do === 'read') meter.note(reading())
            if (one.do === 'flush') await meter.flush()
            // What was read and not written is gone with the server.
            if (one.do === 'kill') meter = new Meter(store.usage, silentLog)
            if (one.do === 'restart') {
              await meter.noteLast(reading())
              counter = 0
              epoch = new Date((clock += 1000))
            }
          }
          await meter.noteLast(reading())
          const found = await store.usage.organisationUsage({ from: new Date(0), to: new Date(clock + hourMs) }, [
            orgId,
          ])
          const before = counted
          counted = found[0]?.egressBytes ?? 0
          assert.equal(counted - before, ledger)
        }),
        { numRuns: 30 },
      )
    })
    test('usage: a lost machine ended at its last reading', async () => {
      const { id: orgId } = await newOrganisation(store)
      const sandbox = await newSandboxIn(store, orgId)
      const [open] = await store.usage.spans(sandbox, window())
      const readAt = new Date((open?.startedAt.getTime() ?? 0) + 1)
      const zero = { cpuUs: 0, sentBytes: 0, receivedBytes: 0, memoryBytes: 0 }
      await store.usage.countReadings([{ sandboxId: sandbox, orgId, epoch: readAt, readAt, ...zero }])
      await store.sandboxes.updateSandbox(sandbox, { status: 'hibernated' })
      await store.usage.closeLost(sandbox)
      const [span] = await store.usage.spans(sandbox, window())
      assert.deepEqual(span?.endedAt, readAt)
    })

    test('usage: tokens and money of a session are counted with its commits', async () => {
      const { id: orgId } = await newOrganisation(store)
      const session = await newSession(store, orgId)
      const usage = {
        inputTokens: 10,
        cacheReadTokens: 2,
        cacheWriteTokens: 1,
        outputTokens: 5,
        costNanoUsd: 2_000_000_000,
      }
      await store.sessions.commit(session.id, { usage })
      await store.sessions.commit(session.id, { usage })
      const [item] = await store.usage.sessionUsage(orgId, window())
      assert.deepEqual(
        [item?.sessionId, item?.inputTokens, item?.outputTokens, item?.modelUsd, item?.isCostKnown],
        [session.id, 20, 10, 4, true],
      )
      await store.sessions.commit(session.id, { usage: { ...usage, costNanoUsd: undefined } })
      const [unknown] = await store.usage.sessionUsage(orgId, window())
      assert.equal(unknown?.isCostKnown, false)
    })

    test('usage: a share of the budget is told once a month, the greater one after the smaller', async () => {
      const { id: orgId } = await newOrganisation(store)
      const usd = { usedUsd: 9, budgetUsd: 10 }
      const [january, february] = [new Date('2026-01-01'), new Date('2026-02-01')]
      const told = []
      for (const [month, share] of [
        [january, 80],
        [january, 80],
        [january, 100],
        [january, 80],
        [february, 80],
      ] as const)
        told.push(await store.usage.tellBudget(orgId, month, share, usd))
      assert.deepEqual(told, [true, false, true, false, true])
      const { events } = await store.events.page(orgId, { after: 0, limit: 10, filter: {} })
      assert.deepEqual(
        events.map(({ type }) => type),
        ['usage.budget_warning', 'usage.budget_exceeded', 'usage.budget_warning'],
      )
    })
  })
}

async function newSandboxIn(store: Store, orgId: string): Promise<string> {
  const sandbox = sandboxOf(orgId)
  await store.sandboxes.insertSandbox(sandbox)
  return sandbox.id
}
