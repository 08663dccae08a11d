/** `npm run db:upgrade` on PostgreSQL 15 and 17 of Debian; see run.sh. */
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import {
  appendFile,
  mkdir,
  open,
  readFile,
  readdir,
  readlink,
  rename,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { inspectCluster } from '../../src/postgres/index.ts'
import { HostNames } from '../../src/runtime/host-names.ts'
import { Cgroups } from '../../src/runtime/cgroups/index.ts'
import { lockDataDir } from '../../src/server/installation.ts'
import { SmallDisk } from '../support/small-disk.ts'
import { ended, Installed } from './installed.ts'

/** Kills at random moments. */
const randomKills = Number(process.env['ATOLL_UPGRADE_KILLS'] || 6)

async function foldersOf(dataDir: string): Promise<string[]> {
  return (await readdir(dataDir)).filter((name) => /^db(?!.*log)/.test(name)).toSorted()
}

/** Nothing runs, and nothing is left of the machine's. */
async function assertNothingRuns({ dataDir }: Installed): Promise<void> {
  const { databaseGroup, databaseDir } = new HostNames(dataDir)
  const cgroups = await Cgroups.find()
  assert.deepEqual(await cgroups.members(databaseGroup), [])
  await assert.rejects(stat(databaseDir), { code: 'ENOENT' })
}

test('upgrade: the database is one of 17 with all of its records and settings, that of 15 is kept, and a repeat does nothing', async (t) => {
  const installed = await Installed.make(t)
  const { dataDir } = installed
  await appendFile(join(dataDir, 'db/own.conf'), "work_mem = '5MB'\n")
  assert.match(
    (await inspectCluster(dataDir)).found,
    /^PostgreSQL 15, in .*; 17 is installed: stop the server, then npm run db:upgrade$/,
  )
  const { status, output } = await installed.upgrade()
  assert.equal(status, 0, output)
  assert.match(
    output,
    /The database is now one of PostgreSQL 17\. Start the server\.\n.* 15 is kept in \S+\/db\.15: remove it/,
  )
  assert.deepEqual(await foldersOf(dataDir), ['db', 'db.15'])
  assert.deepEqual([await installed.version(), await installed.version('db.15')], ['17', '15'])
  await assertNothingRuns(installed)
  assert.match(await readFile(join(dataDir, 'db/own.conf'), 'utf8'), /work_mem = '5MB'/)
  await installed.assertWhole()
  const report = await inspectCluster(dataDir)
  assert.match(report.found, /^PostgreSQL 17, in \S+; an upgrade has kept \S+\/db\.15: remove it once all is well$/)
  assert.deepEqual(await installed.upgrade(), {
    status: 0,
    output: 'the database is of the newest PostgreSQL that is installed; nothing is to be done\n',
  })
  // The old one is as it was.
  await rm(join(dataDir, 'db'), { recursive: true })
  await rename(join(dataDir, 'db.15'), join(dataDir, 'db'))
  await installed.assertWhole()
})

test('upgrade: what a killed server has left running is stopped first, and what it had committed is in the new database', async (t) => {
  const installed = await Installed.make(t, 'killed')
  const pid = Number.parseInt(await readFile(join(installed.dataDir, 'db/postmaster.pid'), 'utf8'), 10)
  process.kill(pid, 0)
  const { status, output } = await installed.upgrade()
  assert.equal(status, 0, output)
  await assert.rejects(readlink(`/proc/${pid}/exe`), { code: 'ENOENT' })
  await installed.assertWhole()
})

test('upgrade: one whose PostgreSQL was killed too is recovered first', async (t) => {
  const installed = await Installed.make(t, 'killed')
  const pid = Number.parseInt(await readFile(join(installed.dataDir, 'db/postmaster.pid'), 'utf8'), 10)
  process.kill(pid, 'SIGKILL')
  const { status, output } = await installed.upgrade()
  assert.equal(status, 0, output)
  assert.equal(await installed.version(), '17')
  await installed.assertWhole()
})

test('upgrade: a database behind a link stays where the link leads', async (t) => {
  const installed = await Installed.make(t)
  const { dataDir } = installed
  await mkdir(join(dataDir, 'elsewhere'))
  await rename(join(dataDir, 'db'), join(dataDir, 'elsewhere/base'))
  await symlink('elsewhere/base', join(dataDir, 'db'))
  const { status, output } = await installed.upgrade()
  assert.equal(status, 0, output)
  assert.equal(await installed.version(), '17')
  assert.equal(await installed.version('elsewhere/base.15'), '15')
  await installed.assertWhole()
})

test('upgrade: a server that runs, a database of yours, a wrong folder and a taken name are refused with the remedy', async (t) => {
  const installed = await Installed.make(t)
  const { dataDir } = installed
  {
    await using server = new AsyncDisposableStack()
    server.use(await lockDataDir(dataDir))
    await installed.refuses(/a server runs on the data directory \S+: stop it first/)
  }
  await installed.refuses(/DATABASE_URL is set/, { DATABASE_URL: 'postgres://one@127.0.0.1:1/one' })
  await installed.refuses(/there is no data directory \/nowhere: give ATOLL_DATA_DIR/, { ATOLL_DATA_DIR: '/nowhere' })
  await installed.refuses(/there is no database in \/srv\/db/, { ATOLL_DATA_DIR: '/srv' })
  await installed.refuses(/ATOLL_DATA_DIR must be an absolute path/, { ATOLL_DATA_DIR: 'here' })
  const { status, output } = await installed.upgrade({}, ['17'])
  assert.deepEqual([status, output], [2, 'db:upgrade: usage: npm run db:upgrade (it takes no arguments)\n'])
  await mkdir(join(dataDir, 'db.15'))
  await installed.refuses(/db\.15, where the present database is to be kept, exists already: move it away/)
  assert.deepEqual(await foldersOf(dataDir), ['db', 'db.15'])
  await installed.assertWhole()
  assert.equal(await installed.version(), '15')
})

test('upgrade: a setting that the new version does not know stops it, and the old database stays in force', async (t) => {
  const installed = await Installed.make(t)
  const { dataDir } = installed
  const own = await readFile(join(dataDir, 'db/own.conf'), 'utf8')
  await writeFile(join(dataDir, 'db/own.conf'), `${own}old_snapshot_threshold = -1\n`)
  await installed.refuses(/cannot be moved from PostgreSQL 15 to 17, and stays as it is: /)
  assert.deepEqual(await foldersOf(dataDir), ['db'])
  await installed.assertWhole()
  assert.equal(await installed.version(), '15')
  await rm(join(dataDir, 'db/own.conf'))
  await symlink('/etc/shadow', join(dataDir, 'db/own.conf'))
  await installed.refuses(/own\.conf is a link: put the settings themselves there|does not start/)
  await rm(join(dataDir, 'db/own.conf'))
  await writeFile(join(dataDir, 'db/own.conf'), own)
  assert.equal((await installed.upgrade()).status, 0)
  await installed.assertWhole()
})

test('upgrade: a damaged page of a table stops it before anything is copied', async (t) => {
  const installed = await Installed.make(t)
  const { dataDir } = installed
  const largest = await largestTable(join(dataDir, 'db/base'))
  {
    await using file = await open(largest, 'r+')
    await file.write(Buffer.from('other bytes'), 0, undefined, 8192 - 64)
  }
  await installed.refuses(/invalid page in block 0/)
  assert.deepEqual(await foldersOf(dataDir), ['db'])
  await assertNothingRuns(installed)
})

/** The largest file of a table that is not PostgreSQL's own. */
async function largestTable(base: string): Promise<string> {
  let largest = { path: '', size: 0 }
  for (const name of await readdir(base, { recursive: true })) {
    const number = Number(/\/(\d+)$/.exec(name)?.[1] ?? 0)
    const { size } = await stat(join(base, name))
    // PostgreSQL's own have numbers below this one.
    if (number >= 16_384 && size > largest.size) largest = { path: join(base, name), size }
  }
  return largest.path
}

test('upgrade: too little space is told with the megabytes that it needs', async (t) => {
  const installed = await Installed.make(t)
  await using disk = await SmallDisk.make(400)
  for (const name of ['identity', 'db']) execFileSync('cp', ['--archive', join(installed.dataDir, name), disk.dataDir])
  const moved = new Installed(disk.dataDir, installed.content)
  await disk.fill(60)
  await moved.refuses(/the upgrade needs \d+ MB beside \S+\/db, where \d+ MB are free/)
  assert.deepEqual(await foldersOf(disk.dataDir), ['db'])
  await disk.empty()
  assert.equal((await moved.upgrade()).status, 0)
  await moved.assertWhole()
})

/** Ends an upgrade that began on a copy, then starts a server, or repeats the upgrade and starts one then. Returns what it was killed in. */
async function killed(t: TestContext, made: Installed, moment: (step: () => string) => Promise<void>): Promise<string> {
  const copy = await made.copy(t)
  const child = copy.begin()
  let output = ''
  child.stdout?.on('data', (chunk: Buffer) => (output += chunk.toString()))
  const exit = once(child, 'exit')
  await Promise.race([moment(() => output), exit])
  child.kill('SIGKILL')
  await exit
  const isRepeated = randomInt(2) === 0
  if (isRepeated) {
    const { status, output: said } = await ended(copy.begin())
    assert.equal(status, 0, `${output}\n${said}`)
    assert.equal(await copy.version(), '17')
  }
  await copy.assertWhole()
  await assertNothingRuns(copy)
  const folders = await foldersOf(copy.dataDir)
  assert.deepEqual(folders, (await copy.version()) === '17' ? ['db', 'db.15'] : ['db'])
  await rm(copy.dataDir, { recursive: true })
  return `${output.trim().split('\n').at(-1) || 'nothing yet'}; ${isRepeated ? 'repeated' : 'started'}: ${folders.join(' ')}`
}

const steps = [
  'reading the database',
  'making an empty',
  'copying the data',
  'reading all of the copy',
  'The database is now',
]

test('upgrade: killed in any of its steps it loses nothing, whether a server starts then or it is repeated', async (t) => {
  const made = await Installed.make(t)
  for (const step of steps) {
    const after = async (output: () => string) => {
      while (!output().includes(step)) await sleep(1)
    }
    t.diagnostic(await killed(t, made, after))
  }
})

test('upgrade: killed at random moments it loses nothing', async (t) => {
  const made = await Installed.make(t)
  const startedMs = performance.now()
  assert.equal((await (await made.copy(t)).upgrade()).status, 0)
  const wholeMs = performance.now() - startedMs
  for (let count = 0; count < randomKills; count++) {
    const ms = randomInt(Math.ceil(wholeMs))
    t.diagnostic(`after ${ms} ms of ${Math.round(wholeMs)}: ${await killed(t, made, () => sleep(ms))}`)
  }
})

test('upgrade: killed between its last renames it is completed by the next start, and by the next upgrade', async (t) => {
  const made = await Installed.make(t)
  const at = (folder: Installed, name: string) => join(folder.dataDir, name)
  const upgraded = await made.copy(t)
  assert.equal((await upgraded.upgrade()).status, 0)
  // Neither has its last name yet: the old one is in force, also when it was written to since.
  const before = await upgraded.copy(t)
  await rename(at(before, 'db'), at(before, 'db.upgraded'))
  await rename(at(before, 'db.15'), at(before, 'db'))
  await before.assertWhole()
  assert.deepEqual([await foldersOf(before.dataDir), await before.version()], [['db'], '15'])
  for (const next of ['start', 'upgrade']) {
    const between = await upgraded.copy(t)
    await rename(at(between, 'db'), at(between, 'db.upgraded'))
    if (next === 'upgrade') assert.equal((await between.upgrade()).status, 0)
    await between.assertWhole()
    assert.deepEqual([await foldersOf(between.dataDir), await between.version()], [['db', 'db.15'], '17'])
  }
})
