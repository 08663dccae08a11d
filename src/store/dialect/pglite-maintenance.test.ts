import assert from 'node:assert/strict'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { PGlite } from '@electric-sql/pglite'
import { openStore } from '../index.ts'
import { maintain } from './pglite-maintenance.ts'

let dataDir: string
let pglite: PGlite

before(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'atoll-maintenance-'))
  // The store makes the tables; the maintenance under test then has the database for itself.
  await (await openStore({ dataDir })).close()
  pglite = await PGlite.create(join(dataDir, 'db'))
})

after(async () => {
  await pglite.close()
  await rm(dataDir, { recursive: true })
})

async function value<Value>(sql: string): Promise<Value> {
  const { rows } = await pglite.query<{ value: Value }>(sql)
  assert.ok(rows[0])
  return rows[0].value
}

test('maintenance: a checkpoint follows when the write-ahead log exceeds its limit', async () => {
  const stop = maintain(pglite, { checkMs: 5, walBytesMax: 100_000 })
  try {
    const distance =
      'select pg_wal_lsn_diff(pg_current_wal_lsn(), checkpoint_lsn)::float8 as value from pg_control_checkpoint()'
    await pglite.query('create table filler (text text)')
    for (let round = 0; round < 3; round++) {
      await pglite.query('insert into filler select repeat(md5(n::text), 40) from generate_series(1, 1000) n')
      while ((await value<number>(distance)) > 100_000) await delay(5)
    }
  } finally {
    await stop()
  }
})

test('maintenance: a vacuum gives the planner the sizes of the tables', async () => {
  await pglite.query(`insert into organisations (id, name) values ('org_vacuum', 'vacuum')`)
  await pglite.query(
    `insert into api_keys select 'key_' || n, 'org_vacuum', n::text, now() from generate_series(1, 500) n`,
  )
  const stop = maintain(pglite, { checkMs: 5, vacuumMs: 0 })
  try {
    while ((await value<number>(`select reltuples as value from pg_class where relname = 'api_keys'`)) !== 500) {
      await delay(5)
    }
  } finally {
    await stop()
  }
})

test('maintenance: a failed round is a warning, and the next round runs', async () => {
  const stop = maintain({ query: () => Promise.reject(new Error('disk full')) }, { checkMs: 5 })
  try {
    for (let round = 0; round < 2; round++) {
      const [warning] = (await once(process, 'warning')) as [Error & { code?: string }]
      assert.equal(warning.message, 'disk full')
    }
  } finally {
    await stop()
  }
})
