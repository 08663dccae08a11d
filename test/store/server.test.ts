import assert from 'node:assert/strict'
import { once } from 'node:events'
import { after, before, suite, test } from 'node:test'
import { isServiceError, ServiceError } from '../../src/errors.ts'
import type { LockState } from '../../src/store/lock.ts'
import { openStore, type Store } from '../../src/store/index.ts'
import { killed, startChild } from './child.ts'
import { refuses } from '../../src/lib/testing/refuses.ts'
import { cutConnections, execute, freshDatabase, newOrganisation, queueForLock, sandboxOf } from './kit.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

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

  test('database lock: of servers that start together one gets it, and the others are refused with a message', async () => {
    const opening = await Promise.allSettled([1, 2, 3].map(() => openStore(url)))
    const refused: unknown[] = opening.flatMap((result) => (result.status === 'rejected' ? [result.reason] : []))
    const stores = opening.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []))
    for (const store of stores) await store.close()
    assert.equal(stores.length, 1)
    for (const error of refused) {
      assert.ok(isServiceError(error, 'unavailable'), String(error))
      assert.match(error.message, /another server uses this database: give each server a database of its own/)
    }
  })

  test('database lock: a killed server releases it', async () => {
    const child = startChild('hold', url)
    await once(child.stdout, 'data')
    await killed(child)
    await (await openStore(url)).close()
  })

  test('database lock: a lost connection takes it again, and calls fail until then', async () => {
    const states: LockState[] = []
    const store = await openStore(url, { lockChanged: (state) => states.push(state) })
    // Waits in PostgreSQL's own queue, so it has the lock as soon as the server loses it.
    const next = await queueForLock(url)
    try {
      await cutConnections(url, 'atoll lock')
      await next.locked
      await eventually(() => states.includes('lost'))
      await refuses(store.ping(), 'unavailable')
      await assert.rejects(store.organisations.defaultOrganisation(), /the connection that keeps other servers/)
    } finally {
      await next.end()
    }
    await eventually(() => states.includes('held'))
    await store.ping()
    await store.close()
    assert.deepEqual(states, ['lost', 'held'])
  })

  test('database lock: it is gone once another server had it meanwhile', async () => {
    const states: LockState[] = []
    const store = await openStore(url, { lockChanged: (state) => states.push(state) })
    const next = await queueForLock(url)
    await cutConnections(url, 'atoll lock')
    await next.locked
    // As the other server does once it has the lock. It may even have ended before this one is back.
    await execute(url, `update database_holder set server_id = 'another'`)
    await next.end()
    await eventually(() => states.includes('gone'))
    await refuses(store.ping(), 'unavailable')
    await store.close()
    assert.deepEqual(states, ['lost', 'gone'])
    await (await openStore(url)).close()
  })

  test('connections: cut ones are replaced, idle and busy', async () => {
    await using store = await openStore(url)
    const { id: orgId } = await newOrganisation(store)
    const writes = Promise.allSettled(Array.from({ length: 50 }, () => store.sandboxes.insertSandbox(sandboxOf(orgId))))
    await cutConnections(url, 'atoll')
    for (const result of await writes) {
      if (result.status === 'rejected') assert.ok(isServiceError(result.reason, 'unavailable'), String(result.reason))
    }
    // One that is being cut just now is told to the next call that wants it.
    await eventually(() => answers(store))
  })

  test('newer database: it is refused with a message and left unchanged', async () => {
    await execute(
      url,
      `insert into schema_migrations (name, timestamp) values ('9999-future', '2099-01-01T00:00:00.000Z')`,
    )
    try {
      await assert.rejects(openStore(url), /newer version/)
    } finally {
      await execute(url, `delete from schema_migrations where name = '9999-future'`)
    }
    await (await openStore(url)).close()
  })

  test('admit: it gets the installation, and a refused database is left unchanged', async () => {
    const fresh = await freshDatabase()
    const heard: unknown[] = []
    const admit = (installation: string | undefined) => {
      heard.push(installation)
      throw new ServiceError('unavailable', 'it is of another')
    }
    try {
      await assert.rejects(openStore(fresh.url, { admit }), /it is of another/)
      await assert.rejects(execute(fresh.url, 'select 1 from schema_migrations'), /does not exist/)
      const store = await openStore(fresh.url)
      await store.joinInstallation('one')
      await store.close()
      await assert.rejects(openStore(fresh.url, { admit }), /it is of another/)
      assert.deepEqual(heard, [undefined, 'one'])
    } finally {
      await fresh.drop()
    }
  })

  test('unreachable server: opening it is unavailable', async () => {
    await refuses(openStore('postgres://nobody@127.0.0.1:1/none'), 'unavailable')
  })
})
