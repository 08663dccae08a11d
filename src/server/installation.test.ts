import assert from 'node:assert/strict'
import { mkdtemp, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { test, type TestContext } from 'node:test'
import pg from 'pg'
import { isServiceError } from '../errors.ts'
import { silentLog } from '../lib/log.ts'
import { freshDatabase, startTestCluster } from '../../test/support/database.ts'
import { databaseName, openOwnStore } from './installation.ts'

async function makePlaces(t: TestContext) {
  const dataDir = await mkdtemp(join(tmpdir(), 'atoll-installation-'))
  t.after(() => rm(dataDir, { recursive: true }))
  const file = (name: string) => join(dataDir, name)
  return {
    dataDir,
    file,
    open: async () => (await openOwnStore({ dataDir })).close(),
    id: () => readFile(file('identity'), 'utf8'),
    inDatabase: async (statement: string) => {
      const cluster = await startTestCluster(dataDir)
      const client = new pg.Client({ connectionString: cluster.databaseUrl })
      await client.connect()
      await client.query(statement)
      await client.end()
      await cluster.stop()
    },
    refuses: (opening: Promise<void>, pattern: RegExp) =>
      assert.rejects(opening, (error) => isServiceError(error, 'unavailable') && pattern.test(error.message)),
  }
}

test('installation: a first start gives directory and database a common id that only the owner can read', async (t) => {
  const { open, id, file, dataDir } = await makePlaces(t)
  await open()
  const made = await id()
  assert.match(made, /^[0-9a-f-]{36}\n$/)
  assert.equal((await stat(file('identity'))).mode & 0o777, 0o600)
  await open()
  assert.equal(await id(), made)
  assert.deepEqual((await readdir(dataDir)).toSorted(), ['db', 'db.log', 'identity'])
})

test('installation: an interrupted join is completed, before and after the row', async (t) => {
  const { open, id, file, inDatabase } = await makePlaces(t)
  await writeFile(file('identity.new'), 'begun\n')
  await open()
  assert.equal(await id(), 'begun\n')
  await rename(file('identity'), file('identity.new'))
  await open()
  assert.equal(await id(), 'begun\n')
  await rename(file('identity'), file('identity.new'))
  await inDatabase('delete from installation')
  await open()
  assert.equal(await id(), 'begun\n')
})

test('installation: a directory and a database that name each other no more are joined', async (t) => {
  const { open, id, file, inDatabase } = await makePlaces(t)
  await open()
  const first = await id()
  await rm(file('identity'))
  await inDatabase('delete from installation')
  await open()
  assert.notEqual(await id(), first)
})

test('installation: a directory whose database is gone creates no other', async (t) => {
  const { open, refuses, file, dataDir } = await makePlaces(t)
  await open()
  await rename(file('db'), file('away'))
  await refuses(open(), /which is empty .*\n.*\n.*remove the file \S+identity/)
  assert.deepEqual((await readdir(dataDir)).toSorted(), ['away', 'db.log', 'identity'])
  await rename(file('away'), file('db'))
  await open()
})

test('installation: a database of another directory is refused unchanged, with instructions', async (t) => {
  const [own, other] = [await makePlaces(t), await makePlaces(t)]
  for (const { open } of [own, other]) await open()
  const foreign = (await other.id()).trim()
  await rm(own.file('db'), { recursive: true })
  await rename(other.file('db'), own.file('db'))
  // A migration would fail: its tables are there.
  await own.inDatabase('create table taken as table schema_migrations; delete from schema_migrations')
  const words = new RegExp(`belongs to another data directory.*echo ${foreign} > ${own.file('identity')}`, 's')
  await own.refuses(own.open(), words)
  await own.inDatabase('insert into schema_migrations select * from taken; drop table taken')

  await rm(own.file('identity'))
  await own.refuses(own.open(), /which has never been used with it/)
  await writeFile(own.file('identity'), `${foreign}\n`)
  await own.open()
})

/** A server in a process of its own that opens the private database, and is then killed. */
async function openAndKill(dataDir: string): Promise<void> {
  const script = `import { openOwnStore } from ${JSON.stringify(import.meta.resolve('./installation.ts'))}
    await openOwnStore({ dataDir: ${JSON.stringify(dataDir)} })
    console.log('open')
    setInterval(() => {}, 1000)`
  const server = spawn(process.execPath, ['--input-type=module-typescript', '-e', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const [first] = await Promise.race([once(server.stdout, 'data'), once(server, 'exit')])
  assert.equal(String(first), 'open\n')
  server.kill('SIGKILL')
  await once(server, 'exit')
}

test('installation: with DATABASE_URL the private database is told as unused, and one that a killed server has left is stopped', async (t) => {
  const { dataDir, file, refuses, open } = await makePlaces(t)
  const { url: databaseUrl, drop } = await freshDatabase()
  t.after(drop)
  await openAndKill(dataDir)
  const warned: string[] = []
  const log = { ...silentLog, warn: (_facts: object, message: string) => warned.push(message) }
  const openForeign = async () => (await openOwnStore({ dataDir, databaseUrl }, { log })).close()
  await stat(file('db/postmaster.pid'))
  await refuses(openForeign(), /belongs to another database/)
  assert.deepEqual(warned, ['DATABASE_URL is used; the private database in the data directory is not'])
  await assert.rejects(stat(file('db/postmaster.pid')), { code: 'ENOENT' })
  await rename(file('identity'), file('identity.private'))
  await openForeign()
  await rename(file('identity.private'), file('identity'))
  await open()
})

test('installation: the name of a database has no user and no password', () => {
  const name = (databaseUrl: string) => databaseName({ dataDir: '/data', databaseUrl })
  assert.equal(
    name('postgres://me:secret@db.example:5433/atoll?password=secret'),
    'the database atoll on db.example:5433',
  )
  assert.equal(name('postgres:///atoll?host=/run/postgresql&password=secret'), 'the database atoll on /run/postgresql')
})
