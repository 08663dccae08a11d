import assert from 'node:assert/strict'
import { chmod, chown, lstat, mkdir, mkdtemp, readdir, rename, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, test } from 'node:test'
import { run } from '../command.ts'
import { exists } from '../exists.ts'
import { openCriuWorkspace } from '../criu/trial-workspace.ts'
import { criuSelfTest } from '../criu/self-test.ts'
import { diskPoolCheck } from '../disk/self-test.ts'
import { checkHost, type CheckReport } from './index.ts'
import { openScratch } from '../scratch.ts'

const usualTmpdir = tmpdir()
let folder: string
beforeEach(async () => {
  folder = await mkdtemp(join(usualTmpdir, 'atoll-host-check-'))
  // What the checks leave behind is seen here, whatever else runs on the machine.
  process.env['TMPDIR'] = folder
})
afterEach(async () => {
  process.env['TMPDIR'] = usualTmpdir
  await rm(folder, { recursive: true })
})

async function program(name: string, script: string): Promise<string> {
  const path = join(folder, name)
  await writeFile(path, `#!/bin/sh\n${script}\n`)
  await chmod(path, 0o755)
  return path
}

const says = (version: string) => `[ "$1" = --version ] && { echo 'Version: ${version}'; exit 0; }`

test('CRIU self-test: a missing CRIU and another program fail with a reason', async () => {
  const missing = await criuSelfTest(join(folder, 'nowhere'))
  assert.equal(missing.ok, false)
  assert.match(missing.reason ?? '', /nowhere/)
  assert.deepEqual(await criuSelfTest('/bin/true'), { ok: false, version: '', reason: '/bin/true is not CRIU' })
})

test('CRIU self-test: a failed dump is reported by the first cause in its log', async () => {
  const log = `echo 'Error (criu/a.c:1): exited, status=1
Error (criu/vdso.c:381): vdso: Unexpected rt vDSO area bounds
Error (criu/cr-dump.c:2): Dumping FAILED.' > "$5/dump.log"; exit 1`
  const criu = await program('criu', `${says('3.17.1')}\n${log}`)
  assert.deepEqual(await criuSelfTest(criu), {
    ok: false,
    version: '3.17.1',
    reason: 'dump failed: vdso: Unexpected rt vDSO area bounds (criu/vdso.c:381)',
  })
  assert.deepEqual(await readdir(folder), ['criu'])
})

test('CRIU self-test: a CRIU that exits 0 without a dump fails', async () => {
  const criu = await program('criu', `${says('9.9')}\nexit 0`)
  const result = await criuSelfTest(criu)
  assert.deepEqual(result, { ok: false, version: '9.9', reason: result.reason })
  assert.match(result.reason ?? '', /did not end/)
  assert.deepEqual(await readdir(folder), ['criu'])
})

test('CRIU workspace: the folder of a killed trial is removed, those of other users and links are not', async () => {
  // No process has number 0.
  const name = (what: string) => `/var/tmp/atoll-criu-0-1-${what}`
  const [abandoned, foreign, link] = [name('abandoned'), name('foreign'), name('link')]
  try {
    await mkdir(abandoned, { recursive: true })
    // Under its name only once it is theirs: other servers of this machine remove such folders too.
    const unnamed = await mkdtemp('/var/tmp/atoll-test-foreign-')
    await chown(unnamed, 65_534, 65_534)
    await rename(unnamed, foreign)
    await writeFile(join(folder, 'precious'), '')
    await symlink(folder, link)
    await using workspace = await openCriuWorkspace(undefined)
    assert.deepEqual([await exists(abandoned), await exists(workspace.path)], [false, true])
    assert.equal((await lstat(foreign)).uid, 65_534)
    assert.ok((await lstat(link)).isSymbolicLink())
    assert.deepEqual(await readdir(folder), ['precious'])
  } finally {
    for (const path of [abandoned, foreign, link]) await rm(path, { recursive: true, force: true })
  }
})

test('doctor: on a machine without images each check has a row, and each missing image has advice', async () => {
  const reports: CheckReport[] = []
  for await (const report of checkHost({ imageDir: join(folder, 'none'), dataDir: folder })) reports.push(report)
  const states = new Map(reports.map((report) => [report.name, report]))
  for (const name of ['base image', 'guest', 'agent', 'CRIU', 'idmapped overlay']) {
    assert.equal(states.get(name)?.state, 'missing', name)
    assert.match(states.get(name)?.advice ?? '', /npm run setup/, name)
  }
  for (const name of ['Node', 'cgroups', 'disk pool', 'nftables', 'links', 'dnsmasq']) {
    assert.equal(states.get(name)?.state, 'works', `${name}: ${states.get(name)?.found}`)
  }
  assert.deepEqual(
    reports.filter((report) => !report.required).map((report) => report.name),
    [
      '/run',
      'quarantine',
      "runc's fixes",
      'CRIU',
      'lazy memory',
      'AppArmor',
      'egress',
      'warm sandboxes',
      'OCI images',
      'gVisor (runsc)',
      'KVM',
      'Incus',
      'network',
      'own sizes',
      'disk rates',
    ],
  )
  const { state, found } = states.get('start') ?? {}
  assert.deepEqual([state, /no atoll-hostd in .*npm run setup/.test(found ?? '')], ['fails', true])
  assert.deepEqual(await readdir(folder), [])
})

test('scratch folder: it is not removed through a mount that stayed', async () => {
  const kept = join(folder, 'kept')
  await mkdir(kept)
  await writeFile(join(kept, 'image'), 'precious')
  let path = ''
  await assert.rejects(async () => {
    await using scratch = await openScratch(folder)
    path = scratch.path
    await mkdir(join(path, 'mounted'))
    await run(['mount', '--bind', kept, join(path, 'mounted')])
  }, /still mounted/)
  assert.deepEqual(await readdir(kept), ['image'])
  await run(['umount', join(path, 'mounted')])
})

test('disk pool: a file system that is nearly full fails the row, with what to do', async () => {
  const dataDir = join(folder, 'data')
  await mkdir(dataDir)
  await run(['mount', '-t', 'tmpfs', '-o', 'size=1g', 'tmpfs', dataDir])
  try {
    const check = () => diskPoolCheck.run({ dataDir, imageDir: folder })
    assert.equal((await check()).state, 'works')
    // Less than a sixteenth is left, which the trial itself still fits into.
    await run(['fallocate', '-l', `${965 * 2 ** 20}`, join(dataDir, 'filler')])
    const { state, found, advice = '' } = await check()
    assert.equal(state, 'fails')
    assert.match(found, /^\d\d MB free in /)
    assert.match(advice, /^with less than 64 MB the server refuses what makes more data: make room in /)
  } finally {
    // A mount namespace that was made meanwhile keeps the pool, and with it this.
    await run(['umount', '--lazy', dataDir])
  }
})
