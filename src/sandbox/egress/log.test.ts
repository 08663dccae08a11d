import assert from 'node:assert/strict'
import { test } from 'node:test'
import { silentLog } from '../../lib/log.ts'
import type { EgressEntry } from '../ports/egress.ts'
import type { EgressStore, LoggedEntry } from '../ports/egress-store.ts'
import { EgressLog } from './log.ts'

type Appended = LoggedEntry & { orgId: string; isTold: boolean }

function entryOf(fields: Partial<EgressEntry> = {}): EgressEntry {
  return {
    ...{ sandbox: 'sb-1', time: 1, decision: 'denied', protocol: 'tls', host: 'a.example', port: 443 },
    ...{ sent: 1, received: 2, ms: 3, ...fields },
  }
}

function setup(limits: ConstructorParameters<typeof EgressLog>[0]['limits'] = {}) {
  const rows: Appended[] = []
  const trimmed: number[] = []
  let fails = false
  const egressStore: Partial<EgressStore> = {
    lastNumber: async (sandbox) =>
      Math.max(0, ...rows.filter(({ entry }) => entry.sandbox === sandbox).map(({ number }) => number)),
    async append(added) {
      if (fails) throw new Error('no database')
      rows.push(...added)
    },
    trim: async (_sandbox, upTo) => void trimmed.push(upTo),
  }
  const store = { sandbox: async (id: string) => (id === 'sb-gone' ? undefined : ({ id, orgId: 'org_1' } as never)) }
  const log = new EgressLog({ store, egressStore: egressStore as EgressStore, log: silentLog, limits })
  return { log, rows, trimmed, fail: (is: boolean) => (fails = is) }
}

test('egress log: entries are numbered for each sandbox, and those of one without a record are left out', async () => {
  const { log, rows } = setup()
  for (const sandbox of ['sb-1', 'sb-2', 'sb-gone', 'sb-1']) log.add(entryOf({ sandbox }))
  await log.close()
  assert.deepEqual(
    rows.map(({ entry, number, orgId }) => [entry.sandbox, number, orgId]),
    [
      ['sb-1', 1, 'org_1'],
      ['sb-2', 1, 'org_1'],
      ['sb-1', 2, 'org_1'],
    ],
  )
})

test('egress log: the first refusal of a host and port is told, repeats are not, and what passes never is', async () => {
  const { log, rows } = setup()
  for (const fields of [
    {},
    {},
    { port: 22 },
    { host: 'b.example' },
    { decision: 'allowed' as const },
    { decision: 'would_deny' as const, port: 9 },
  ])
    log.add(entryOf(fields))
  await log.close()
  assert.deepEqual(
    rows.map(({ isTold }) => isTold),
    [true, false, true, true, false, false],
  )
})

test('egress log: what comes faster than it can be written is dropped and does not grow', async () => {
  const { log, rows } = setup({ waitingMax: 3 })
  for (let index = 0; index < 10; index += 1) log.add(entryOf())
  await log.close()
  assert.equal(rows.length, 3)
})

test('egress log: after a write that failed the numbers go on without a gap', async () => {
  const { log, rows, fail } = setup()
  log.add(entryOf())
  await log.flush()
  fail(true)
  log.add(entryOf())
  await log.flush()
  fail(false)
  log.add(entryOf())
  await log.close()
  assert.deepEqual(
    rows.map(({ number }) => number),
    [1, 2],
  )
})

test('egress log: the oldest entries are trimmed', async () => {
  const { log, trimmed } = setup({ entriesMax: 100 })
  for (let index = 0; index < 600; index += 1) log.add(entryOf())
  await log.close()
  assert.deepEqual(trimmed, [500])
})

test('egress log: followers hear of their sandbox alone, until they leave', async () => {
  const { log } = setup()
  let heard = 0
  const stop = log.onNews('sb-1', () => (heard += 1))
  log.add(entryOf())
  log.add(entryOf({ sandbox: 'sb-2' }))
  await log.flush()
  stop()
  log.add(entryOf())
  await log.close()
  assert.equal(heard, 1)
})

test('egress log: entries that the host has only counted become one that says how many', async () => {
  const { log, rows } = setup()
  log.addDropped({ sandbox: 'sb-1', count: 7, sent: 10, received: 20 })
  await log.close()
  assert.match(rows[0]?.entry.reason ?? '', /^7 entries/)
})
