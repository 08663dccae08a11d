import assert from 'node:assert/strict'
import { mkdtemp, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { PGlite } from '@electric-sql/pglite'
import { isServiceError } from '../errors.ts'
import { databaseName, openOwnStore } from './installation.ts'

const imageDir = process.env['ATOLL_IMAGE_DIR'] || '/var/lib/atoll/images'

async function makePlaces(t: TestContext) {
  const dataDir = await mkdtemp(join(tmpdir(), 'atoll-installation-'))
  t.after(() => rm(dataDir, { recursive: true }))
  const file = (name: string) => join(dataDir, name)
  return {
    dataDir,
    file,
    open: async () => (await openOwnStore({ dataDir, imageDir })).close(),
    id: () => readFile(file('identity'), 'utf8'),
    inDatabase: async (statement: string) => {
      await using pglite = await PGlite.create(file('db'))
      await pglite.exec(statement)
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
  assert.deepEqual((await readdir(dataDir)).toSorted(), ['db', 'identity'])
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

test('installation: a directory and a database of an earlier version are joined', async (t) => {
  const { open, id, file, inDatabase } = await makePlaces(t)
  await open()
  const first = await id()
  await rm(file('identity'))
  await inDatabase(`drop table installation; delete from schema_migrations where name >= '0006-installation';
    drop table deleted_checkpoints;
    drop index messages_state, sessions_ended;
    drop table images, image_layers;
    alter table previews drop constraint previews_own_hostname, drop column verified_at,
      add constraint previews_custom_hostname unique (custom_hostname);
    alter table sessions drop column cache_read_tokens, drop column cache_write_tokens, drop column cost_nano_usd,
      drop column waiting_for, drop column waiting_since, drop column sandbox_restores,
      drop column host_id;
    drop table volume_attachments, volume_snapshots, volumes, volume_remains;
    alter table sandboxes drop column restores, drop column host_id, drop column volumes, drop column command_defaults,
      drop column is_autoscaled, drop column autoscale_min_mb, drop column autoscale_max_mb, drop column is_scaling_locked;
    alter table checkpoints drop column host_id, drop column is_public, drop column volumes;
    alter table idempotency_keys drop column seed, drop column made`)
  await open()
  assert.notEqual(await id(), first)
})

test('installation: a directory whose database is gone creates no other', async (t) => {
  const { open, refuses, file, dataDir } = await makePlaces(t)
  await open()
  await rename(file('db'), file('away'))
  await refuses(open(), /which is empty .*\n.*\n.*remove the file \S+identity/)
  assert.deepEqual((await readdir(dataDir)).toSorted(), ['away', 'identity'])
  await rename(file('away'), file('db'))
  await open()
})

test('installation: a database of another directory is refused unchanged, with instructions', async (t) => {
  const [own, other] = [await makePlaces(t), await makePlaces(t)]
  for (const { open } of [own, other]) await open()
  const foreign = (await other.id()).trim()
  await rm(own.file('db'), { recursive: true })
  await rename(other.file('db'), own.file('db'))
  await own.inDatabase(`create table taken as select * from schema_migrations where name >= '0006-installation';
    delete from schema_migrations where name >= '0006-installation'`)
  const words = new RegExp(`belongs to another data directory.*echo ${foreign} > ${own.file('identity')}`, 's')
  await own.refuses(own.open(), words)
  await own.inDatabase('insert into schema_migrations select * from taken; drop table taken')

  await rm(own.file('identity'))
  await own.refuses(own.open(), /which has never been used with it/)
  await writeFile(own.file('identity'), `${foreign}\n`)
  await own.open()
})

test('installation: the name of a database has no user and no password', () => {
  const name = (databaseUrl: string) => databaseName({ dataDir: '/data', imageDir, databaseUrl })
  assert.equal(
    name('postgres://me:secret@db.example:5433/atoll?password=secret'),
    'the database atoll on db.example:5433',
  )
  assert.equal(name('postgres:///atoll?host=/run/postgresql&password=secret'), 'the database atoll on /run/postgresql')
})
