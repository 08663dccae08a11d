import assert from 'node:assert/strict'
import { after, before, suite, test } from 'node:test'
import { isServiceError } from '../../src/errors.ts'
import { openStore } from '../../src/store/index.ts'
import { execute, freshDatabase } from './store-databases.ts'
import { newOrganisation, newSession, sandboxOf } from './store-records.ts'

/** What only a database server can do to us, or several Atolls to one database. */
suite('a store on a PostgreSQL server', () => {
  let url: string
  let drop: () => Promise<void>
  before(async () => ({ url, drop } = await freshDatabase()))
  after(() => drop())

  test('servers that start together on an empty database all get it migrated', async () => {
    const stores = await Promise.all([1, 2, 3].map(() => openStore({ databaseUrl: url })))
    try {
      const [first] = await Promise.all(stores.map((store) => store.organisations.defaultOrganisation()))
      for (const store of stores) assert.deepEqual(await store.organisations.defaultOrganisation(), first)
    } finally {
      for (const store of stores) await store.close()
    }
  })

  test('commits of several servers to one session get dense numbers', async () => {
    const stores = await Promise.all([1, 2].map(() => openStore({ databaseUrl: url })))
    try {
      const [one, other] = stores
      assert.ok(one && other)
      const { id } = await newSession(one, (await newOrganisation(one)).id)
      await Promise.all(
        Array.from({ length: 60 }, (_, index) =>
          (index % 2 === 0 ? one : other).sessions.commit(id, { addStream: [{ type: 'assistant' }] }),
        ),
      )
      const sequences = (await other.sessions.stream(id, 0, 100)).map(({ sequence }) => sequence)
      assert.deepEqual(
        sequences,
        Array.from({ length: 60 }, (_, index) => index + 1),
      )
    } finally {
      for (const store of stores) await store.close()
    }
  })

  test('connections that the server cuts are replaced, idle ones and working ones', async () => {
    const store = await openStore({ databaseUrl: url })
    try {
      const { id: orgId } = await newOrganisation(store)
      const writes = Promise.allSettled(
        Array.from({ length: 50 }, () => store.sandboxes.insertSandbox(sandboxOf(orgId))),
      )
      await execute(
        url,
        `select pg_terminate_backend(pid) from pg_stat_activity
         where datname = current_database() and application_name = 'atoll'`,
      )
      for (const result of await writes) {
        if (result.status === 'rejected') assert.ok(isServiceError(result.reason, 'unavailable'), String(result.reason))
      }
      await store.ping()
    } finally {
      await store.close()
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

  test('a server that does not answer is unavailable', async () => {
    await assert.rejects(openStore({ databaseUrl: 'postgres://nobody@127.0.0.1:1/none' }), (error) =>
      isServiceError(error, 'unavailable'),
    )
  })
})
