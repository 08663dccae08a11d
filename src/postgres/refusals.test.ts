/** Faults that a start refuses, with the remedy and without erasing anything, and faults in spite of which it starts. */
import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { chown, cp, mkdir, mkdtemp, readFile, rename, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { valuesOf } from '../../test/support/database.ts'
import { SmallDisk } from '../../test/support/small-disk.ts'
import { unfitFileSystem } from './folder.ts'
import { inspectCluster } from './index.ts'
import { makePlace, pidOf } from '../../test/support/cluster-place.ts'

test('cluster: what is not ours, or damaged, is refused with the remedy, and nothing is erased', async (t) => {
  const { start, folder, refuses } = await makePlace(t)
  await mkdir(folder)
  await refuses(/holds no database: move it away/)
  await writeFile(`${folder}/PG_VERSION`, '17\n')
  await refuses(/is not Atoll's private cluster, such as the embedded one of a version before 0\.1\.0/)
  await rm(folder, { recursive: true })
  await (await start()).stop()

  await chown(folder, 0, 0)
  await refuses(/must belong to the user atoll-db alone: chown --recursive/)
  const { uid, gid } = await stat(`${folder}/PG_VERSION`)
  await chown(folder, uid, gid)

  const version = await readFile(`${folder}/PG_VERSION`, 'utf8')
  await writeFile(`${folder}/PG_VERSION`, '11\n')
  await refuses(/is of PostgreSQL 11, which is not installed \(installed: .*\): install postgresql-11/)
  await writeFile(`${folder}/PG_VERSION`, '99\n')
  await refuses(/is of PostgreSQL 99, which is not installed .*: install postgresql-99/)
  await writeFile(`${folder}/PG_VERSION`, 'x\n')
  await refuses(/PG_VERSION is damaged/)
  await writeFile(`${folder}/PG_VERSION`, version)

  await valuesOf((await start()).databaseUrl, 'select 1')
})

test('cluster: a file that is damaged, or that it cannot read, is told with what PostgreSQL says of it', async (t) => {
  const { start, folder, refuses, dataDir } = await makePlace(t)
  await (await start()).stop()
  const { uid, gid } = await stat(`${folder}/PG_VERSION`)
  await rename(`${folder}/global/pg_control`, `${dataDir}/pg_control`)
  await refuses(/does not start .*could not find the database system|does not start .*pg_control/)
  await rename(`${dataDir}/pg_control`, `${folder}/global/pg_control`)

  await chown(`${folder}/global/pg_filenode.map`, 0, 0)
  await refuses(/(?:crashes at each start|refuses sessions|does not start).*pg_filenode.map.*Permission denied/)
  await chown(`${folder}/global/pg_filenode.map`, uid, gid)

  await writeFile(`${folder}/own.conf`, 'no_such_setting = 1\n')
  await refuses(/does not start .*configuration file .* contains errors/)
  await writeFile(`${folder}/own.conf`, '')

  await valuesOf((await start()).databaseUrl, 'select 1')
})

test('cluster: pid files that a crash left do not keep it from starting, whoever has the pid now', async (t) => {
  const { start, folder, socketDir } = await makePlace(t)
  const first = await start()
  const text = await readFile(`${folder}/postmaster.pid`, 'utf8')
  const socketLock = `${socketDir}/.s.PGSQL.5432.lock`
  const lockText = await readFile(socketLock, 'utf8')
  const { uid } = await stat(folder)
  await first.stop()
  // PostgreSQL asks for the processes of its own user alone.
  const other = spawn('setpriv', [`--reuid=${uid}`, '--clear-groups', 'sleep', '60'])
  t.after(() => other.kill())
  await writeFile(`${folder}/postmaster.pid`, text.replace(/^\d+/, String(other.pid)))
  // The socket's folder stays where the server was killed too.
  await mkdir(socketDir, { mode: 0o700 })
  await writeFile(socketLock, lockText.replace(/^\d+/, String(other.pid)))
  const cluster = await start()
  assert.notEqual(await pidOf(folder), other.pid)
  await valuesOf(cluster.databaseUrl, 'select 1')
  await cluster.stop()
  for (const damaged of ['', 'x\n', '-1\n', `99999999999999999999\n`]) {
    await writeFile(`${folder}/postmaster.pid`, damaged)
    const again = await start()
    await valuesOf(again.databaseUrl, 'select 1')
    await again.stop()
  }
})

test('cluster: one that another server runs is left to it, also where a link leads to it', async (t) => {
  const [owner, other] = [await makePlace(t), await makePlace(t)]
  const cluster = await owner.start()
  const pid = await pidOf(owner.folder)
  await symlink(owner.folder, other.folder)
  await other.refuses(new RegExp(`is used by process ${pid}, .*: end that first`))
  assert.equal(await pidOf(owner.folder), pid)
  await valuesOf(cluster.databaseUrl, 'select 1')
  await cluster.stop()
  const taken = await other.start()
  await valuesOf(taken.databaseUrl, 'select 1')
  // The folder is that of the first place, which removes it when the test ends.
  await taken.stop()
})

test('cluster: a copy of one with the pid file of the original, which runs, is a cluster of its own', async (t) => {
  const [original, copy] = [await makePlace(t), await makePlace(t)]
  await (await original.start()).stop()
  execFileSync('cp', ['--archive', original.folder, copy.folder])
  const cluster = await original.start()
  await cp(`${original.folder}/postmaster.pid`, `${copy.folder}/postmaster.pid`)
  const second = await copy.start()
  await valuesOf(second.databaseUrl, 'create table only_here ()')
  assert.deepEqual(await valuesOf(cluster.databaseUrl, `select to_regclass('only_here')`), [null])
})

/** Mounts, until disposed of; the last word is the target. */
function mounted(...words: string[]): Disposable {
  execFileSync('mount', words)
  return { [Symbol.dispose]: () => execFileSync('umount', ['--lazy', words.at(-1) ?? '']) }
}

test('cluster: a file system that does not keep what it has is refused, for a new database and for one that is there', async (t) => {
  const { dataDir, folder, start, refuses } = await makePlace(t)
  await (await start()).stop()
  const kept = await mkdtemp(join(tmpdir(), 'atoll-cluster-'))
  t.after(() => rm(kept, { recursive: true }))
  execFileSync('mv', [folder, kept])
  using mounts = new DisposableStack()
  mounts.use(mounted('-t', 'tmpfs', 'tmpfs', dataDir))
  await refuses(/cannot be on the file system of .*, a tmpfs, which a reboot empties: choose another/)
  await assert.rejects(stat(folder), { code: 'ENOENT' })
  execFileSync('cp', ['--archive', `${kept}/db`, folder])
  await refuses(/a tmpfs, which a reboot empties/)
  assert.match((await inspectCluster(dataDir)).found, /a tmpfs, which a reboot empties/)
  // The numbers of statfs(2); no such server is here.
  assert.match(unfitFileSystem(0x6969) ?? '', /^NFS, which does not say when a write is on the disk$/)
  for (const smb of [0xff534d42, 0xfe534d42]) assert.match(unfitFileSystem(smb) ?? '', /^SMB,/)
  for (const fit of [0xef53, 0x58465342, 0x9123683e]) assert.equal(unfitFileSystem(fit), undefined)
})

test('cluster: a read-only file system is named, for a new database and for one that is there', async (t) => {
  const { dataDir, folder, start, refuses } = await makePlace(t)
  using mounts = new DisposableStack()
  mounts.use(mounted('--bind', dataDir, dataDir))
  const remount = (how: string) => execFileSync('mount', ['-o', `remount,bind,${how}`, dataDir])
  remount('ro')
  await refuses(/cannot be opened: the file system is read-only/)
  remount('rw')
  await (await start()).stop()
  remount('ro')
  await refuses(/the file system is read-only|Read-only file system/)
  remount('rw')
  await valuesOf((await start()).databaseUrl, 'select 1')
  assert.equal((await stat(folder)).mode & 0o777, 0o700)
})

test('cluster: a full disk is told at a first start and at a later one, and with space all is there', async (t) => {
  await using disk = await SmallDisk.make(256)
  const { start, refuses, folder } = await makePlace(t, { dataDir: disk.dataDir })
  await disk.fill(4)
  await refuses(/cannot be made in .*No space left on device|the disk is full/)
  await assert.rejects(stat(folder), { code: 'ENOENT' })
  await disk.empty()
  const cluster = await start()
  await valuesOf(cluster.databaseUrl, 'create table kept (n integer, filler text)')
  await valuesOf(cluster.databaseUrl, `insert into kept values (0, '')`)

  await disk.fill(0)
  let last = 0
  const insert = () =>
    valuesOf(
      cluster.databaseUrl,
      `insert into kept values (${last + 1}, (select string_agg(md5(random()::text), '') from generate_series(1, 5000)))`,
    )
  const fault = /No space left on device|Connection terminated|ECONN|ENOENT|terminating connection/
  for (;;) {
    const isKept = await insert().then(
      () => true,
      (error: unknown) => {
        assert.match(String(error), fault)
        return false
      },
    )
    if (!isKept) break
    last++
  }
  await disk.empty()
  const count = () => valuesOf(cluster.databaseUrl, 'select max(n) from kept').catch(() => undefined)
  while ((await count()) === undefined);
  assert.deepEqual(await count(), [last])
  await cluster.stop()

  await disk.fill(0)
  await refuses(/No space left on device|the disk is full/)
  await disk.empty()
  const again = await start()
  assert.deepEqual(await valuesOf(again.databaseUrl, 'select max(n) from kept'), [last])
  await again.stop()
})

/** What `inspectCluster` or a start says after these shell commands, in a mount namespace of its own. */
function inNamespace(prepare: string, dataDir: string, socketDir: string): string {
  const options = JSON.stringify({ dataDir, socketDir, hiddenDir: '/run/nothing', connectionsMax: 10 })
  const script = `import { inspectCluster, PrivateCluster } from ${JSON.stringify(import.meta.resolve('./index.ts'))}
    const log = { debug() {}, info(_facts, message) { console.log(message) }, warn() {}, error() {} }
    console.log((await inspectCluster(${JSON.stringify(dataDir)})).found)
    await PrivateCluster.start({ ...${options}, log }).then(
      (cluster) => cluster.stop(),
      (error) => console.log(error.code + ': ' + error.message),
    )`
  const shell = `${prepare}\nexec "$@"`
  const node = [process.execPath, '--input-type=module-typescript', '-e', script]
  return execFileSync('unshare', ['--mount', '--', 'sh', '-ec', shell, 'sh', ...node], { encoding: 'utf8' })
}

const versions = '/usr/lib/postgresql'

test('cluster: a machine without PostgreSQL, or without the version of the database, is told what to install', async (t) => {
  const { dataDir, socketDir, folder, start } = await makePlace(t)
  const none = inNamespace(`mount -t tmpfs none ${versions}`, dataDir, socketDir)
  assert.match(
    none,
    /^unavailable: no PostgreSQL server of version 14 or newer is installed .*: npm run setup installs it/m,
  )
  await assert.rejects(stat(folder), { code: 'ENOENT' })
  await (await start()).stop()
  const [version] = (await readFile(`${folder}/PG_VERSION`, 'utf8')).split('\n')
  const gone = inNamespace(`mount -t tmpfs none ${versions}`, dataDir, socketDir)
  const refusal = `the database in ${folder} is of PostgreSQL ${version}, which is not installed: install postgresql-${version}`
  assert.equal(gone, `${refusal}\nunavailable: ${refusal}\n`)
})

test('cluster: it runs on the programs of its version, and doctor and log tell of a newer one and of the command', async (t) => {
  const { dataDir, socketDir, folder, start } = await makePlace(t)
  await (await start()).stop()
  const [version = ''] = (await readFile(`${folder}/PG_VERSION`, 'utf8')).split('\n')
  await mkdir(`${folder}.9`)
  const newer = [
    `cp -a ${versions}/${version} ${dataDir}/programs`,
    `mount -t tmpfs none ${versions}`,
    `mkdir -p ${versions}/${version} ${versions}/99/bin`,
    `mount --bind ${dataDir}/programs ${versions}/${version}`,
    // Programs that fail when they are run.
    `touch ${versions}/99/bin/postgres ${versions}/99/bin/initdb`,
  ].join('\n')
  const [found = '', told] = inNamespace(newer, dataDir, socketDir).split('\n')
  assert.match(
    found,
    new RegExp(`^PostgreSQL ${version}, in ${folder}; 99 is installed: stop the server, then npm run db:upgrade; `),
  )
  assert.match(found, /an upgrade has kept \S+\/db\.9: remove it once all is well$/)
  assert.match(told ?? '', /a newer PostgreSQL than that of the database is installed: npm run db:upgrade moves to it/)
})
