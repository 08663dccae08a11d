/** What happens to a store by the processes and files of its PostgreSQL, which only a private cluster shows. */
import assert from 'node:assert/strict'
import { open } from 'node:fs/promises'
import { test } from 'node:test'
import pg from 'pg'
import { isServiceError } from '../../src/errors.ts'
import { silentLog } from '../../src/lib/log.ts'
import { Cgroups } from '../../src/runtime/cgroups/index.ts'
import { makePlace, pidOf } from '../support/cluster-place.ts'
import { applicationName, DatabaseLock } from '../../src/store/lock.ts'
import { openStore } from '../../src/store/index.ts'
import { valuesOf } from '../support/database.ts'
import { newOrganisation, sandboxOf } from './kit.ts'

test('database lock: a statement of an earlier server that does not end is told with its process, and the lock is free again', async (t) => {
  const cluster = await (await makePlace(t)).start()
  const earlier = new pg.Client({ connectionString: cluster.databaseUrl, application_name: applicationName })
  earlier.on('error', () => undefined)
  await earlier.connect()
  const { rows } = await earlier.query<{ pid: number }>('select pg_backend_pid() as pid')
  const pid = rows[0]?.pid ?? 0
  // As one whose disk hangs: it ends only later.
  process.kill(pid, 'SIGSTOP')
  const never = () => assert.fail('the state has changed')
  await assert.rejects(DatabaseLock.take(cluster.databaseUrl, never, 200), (error) => {
    assert.ok(isServiceError(error, 'unavailable'))
    assert.match(error.message, new RegExp(`do not end in the database \\(processes ${pid} of PostgreSQL\\)`))
    return true
  })
  const ended = new Promise((resolve) => earlier.once('end', resolve))
  process.kill(pid, 'SIGCONT')
  await ended
  const lock = await DatabaseLock.take(cluster.databaseUrl, never)
  await lock.release()
})

test('close: a PostgreSQL that hangs does not keep a store from closing', async (t) => {
  const { start, groupName, folder } = await makePlace(t)
  const cluster = await start()
  const store = await openStore(cluster.databaseUrl)
  await store.ping()
  const members = await (await Cgroups.find()).members(groupName)
  const first = await pidOf(folder)
  const others = members.filter((pid) => pid !== first)
  for (const pid of others) signalIfThere(pid, 'SIGSTOP')
  await store.close()
  await assert.rejects(store.ping(), (error) => isServiceError(error, 'unavailable'))
  for (const pid of others) signalIfThere(pid, 'SIGCONT')
})

/** Workers of PostgreSQL end by themselves. */
function signalIfThere(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}

test('damage: a page whose bytes have changed fails the calls that read it, with a message, and the log says which statement', async (t) => {
  const { start, folder } = await makePlace(t)
  const first = await start()
  {
    await using store = await openStore(first.databaseUrl)
    const { id: orgId } = await newOrganisation(store)
    await store.sandboxes.insertSandbox(sandboxOf(orgId))
  }
  const [path] = await valuesOf(first.databaseUrl, `select pg_relation_filepath('sandboxes')`)
  await first.stop()
  {
    await using file = await open(`${folder}/${String(path)}`, 'r+')
    // At the end of a page is its first row.
    await file.write(Buffer.from('other bytes'), 0, undefined, 8192 - 64)
  }
  const logged: object[] = []
  const log = { ...silentLog, error: (facts: object, message: string) => logged.push({ ...facts, message }) }
  const cluster = await start()
  await using store = await openStore(cluster.databaseUrl, { log })
  await assert.rejects(store.sandboxes.sandboxCounts(), (error) => {
    assert.ok(isServiceError(error, 'unavailable'), String(error))
    assert.equal(error.message, 'a file of the database is damaged')
    return true
  })
  const [entry] = logged as { call: string; message: string; err: Error }[]
  assert.equal(entry?.call, 'sandboxes.sandboxCounts')
  assert.match(entry?.message ?? '', /a file of the database is damaged: restore a backup/)
  assert.match(entry?.err.message ?? '', /invalid page in block 0 of relation/)
  await newOrganisation(store)
})
