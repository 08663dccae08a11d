/** The AppArmor profile of sandboxes, by the driver alone, where the kernel enforces it: on the machine of `machine.sh`. */
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { after, before, describe, test } from 'node:test'
import { promisify } from 'node:util'
import { apparmorCheck } from '../../src/runtime/oci/confinement.ts'
import { profileName } from '../../src/runtime/oci/apparmor.ts'
import type { RuntimeDriver } from '../../src/sandbox/ports/runtime-driver.ts'
import type { Guest } from '../../src/sandbox/ports/guest.ts'
import { imageDir } from '../support/images.ts'
import { knowing } from '../conformance/driver-known.ts'
import { makeRuncFixture, type RuncFixture } from '../conformance/driver-runc-host.ts'
import { freshId, python, shell, specOf, succeed } from '../conformance/driver-shell.ts'

const runFile = promisify(execFile)
const enforced = `${profileName} (enforce)`

describe('the AppArmor profile of sandboxes', () => {
  let fixture: RuncFixture
  let driver: RuntimeDriver
  const guest = (id: string): Guest => fixture.guest(driver, id)

  before(async () => {
    fixture = await makeRuncFixture()
    driver = fixture.makeDriver()
    await driver.open(await knowing(fixture))
  })

  after(async () => {
    await driver.close()
    await driver.open(await knowing(fixture))
    await driver.close()
    await fixture.dispose()
  })

  /** From inside, and for each process of its group as the host sees it. */
  async function assertConfined(id: string): Promise<void> {
    assert.equal(await succeed(guest(id), 'cat /proc/self/attr/current'), enforced)
    for (const pid of await fixture.membersOf(id)) {
      assert.equal((await readFile(`/proc/${pid}/attr/current`, 'utf8')).trim(), enforced)
    }
    // Nothing else refuses this: the file may be read by all.
    assert.match((await shell(guest(id), 'head -c 1 /proc/kallsyms')).stderr, /Permission denied/)
  }

  test('AppArmor: the profile is enforced after every kind of start', async () => {
    const result = await apparmorCheck.run({ imageDir, dataDir: fixture.names.dataDir })
    assert.deepEqual([result.state, result.found], ['works', `${profileName} is enforced`])
    const id = freshId('sb')
    await driver.create(specOf(id))
    await guest(id).spawn({ id: 'witness', argv: ['/bin/sleep', '3600'], envs: {} })
    await assertConfined(id)
    await driver.checkpoint(id, `cp-${id}`, 'full')
    const fork = freshId('sb')
    await driver.create(specOf(fork, { from: { checkpointId: `cp-${id}` } }))
    await assertConfined(fork)
    await driver.hibernate(id)
    await driver.wake(specOf(id))
    await assertConfined(id)
    await driver.restore(specOf(id), `cp-${id}`)
    await assertConfined(id)
    assert.equal((await guest(id).process('witness')).running, true)
    await driver.restart(specOf(id))
    await assertConfined(id)
    for (const one of [id, fork]) await driver.delete(one)
    await driver.deleteCheckpoint(`cp-${id}`)
  })

  test('AppArmor: tracing, signals, terminals, npm, python and git work inside a sandbox', async () => {
    const id = freshId('sb')
    await driver.create(specOf(id))
    const traced = `
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
child = os.fork()
if child == 0:
    signal.pause()
assert libc.ptrace(16, child, 0, 0) == 0, ctypes.get_errno()
os.waitpid(child, 0)
assert libc.ptrace(17, child, 0, 0) == 0
os.kill(child, signal.SIGTERM)
print(os.WTERMSIG(os.waitpid(child, 0)[1]))`
    assert.equal(await python(guest(id), traced), '15')
    const ordinary = `set -e; cd /root
      git init -q g; cd g; echo a > a; git add a; git -c user.name=a -c user.email=a@b commit -qm a; git log --format=%s
      npm --version >/dev/null; node -e 'require("http").createServer().listen(0,()=>process.exit())'
      python3 -c 'import pty; pty.spawn(["tty"])'; cat /proc/meminfo /proc/cpuinfo /sys/fs/cgroup/*.max >/dev/null 2>&1 || true
      echo 600 > /proc/self/oom_score_adj; echo 1 > /proc/self/clear_refs; ls /proc/1/fd >/dev/null; ps ax >/dev/null || true`
    assert.match(await succeed(guest(id), ordinary), /^a\n/)
    await driver.delete(id)
  })

  test('AppArmor: a reload of the host’s profiles, or the loss of this one, ends no sandbox, and later starts are confined', async () => {
    const id = freshId('sb')
    await driver.create(specOf(id))
    await runFile('systemctl', ['reload', 'apparmor'])
    assert.equal(await succeed(guest(id), 'echo on'), 'on')
    await driver.hibernate(id)
    // As a restart of the machine leaves it.
    await runFile('sh', ['-c', `printf %s "$1" >/sys/kernel/security/apparmor/.remove`, '-', profileName])
    await driver.wake(specOf(id))
    await assertConfined(id)
    await driver.delete(id)
  })

  test('AppArmor: memory that was saved without a profile, or under another, is restored', async () => {
    const id = freshId('sb')
    await driver.create(specOf(id))
    const pids = await fixture.membersOf(id)
    await runFile('sh', ['-c', `printf %s "$1" >/sys/kernel/security/apparmor/.remove`, '-', profileName])
    const [pid = 0] = pids
    assert.equal((await readFile(`/proc/${pid}/attr/current`, 'utf8')).trim(), 'unconfined')
    await driver.hibernate(id)
    await driver.wake(specOf(id))
    assert.equal(await succeed(guest(id), 'echo on'), 'on')
    await driver.restart(specOf(id))
    await assertConfined(id)
    await driver.delete(id)
  })
})
