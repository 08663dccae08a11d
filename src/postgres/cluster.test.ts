import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdir, readFile, readlink, stat, writeFile } from 'node:fs/promises'
import { basename } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { test } from 'node:test'
import { valuesOf } from '../../test/support/database.ts'
import { Cgroups } from '../runtime/cgroups/index.ts'
import { makePlace, pidOf, startAndKill, startServer } from '../../test/support/cluster-place.ts'

test('cluster: a first start makes one that waits for the disk, hears nothing but its socket, and lets in root alone', async (t) => {
  const { start, socketDir, folder } = await makePlace(t)
  const cluster = await start()
  const durable = ['fsync', 'synchronous_commit', 'full_page_writes']
  for (const name of durable) assert.deepEqual(await valuesOf(cluster.databaseUrl, `show ${name}`), ['on'], name)
  assert.deepEqual(await valuesOf(cluster.databaseUrl, 'show listen_addresses'), [''])
  assert.deepEqual(await valuesOf(cluster.databaseUrl, 'select current_user, current_database()'), ['atoll', 'atoll'])
  assert.deepEqual(await valuesOf(cluster.databaseUrl, 'select rolsuper from pg_roles where rolname = current_user'), [
    false,
  ])
  assert.equal((await stat(socketDir)).mode & 0o7777, 0o2710)
  assert.equal((await stat(folder)).mode & 0o777, 0o700)
  const status = await readFile(`/proc/${await pidOf(folder)}/status`, 'utf8')
  assert.match(status, /^NoNewPrivs:\t1$/m)
  for (const set of ['CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb']) {
    assert.match(status, new RegExp(`^${set}:\t0+$`, 'm'))
  }
  // Another user of the machine can neither enter the folder nor connect.
  const enter = ['--reuid=65534', '--regid=65534', '--clear-groups', '--', 'test', '-e', `${socketDir}/.s.PGSQL.5432`]
  assert.equal(spawnSync('setpriv', enter).status, 1)
})

test('cluster: what was committed is there after a stop, and after a kill of all of its processes', async (t) => {
  const { start, folder, logged, says } = await makePlace(t)
  let cluster = await start()
  await valuesOf(cluster.databaseUrl, 'create table kept (n integer)')
  await valuesOf(cluster.databaseUrl, 'insert into kept values (1)')
  await cluster.stop()
  cluster = await start()
  await valuesOf(cluster.databaseUrl, 'insert into kept values (2)')
  process.kill(await pidOf(folder), 'SIGKILL')
  await says('the database is back')
  assert.deepEqual(await valuesOf(cluster.databaseUrl, 'select n from kept order by n'), [1, 2])
  assert.ok(logged.some((message) => message.startsWith('the database has ended by itself')))
})

test('cluster: one whose server was killed is adopted, with the same processes', async (t) => {
  const place = await makePlace(t)
  const { start, folder, logged, says } = place
  await startAndKill(place)
  const pid = await pidOf(folder)
  const cluster = await start()
  assert.equal(await pidOf(folder), pid)
  assert.ok(logged.includes('the database that runs is adopted'))
  await valuesOf(cluster.databaseUrl, 'select 1')
  // The server watches an adopted cluster like one that it has started.
  process.kill(pid, 'SIGKILL')
  await says('the database is back')
  await valuesOf(cluster.databaseUrl, 'select 1')
  await cluster.stop()
  await assert.rejects(readFile(`${folder}/postmaster.pid`), { code: 'ENOENT' })
})

test('cluster: a first start that was killed before it made the database is completed by the next', async (t) => {
  const place = await makePlace(t)
  const { start, folder, socketDir } = place
  await startAndKill(place)
  const admin = `postgres:///postgres?host=${socketDir}&user=atoll_admin`
  for (const what of ['database atoll', 'role atoll', 'role atoll_webhooks']) await valuesOf(admin, `drop ${what}`)
  const pid = await pidOf(folder)
  const cluster = await start()
  assert.equal(await pidOf(folder), pid, 'it is adopted')
  assert.deepEqual(await valuesOf(cluster.databaseUrl, 'select current_user'), ['atoll'])
})

test('cluster: settings of another version are replaced in one that runs, and the operator’s own win', async (t) => {
  const { start, folder } = await makePlace(t)
  const first = await start()
  await writeFile(`${folder}/own.conf`, "work_mem = '5MB'\n")
  await writeFile(`${folder}/atoll.conf`, `${await readFile(`${folder}/atoll.conf`, 'utf8')}max_connections = 7\n`)
  await first.stop()
  const cluster = await start()
  assert.deepEqual(await valuesOf(cluster.databaseUrl, 'show work_mem'), ['5MB'])
  assert.deepEqual(await valuesOf(cluster.databaseUrl, 'show max_connections'), ['55'])
})

test('cluster: a start that was killed while it made the files leaves nothing that looks like a database', async (t) => {
  const { start, folder } = await makePlace(t)
  await mkdir(`${folder}.unfinished`)
  await writeFile(`${folder}.unfinished/PG_VERSION`, '15\n')
  const cluster = await start()
  await valuesOf(cluster.databaseUrl, 'select 1')
  await assert.rejects(stat(`${folder}.unfinished`), { code: 'ENOENT' })
})

test('cluster: what a killed first start is just making is ended and made anew', async (t) => {
  const place = await makePlace(t)
  const server = startServer(place)
  while (!existsSync(`${place.folder}.unfinished/base/1`)) await sleep(1)
  const exit = once(server, 'exit')
  server.kill('SIGKILL')
  await exit
  const cluster = await place.start()
  await valuesOf(cluster.databaseUrl, 'select 1')
  await assert.rejects(stat(`${place.folder}.unfinished`), { code: 'ENOENT' })
})

test('cluster: folders above it may be closed to its user, and its mounts are its own', async (t) => {
  const { start, dataDir, folder } = await makePlace(t)
  assert.equal((await stat(dataDir)).mode & 0o777, 0o700)
  const cluster = await start()
  await valuesOf(cluster.databaseUrl, 'select 1')
  const [own, its] = await Promise.all([process.pid, await pidOf(folder)].map((pid) => readlink(`/proc/${pid}/ns/mnt`)))
  assert.notEqual(own, its)
  assert.doesNotMatch(await readFile('/proc/self/mounts', 'utf8'), new RegExp(basename(dataDir)))
})

test('cluster: all of its processes are in a control group of their own, whose limits hold', async (t) => {
  const { start, folder, groupName } = await makePlace(t)
  const cluster = await start()
  const cgroups = await Cgroups.find()
  assert.ok((await cgroups.members(groupName)).includes(await pidOf(folder)))
  const [session] = await valuesOf(cluster.databaseUrl, 'select pg_backend_pid()')
  assert.ok(session !== undefined)
  const { memoryBytes, processes } = cgroups.limits(groupName)
  assert.deepEqual({ memoryBytes, processes }, { memoryBytes: 2 ** 30, processes: 200 })
  await cluster.stop()
  assert.deepEqual(cgroups.limits(groupName), {})
})

test('cluster: one that a killed server has left under other limits, or outside of its group, is started anew', async (t) => {
  const place = await makePlace(t)
  await startAndKill(place)
  const pid = await pidOf(place.folder)
  const cgroups = await Cgroups.find()
  await cgroups.makeLimited('', place.groupName, { memoryBytes: 2 ** 29, processes: 200 })
  await place.start()
  assert.notEqual(await pidOf(place.folder), pid)
  assert.equal(cgroups.limits(place.groupName).memoryBytes, 2 ** 30)
})

test('cluster: a statement that needs more memory than its limit ends alone, and the log says so', async (t) => {
  const { start, folder, says } = await makePlace(t, { memoryMb: 256 })
  const cluster = await start()
  await valuesOf(cluster.databaseUrl, 'create table kept as select 1 as n')
  const pid = await pidOf(folder)
  const greedy = `select length(string_agg(repeat('x', 1000000), '')) from generate_series(1, 900)`
  await assert.rejects(valuesOf(cluster.databaseUrl, greedy), /Connection terminated|terminating connection/)
  await says('the kernel has ended a process of the database, which needed more memory than its limit')
  const back = async () => await valuesOf(cluster.databaseUrl, 'select n from kept').catch(() => undefined)
  while ((await back()) === undefined) await sleep(20)
  assert.deepEqual(await back(), [1])
  assert.equal(await pidOf(folder), pid, 'its first process has brought it back')
})

test('cluster: sessions that outlive its killed first process do not keep it from starting', async (t) => {
  const { start, folder, groupName, says } = await makePlace(t)
  const cluster = await start()
  await valuesOf(cluster.databaseUrl, 'create table kept as select 1 as n')
  const cgroups = await Cgroups.find()
  const pid = await pidOf(folder)
  // They hold its shared memory, and cannot notice its end.
  const others = (await cgroups.members(groupName)).filter((member) => member !== pid)
  assert.ok(others.length > 0)
  for (const other of others) {
    try {
      process.kill(other, 'SIGSTOP')
    } catch (error) {
      // A session that is over ends just now.
      assert.equal((error as NodeJS.ErrnoException).code, 'ESRCH')
    }
  }
  process.kill(pid, 'SIGKILL')
  await says('the database is back')
  assert.deepEqual(await valuesOf(cluster.databaseUrl, 'select n from kept'), [1])
})
