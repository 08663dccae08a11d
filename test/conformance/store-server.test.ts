import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { after, before, suite, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { isServiceError, ServiceError } from '../../src/errors.ts'
import type { LockState } from '../../src/store/dialect/postgres-lock.ts'
import { openStore, type Store } from '../../src/store/index.ts'
import { cutConnections, execute, freshDatabase, queueForLock } from './store-databases.ts'
import { newOrganisation, newSession, sandboxOf } from './store-records.ts'

const holder = fileURLToPath(import.meta.resolve('./store-holder.ts'))

/** Until it is so; the limit of the test ends a wait that has no end. */
async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await sleep(5)
}

async function answers(store: Store): Promise<boolean> {
  return await store.ping().then(
    () => true,
    (error: unknown) => {
      assert.ok(isServiceError(error, 'unavailable'), String(error))
      return false
    },
  )
}

/** What only a database server can do to us, or several Atolls to one database. */
suite('a store on a PostgreSQL server', () => {
  let url: string
  let drop: () => Promise<void>
  before(async () => ({ url, drop } = await freshDatabase()))
  after(() => drop())

  test('of servers that start together one gets the database, and the others are refused in words', async () => {
    const opening = await Promise.allSettled([1, 2, 3].map(() => openStore({ databaseUrl: url })))
    const refused: unknown[] = opening.flatMap((result) => (result.status === 'rejected' ? [result.reason] : []))
    const stores = opening.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []))
    for (const store of stores) await store.close()
    assert.equal(stores.length, 1)
    for (const error of refused) {
      assert.ok(isServiceError(error, 'unavailable'), String(error))
      assert.match(error.message, /another server uses the database.*a database of its own/)
    }
  })

  test('a server that was killed leaves the database to the next', async () => {
    const child = spawn(process.execPath, [holder, url], { stdio: ['ignore', 'pipe', 'inherit'] })
    await once(child.stdout, 'data')
    child.kill('SIGKILL')
    await once(child, 'exit')
    await (await openStore({ databaseUrl: url })).close()
  })

  test('a server that loses the lock’s connection takes it again, and lets no call through before', async () => {
    const states: LockState[] = []
    const store = await openStore({ databaseUrl: url }, { lockChanged: (state) => states.push(state) })
    // Waits in PostgreSQL's own queue, so it has the lock as soon as the server loses it.
    const next = await queueForLock(url)
    try {
      await cutConnections(url, 'atoll lock')
      await next.locked
      await until(() => states.includes('lost'))
      await assert.rejects(store.ping(), (error) => isServiceError(error, 'unavailable'))
      await assert.rejects(store.organisations.defaultOrganisation(), /the connection that keeps other servers/)
    } finally {
      await next.end()
    }
    await until(() => states.includes('held'))
    await store.ping()
    await store.close()
    assert.deepEqual(states, ['lost', 'held'])
  })

  test('a server whose database another one had meanwhile is told that it is gone', async () => {
    const states: LockState[] = []
    const store = await openStore({ databaseUrl: url }, { lockChanged: (state) => states.push(state) })
    const next = await queueForLock(url)
    await cutConnections(url, 'atoll lock')
    await next.locked
    // As the other server does once it has the lock. It may even have ended before this one is back.
    await execute(url, `update database_holder set server_id = 'another'`)
    await next.end()
    await until(() => states.includes('gone'))
    await assert.rejects(store.ping(), (error) => isServiceError(error, 'unavailable'))
    await store.close()
    assert.deepEqual(states, ['lost', 'gone'])
    await (await openStore({ databaseUrl: url })).close()
  })

  test('commits to one session over several connections get dense numbers', async () => {
    const store = await openStore({ databaseUrl: url })
    try {
      const { id } = await newSession(store, (await newOrganisation(store)).id)
      await Promise.all(
        Array.from({ length: 60 }, () => store.sessions.commit(id, { addStream: [{ type: 'assistant' }] })),
      )
      const sequences = (await store.sessions.stream(id, 0, 100)).map(({ sequence }) => sequence)
      assert.deepEqual(
        sequences,
        Array.from({ length: 60 }, (_, index) => index + 1),
      )
    } finally {
      await store.close()
    }
  })

  test('connections that the server cuts are replaced, idle ones and working ones', async () => {
    const store = await openStore({ databaseUrl: url })
    try {
      const { id: orgId } = await newOrganisation(store)
      const writes = Promise.allSettled(
        Array.from({ length: 50 }, () => store.sandboxes.insertSandbox(sandboxOf(orgId))),
      )
      await cutConnections(url, 'atoll')
      for (const result of await writes) {
        if (result.status === 'rejected') assert.ok(isServiceError(result.reason, 'unavailable'), String(result.reason))
      }
      // One that is being cut just now is told to the next call that wants it.
      while (!(await answers(store))) await sleep(5)
    } finally {
      await store.close()
    }
  })

  test('of a session that an older version has counted the cost is not known, unless it has used nothing', async () => {
    const fresh = await freshDatabase()
    try {
      const store = await openStore({ databaseUrl: fresh.url })
      const { id: orgId } = await newOrganisation(store)
      const used = await newSession(store, orgId, { inputTokens: 7, outputTokens: 1 })
      const unused = await newSession(store, orgId)
      await store.close()
      await makeOlder(fresh.url)
      const newer = await openStore({ databaseUrl: fresh.url })
      try {
        const { costNanoUsd: _cost, ...known } = used
        assert.deepEqual(await newer.sessions.session(used.id), known)
        assert.deepEqual(await newer.sessions.session(unused.id), unused)
      } finally {
        await newer.close()
      }
    } finally {
      await fresh.drop()
    }
  })

  test('host: records name the installation, also those of an older version', async () => {
    const fresh = await freshDatabase()
    try {
      const store = await openStore({ databaseUrl: fresh.url })
      const { id: orgId } = await newOrganisation(store)
      const hostOf = async ({ sessions }: Store, id: string) => (await sessions.session(id))?.hostId
      const early = await newSession(store, orgId)
      assert.equal(await hostOf(store, early.id), undefined)
      await store.joinInstallation('host-1')
      const late = await newSession(store, orgId)
      for (const { id } of [early, late]) assert.equal(await hostOf(store, id), 'host-1')
      await store.close()
      await makeOlder(fresh.url)
      const newer = await openStore({ databaseUrl: fresh.url })
      for (const { id } of [early, late]) assert.equal(await hostOf(newer, id), 'host-1')
      await newer.close()
    } finally {
      await fresh.drop()
    }
  })

  test('what an older version left unanswered is not done again under its key, and what it answered is replayed', async () => {
    const fresh = await freshDatabase()
    try {
      const store = await openStore({ databaseUrl: fresh.url })
      const { id: orgId } = await newOrganisation(store)
      const now = new Date()
      const claim = (key: string) => ({ orgId, key, seed: 'seed' })
      await store.idempotency.begin(claim('unanswered'), 'hash', now)
      await store.idempotency.begin(claim('answered'), 'hash', now)
      await store.idempotency.finish(claim('answered'), 'hash', now, { statusCode: 201, body: 'x' })
      await store.close()
      await makeOlder(fresh.url)
      const newer = await openStore({ databaseUrl: fresh.url })
      try {
        assert.deepEqual(await newer.idempotency.begin(claim('unanswered'), 'hash', now), { state: 'conflict' })
        assert.equal((await newer.idempotency.begin(claim('answered'), 'hash', now)).state, 'done')
      } finally {
        await newer.close()
      }
    } finally {
      await fresh.drop()
    }
  })

  test('a database of a newer version is refused in words and left as it is', async () => {
    await execute(
      url,
      `insert into schema_migrations (name, timestamp) values ('9999-future', '2099-01-01T00:00:00.000Z')`,
    )
    try {
      await assert.rejects(openStore({ databaseUrl: url }), /newer version/)
    } finally {
      await execute(url, `delete from schema_migrations where name = '9999-future'`)
    }
    await (await openStore({ databaseUrl: url })).close()
  })

  test('who opens a database hears whose it is, and one that is refused is left as it is', async () => {
    const fresh = await freshDatabase()
    const heard: unknown[] = []
    const admit = (installation: string | undefined) => {
      heard.push(installation)
      throw new ServiceError('unavailable', 'it is of another')
    }
    try {
      await assert.rejects(openStore({ databaseUrl: fresh.url }, { admit }), /it is of another/)
      await assert.rejects(execute(fresh.url, 'select 1 from schema_migrations'), /does not exist/)
      const store = await openStore({ databaseUrl: fresh.url })
      await store.joinInstallation('one')
      await store.close()
      await assert.rejects(openStore({ databaseUrl: fresh.url }, { admit }), /it is of another/)
      assert.deepEqual(heard, [undefined, 'one'])
    } finally {
      await fresh.drop()
    }
  })

  test('a server that does not answer is unavailable', async () => {
    await assert.rejects(openStore({ databaseUrl: 'postgres://nobody@127.0.0.1:1/none' }), (error) =>
      isServiceError(error, 'unavailable'),
    )
  })
})

/** Takes away what migrations from 0008 on have added. */
async function makeOlder(url: string): Promise<void> {
  const added = {
    sessions: [
      'cache_read_tokens',
      'cache_write_tokens',
      'cost_nano_usd',
      'waiting_for',
      'waiting_since',
      'sandbox_restores',
      'host_id',
    ],
    sandboxes: ['restores', 'host_id'],
    checkpoints: ['host_id'],
    idempotency_keys: ['seed', 'made'],
  }
  for (const [table, columns] of Object.entries(added)) {
    await execute(url, `alter table ${table} ${columns.map((name) => `drop column ${name}`).join(', ')}`)
  }
  await execute(url, `delete from schema_migrations where name >= '0008'`)
}
