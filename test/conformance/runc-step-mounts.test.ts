/** What a step of a build has mounted in its sandbox: caches, memory, scratch folders and secrets. */
import assert from 'node:assert/strict'
import { readdir, readFile, stat } from 'node:fs/promises'
import { describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import type { AttachedMount, MountSource } from '../../src/sandbox/ports/runtime-driver.ts'
import { Caches } from '../../src/sandbox/cache.ts'
import { Mounts } from '../../src/sandbox/mounts.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { refuses } from '../../src/lib/testing/refuses.ts'
import { roundsOf, someOf } from '../../src/lib/testing/thorough.ts'
import { useRunc } from './driver-runc-host.ts'
import { create, freshId, remove, shell, specOf, startProgram, startPython, succeed } from './driver-shell.ts'

const mebibyte = 1024 ** 2
const root = { mode: 0o755, uid: 0, gid: 0 }

describe('mounts for one step', () => {
  const runc = useRunc()
  const { guest } = runc

  const mounts = () => runc.driver.stepMounts ?? assert.fail('this driver mounts')
  const attach = (id: string, target: string, source: MountSource): Promise<AttachedMount> =>
    mounts().attach(id, target, source)
  const scratch = (id: string, target: string) => attach(id, target, { type: 'scratch', bytes: 64 * mebibyte })
  const tmpfs = (id: string, target: string, bytes = mebibyte) => attach(id, target, { type: 'tmpfs', bytes })
  const secret = (id: string, target: string, content = 'hidden', more = {}) =>
    attach(id, target, { type: 'secret', content: Buffer.from(content), mode: 0o400, uid: 0, gid: 0, ...more })
  const pool = (folder: string) => readdir(`${runc.fixture.names.poolDir}/${folder}`)
  /** The mounts of a sandbox, without those that it always has. */
  const mountsOf = async (id: string) => {
    const table = await readFile(`/proc/${await runc.fixture.pidOf(id)}/mountinfo`, 'utf8')
    return table
      .trimEnd()
      .split('\n')
      .map((line) => line.split(' ')[4] ?? '')
  }

  let caches = 0
  async function cache(owner = root): Promise<string> {
    const id = `ca-test-${(caches += 1)}`
    await mounts().makeCache(id, owner)
    await mounts().limitCache(id, 16 * mebibyte)
    return id
  }
  const asCache = (id: string, readOnly = false): MountSource => ({ type: 'cache', id, readOnly })

  test('processes: all but the guest end, also those that make others all the time', async () => {
    const id = await create(runc.driver)
    // Each of the chain makes the next and ends, so a list of them is old at once.
    const chain = 'next() { (next &) ; }; next'
    await succeed(guest(id), `setsid sleep 1000 >/dev/null 2>&1 & setsid sh -c '${chain}' >/dev/null 2>&1 & sleep 0.2`)
    await mounts().endProcesses(id)
    const left = await guest(id).systemProcesses()
    assert.deepEqual(
      left.filter(({ state }) => state !== 'zombie').map(({ pid }) => pid),
      [1],
    )
    await mounts().endProcesses(id)
    await remove(runc.driver, id)
    await refuses(mounts().endProcesses(id), 'unavailable')
  })

  test('cache: what one sandbox leaves another finds, and root of each owns it', async () => {
    const [one, other] = [await create(runc.driver), await create(runc.driver)]
    const id = await cache({ mode: 0o1770, uid: 1000, gid: 33 })
    const mount = await attach(one, '/var/cache/tool', asCache(id))
    assert.equal(await succeed(guest(one), 'stat -c "%a %u:%g" /var/cache/tool'), '1770 1000:33')
    await succeed(
      guest(one),
      'cd /var/cache/tool; printf "#!/bin/sh\\necho ran" > run; chmod +x run; chown 5:6 run; ./run',
    )
    const shared = await attach(other, '/cache', asCache(id, true))
    assert.equal(await succeed(guest(other), 'stat -c %u:%g /cache/run; /cache/run'), '5:6\nran')
    assert.notEqual((await shell(guest(other), 'touch /cache/b')).exitCode, 0)
    const flags = await succeed(guest(one), 'findmnt -n -o OPTIONS /var/cache/tool')
    assert.ok(flags.includes('nosuid') && flags.includes('nodev'), flags)
    for (const each of [mount, shared]) await each.detach()
    assert.notEqual((await shell(guest(one), 'test -e /var/cache/tool')).exitCode, 0)
    const [state] = (await mounts().listCaches('ca-')).filter((found) => found.id === id)
    assert.ok(state!.usedBytes > 0 && Date.now() - state!.lastUsedAt.getTime() < 60_000)
    // Its mode is that of the first.
    await mounts().makeCache(id, root)
    const again = await attach(other, '/cache', asCache(id))
    assert.equal(await succeed(guest(other), 'stat -c "%a" /cache; cat /cache/run | wc -l'), '1770\n1')
    await refuses(mounts().removeCache(id), 'conflict')
    await again.detach()
    await mounts().removeCache(id)
    await mounts().removeCache(id)
    await refuses(attach(one, '/cache', asCache(id)), 'conflict')
    await remove(runc.driver, one, other)
  })

  test('cache: a full one takes no more, and the disk of the sandbox does', async () => {
    const id = await create(runc.driver)
    const mount = await attach(id, '/cache', asCache(await cache()))
    const filled = await shell(guest(id), 'dd if=/dev/urandom of=/cache/big bs=1M count=40 conv=fsync')
    assert.match(filled.stderr, /quota exceeded/i)
    await succeed(guest(id), 'dd if=/dev/urandom of=/root/file bs=1M count=20 conv=fsync')
    await mount.detach()
    await remove(runc.driver, id)
  })

  test('cache: those of an organisation share its bound, a full one is told, and the oldest goes', async () => {
    const id = await create(runc.driver)
    const { driver } = runc
    const warn = (facts: object, message: string) => assert.fail(`${message} ${JSON.stringify(facts)}`)
    const log = { debug() {}, info() {}, warn, error: warn }
    const service = new Caches({ driver, cacheMb: 64, log })
    const use = async (_org: string, _id: string, work: (guest: never, sandbox: never) => Promise<never>) =>
      await work({} as never, { memoryMb: 256, diskMb: 256 } as never)
    const steps = new Mounts({ lifecycle: { use }, driver, caches: service })
    const lease = (key: string) => steps.attach('org', id, { type: 'cache', key, target: `/${key}` })
    const one = await lease('one')
    await succeed(guest(id), 'head -c 24M /dev/urandom > /one/big')
    assert.equal(await one.isFull(), false)
    const two = await lease('two')
    // Nothing has been flushed, and each may have half of what is left: 20 MB.
    const filled = await shell(guest(id), 'head -c 40M /dev/urandom > /two/big')
    assert.match(filled.stderr, /quota exceeded/i)
    assert.deepEqual([await two.isFull(), await one.isFull()], [true, false])
    const sizes = (await service.list('org')).map(({ sizeBytes }) => sizeBytes)
    assert.ok(sizes.reduce((sum, bytes) => sum + bytes, 0) <= 64 * mebibyte, String(sizes))
    await two.detach()
    await one.detach()
    await using three = await lease('three')
    assert.equal(await succeed(guest(id), 'ls -A /three'), '')
    await (await lease('four')).detach()
    await three.detach()
    // 24 and 20 MB are within three quarters of the bound, 24 and 30 are not.
    const again = await lease('two')
    assert.equal(await succeed(guest(id), 'ls /two'), 'big')
    await succeed(guest(id), 'head -c 10M /dev/urandom > /two/more')
    await again.detach()
    await (await lease('five')).detach()
    const lost = await lease('one')
    assert.equal(await succeed(guest(id), 'ls -A /one'), '')
    await lost.detach()
    await service.removeAll('org')
    assert.deepEqual(
      (await pool('caches')).filter((name) => !name.startsWith('ca-test')),
      [],
    )
    await remove(runc.driver, id)
  })

  test('tmpfs: it is in memory with its bound, programs run there, and it is charged to the sandbox', async () => {
    const id = await create(runc.driver)
    const mount = await tmpfs(id, '/build/tmp', 4 * mebibyte)
    assert.equal(await succeed(guest(id), 'stat -f -c %T /build/tmp; stat -c "%a %u" /build/tmp'), 'tmpfs\n1777 0')
    await succeed(guest(id), 'cd /build/tmp; cp /bin/true .; ln -s true link; ./link; chown 7 true')
    assert.match((await shell(guest(id), 'head -c 8M /dev/zero > /build/tmp/big')).stderr, /No space left/)
    await mount.detach()
    assert.notEqual((await shell(guest(id), 'test -e /build')).exitCode, 0)
    const large = await tmpfs(id, '/tmp', 1024 * mebibyte)
    const before = (await runc.driver.usage(id))!.memoryBytes
    await succeed(guest(id), 'head -c 64M /dev/zero > /tmp/big')
    assert.ok((await runc.driver.usage(id))!.memoryBytes - before > 48 * mebibyte)
    await large.detach()
    assert.ok((await runc.driver.usage(id))!.memoryBytes - before < 48 * mebibyte)
    await remove(runc.driver, id)
  })

  test('scratch: it is filled, shown in parts and sealed, and goes with its mount', async () => {
    const id = await create(runc.driver)
    const whole = await scratch(id, '/mnt/source')
    await succeed(
      guest(id),
      'cd /mnt/source; mkdir -p a/b; echo one > a/b/file; echo two > a/other; ln -s /etc link; mkfifo pipe',
    )
    const file = await attach(id, '/srv/go.mod', { type: 'part', of: whole, path: 'a/b/file', readOnly: true })
    const folder = await attach(id, '/srv/a', { type: 'part', of: whole, path: 'a', readOnly: false })
    assert.equal(await succeed(guest(id), 'cat /srv/go.mod; cat /srv/a/other'), 'one\ntwo')
    assert.notEqual((await shell(guest(id), 'echo > /srv/go.mod')).exitCode, 0)
    await succeed(guest(id), 'echo three > /srv/a/other')
    for (const path of ['link/passwd', 'link', 'pipe', '../data', 'none', '/etc']) {
      await refuses(attach(id, '/x', { type: 'part', of: whole, path, readOnly: true }), 'invalid_request')
    }
    await startPython(guest(id), 'writer', 'file = open("/mnt/source/held", "w"); print("ready", flush=True); input()')
    await refuses(whole.setReadOnly(), 'conflict')
    await guest(id).signal('writer', 9)
    await guest(id).process('writer', 10_000)
    await whole.setReadOnly()
    assert.match((await shell(guest(id), 'touch /mnt/source/x')).stderr, /Read-only/)
    assert.equal(await succeed(guest(id), 'cat /mnt/source/a/other'), 'three')
    for (const mount of [folder, file, whole, whole]) await mount.detach()
    assert.deepEqual(await pool('scratch'), [])
    assert.equal(
      await succeed(guest(id), 'ls -A /srv /mnt; find / -xdev -name held -o -xdev -name go.mod'),
      '/mnt:\n\n/srv:',
    )
    await refuses(attach(id, '/x', { type: 'part', of: whole, path: 'a', readOnly: true }), 'conflict')
    await remove(runc.driver, id)
  })

  test('secret: it is a file in memory with its owner, and nothing of it stays anywhere', async () => {
    const id = await create(runc.driver)
    const word = `word-${crypto.randomUUID()}`
    const mount = await secret(id, '/run/secrets/token', word, { mode: 0o440, uid: 1000, gid: 33 })
    assert.equal(await succeed(guest(id), 'stat -c "%a %u:%g %s" /run/secrets/token'), `440 1000:33 ${word.length}`)
    assert.equal(await succeed(guest(id), 'cat /run/secrets/token'), word)
    assert.equal(await succeed(guest(id), 'findmnt -n -o FSTYPE /run/secrets/token'), 'tmpfs')
    assert.match(await succeed(guest(id), 'findmnt -n -o OPTIONS /run/secrets/token'), /^ro,nosuid,nodev,noexec/)
    assert.match((await shell(guest(id), 'echo x > /run/secrets/token')).stderr, /Read-only/)
    const onHost = await readFile('/proc/self/mountinfo', 'utf8')
    assert.ok(!onHost.includes('secret'), 'no mount of the host has it')
    for (const pid of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
      const argv = await readFile(`/proc/${pid}/cmdline`, 'latin1').catch(() => '')
      assert.ok(!argv.includes(Buffer.from(word).toString('hex')) && !argv.includes(word), argv)
    }
    await mount.detach()
    assert.notEqual((await shell(guest(id), 'test -e /run/secrets')).exitCode, 0)
    // One over a file that there was, which comes back; empty ones; large ones.
    const over = await secret(id, '/etc/debian_version', 'mine')
    assert.equal(await succeed(guest(id), 'cat /etc/debian_version'), 'mine')
    await over.detach()
    assert.match(await succeed(guest(id), 'cat /etc/debian_version'), /^\d/)
    const program = await secret(id, '/run/program', '#!/bin/sh\necho ran', { mode: 0o755 })
    assert.equal(await succeed(guest(id), '/run/program'), 'ran')
    await program.detach()
    for (const bytes of [0, 4096, 1024 * 1024]) {
      const large = await secret(id, '/root/key', 'x'.repeat(bytes))
      assert.equal(await succeed(guest(id), 'wc -c < /root/key'), String(bytes))
      await large.detach()
    }
    await remove(runc.driver, id)
  })

  test('target: it leads where it leads inside, and nowhere else', async () => {
    const id = await create(runc.driver)
    await succeed(
      guest(id),
      'ln -s /srv /link; ln -s ../../../../../srv /up; ln -s /proc/1/root /magic; ln -s /proc /toproc; ln -s /.atoll /toguest; echo > /file; ln -s / /toroot',
    )
    for (const target of ['/link/one', '/up/one', '/toroot/srv/one']) {
      const mount = await tmpfs(id, target)
      assert.ok((await mountsOf(id)).includes('/srv/one'), target)
      await mount.detach()
      assert.equal(await succeed(guest(id), 'ls -A /srv'), '')
    }
    const own = [
      '/',
      '/proc',
      '/proc/sys',
      '/sys/fs/cgroup',
      '/dev/shm',
      '/.atoll',
      '/.atoll/run',
      '/toproc/x',
      '/toguest',
    ]
    for (const target of [...own, '/toroot', '/magic/srv/one', '/file', '/file/a']) {
      await refuses(tmpfs(id, target), 'invalid_request', undefined, target)
    }
    await refuses(secret(id, '/srv'), 'invalid_request')
    await refuses(secret(id, '/proc/kcore'), 'invalid_request')
    await refuses(tmpfs('sb-none', '/srv'), 'unavailable')
    assert.deepEqual(
      (await mountsOf(id)).filter((point) => ['/srv', '/file', '/x'].includes(point)),
      [],
    )
    await remove(runc.driver, id)
  })

  test('detach: it comes off under a process that holds it, in any order, and leaves what a step has put there', async () => {
    const id = await create(runc.driver)
    const kept = await cache()
    const outer = await attach(id, '/data', asCache(kept))
    const inner = await tmpfs(id, '/data/in/deep')
    const again = await attach(id, '/data', asCache(await cache()))
    await refuses(outer.detach(), 'conflict')
    await again.detach()
    await startProgram(guest(id), 'holder', '/bin/bash', '-c', 'cd /data/in/deep; echo ready; read line')
    await inner.detach()
    assert.equal(await succeed(guest(id), 'ls -A /data'), '')
    await outer.detach()
    assert.equal((await guest(id).process('holder')).running, true)
    assert.deepEqual(
      (await mountsOf(id)).filter((point) => point.startsWith('/data')),
      [],
    )
    const both = [await attach(id, '/data/a', asCache(kept)), await tmpfs(id, '/data/a/b')]
    await succeed(guest(id), 'echo > /data/file; touch /data/a/x')
    // The one below takes those in it along.
    for (const mount of both) await mount.detach()
    assert.equal(await succeed(guest(id), 'find /data'), '/data\n/data/file')
    await remove(runc.driver, id)
  })

  test('detach: what was made for a target is replaced by links, and nothing else is removed', async () => {
    const id = await create(runc.driver)
    await succeed(guest(id), 'mkdir -p /srv/empty /srv/w')
    const deep = await tmpfs(id, '/srv/w/x/y/z')
    await succeed(guest(id), 'mv /srv/w /srv/v; ln -s /srv /srv/w; mkdir /srv/x')
    await deep.detach()
    assert.equal(await succeed(guest(id), 'cd /srv; ls -d empty v x; ls -A v'), 'empty\nv\nx')
    const file = await secret(id, '/srv/v/key')
    await succeed(guest(id), 'mv /srv/v /srv/u; mkdir /srv/v; echo mine > /srv/v/key')
    await file.detach()
    assert.equal(await succeed(guest(id), 'cat /srv/v/key; ls -A /srv/u'), 'mine')
    await remove(runc.driver, id)
  })

  test('detach: root of the sandbox renames and replaces folders meanwhile, and no other mount comes off', async () => {
    const id = await create(runc.driver)
    const before = await mountsOf(id)
    await succeed(guest(id), 'mkdir -p /a/b /proc-like')
    assert.notEqual((await shell(guest(id), 'umount /proc/kcore')).exitCode, 0)
    const fixed = await tmpfs(id, '/a/b/c')
    const script = 'umount /a/b/c; umount -l /a/b/c; rmdir /a/b/c; mv /a/b/c /a/b/d; mount -t tmpfs x /a/b/c'
    await shell(guest(id), script)
    assert.ok((await mountsOf(id)).includes('/a/b/c'))
    await succeed(guest(id), 'mv /a /z; ln -s /proc /a')
    await fixed.detach()
    assert.deepEqual(await mountsOf(id), before)
    await succeed(guest(id), 'rm /a; mv /z /a')
    const racer = `
import os
print("ready", flush=True)
while True:
    os.rename("/a", "/z")
    os.symlink("/proc", "/a")
    os.unlink("/a")
    os.rename("/z", "/a")`
    await startPython(guest(id), 'racer', racer)
    let attached = 0
    for (let round = 0; round < 40; round += 1) {
      const mount = await tmpfs(id, '/a/b/kcore').catch(() => undefined)
      if (mount === undefined) continue
      attached += 1
      await eventually(() =>
        mount.detach().then(
          () => true,
          () => false,
        ),
      )
    }
    assert.ok(attached > 5, String(attached))
    await guest(id).signal('racer', 9)
    await guest(id).process('racer', 10_000)
    assert.deepEqual(await mountsOf(id), before)
    await remove(runc.driver, id)
  })

  test('sandbox: with a mount it is neither saved nor restored, and without it nothing of it is in a checkpoint', async () => {
    const id = await create(runc.driver)
    const early = freshId('cp')
    await runc.driver.checkpoint(id, early, 'disk_only')
    const mounted = [await scratch(id, '/in/scratch'), await tmpfs(id, '/in/tmp'), await secret(id, '/in/secret')]
    await succeed(guest(id), 'echo > /in/scratch/file; echo > /in/tmp/file')
    const full = runc.driver.capabilities.fullCheckpoints
    for (const kind of full ? (['disk_only', 'full'] as const) : (['disk_only'] as const)) {
      await refuses(runc.driver.checkpoint(id, freshId('cp'), kind), 'conflict', /has \/in\/scratch mounted/)
    }
    await refuses(runc.driver.hibernate(id), 'conflict')
    await refuses(runc.driver.restore(specOf(id), early), 'conflict')
    for (const mount of mounted.toReversed()) await mount.detach()
    const checkpoint = freshId('cp')
    await runc.driver.checkpoint(id, checkpoint, full ? 'full' : 'disk_only')
    const fork = await create(runc.driver, { from: { checkpointId: checkpoint } })
    assert.notEqual((await shell(guest(fork), 'test -e /in')).exitCode, 0)
    await remove(runc.driver, id, fork, checkpoint, early)
  })

  test('sandbox: its end, its restart and its removal end its mounts', async () => {
    const id = await create(runc.driver)
    const kept = await cache()
    const [first, second] = [await scratch(id, '/one'), await attach(id, '/two', asCache(kept))]
    const exited = Promise.withResolvers<string>()
    runc.driver.onExit(({ sandboxId }) => exited.resolve(sandboxId))
    await runc.fixture.crash(id)
    assert.equal(await exited.promise, id)
    await refuses(tmpfs(id, '/x'), 'unavailable')
    await runc.driver.wake(specOf(id))
    assert.deepEqual(
      (await mountsOf(id)).filter((point) => ['/one', '/two'].includes(point)),
      [],
    )
    const checkpoint = freshId('cp')
    await runc.driver.checkpoint(id, checkpoint, 'disk_only')
    for (const mount of [second, first]) await mount.detach()
    assert.deepEqual(await pool('scratch'), [])
    const late = await scratch(id, '/one')
    await tmpfs(id, '/one/two', 512 * mebibyte)
    await startPython(guest(id), 'holder', 'import os; os.chdir("/one"); print("ready", flush=True); input()')
    await runc.driver.restart(specOf(id))
    await late.detach()
    await scratch(id, '/one')
    const eater = await attach(id, '/two', asCache(kept))
    await shell(guest(id), 'head -c 2G /dev/zero > /dev/shm/big').catch(() => undefined)
    await runc.driver.delete(id)
    await eater.detach()
    assert.deepEqual(await pool('scratch'), [])
    await mounts().removeCache(kept)
    await remove(runc.driver, id, checkpoint)
  })

  test('server: killed at any moment it leaves no scratch folder and no half of a cache', async () => {
    const id = await create(runc.driver)
    const made = await cache()
    await succeedIn(id, made)
    await runc.driver.close()
    const isMounted = async () => (await mountsOf(id)).some((point) => point.startsWith('/victim'))
    const moments = someOf([0, 20, 60, 150, 300, 500])
    let refused = 0
    for (let round = 0; round < moments.length || refused === 0; round += 1) {
      assert.ok(round < moments.length + 5, 'a victim leaves a mount')
      const victim = await runc.fixture.startVictim({ sandboxIds: [id], mounting: id })
      const afterMs = moments[round]
      await (afterMs === undefined ? eventually(isMounted) : sleep(afterMs))
      await victim.kill()
      const report = await runc.reopen({ sandboxIds: [id] })
      assert.deepEqual(report.running, [id])
      assert.deepEqual(await pool('scratch'), [])
      // What the dead server has mounted there is not saved.
      if (await isMounted()) {
        await refuses(runc.driver.checkpoint(id, freshId('cp'), 'disk_only'), 'conflict')
        refused += 1
      }
      for (const name of await pool('caches')) {
        assert.ok(name.startsWith('ca-'), name)
        assert.ok((await stat(`${runc.fixture.names.poolDir}/caches/${name}/data`)).isDirectory())
      }
      await runc.driver.restart(specOf(id))
      const again = await attach(id, '/again', asCache(made))
      assert.equal(await succeed(guest(id), 'cat /again/file'), 'kept')
      await again.detach()
      await runc.driver.close()
    }
    await runc.reopen({ sandboxIds: [id] })
    for (const name of await pool('caches')) await mounts().removeCache(name)
    await remove(runc.driver, id)

    async function succeedIn(sandboxId: string, cacheId: string): Promise<void> {
      const mount = await attach(sandboxId, '/again', asCache(cacheId))
      await succeed(guest(sandboxId), 'echo kept > /again/file; sync')
      await mount.detach()
    }
  })

  test('hostd: killed in the middle, a step fails or has its mount, and nothing can be saved with one that nobody knows', async () => {
    const id = await create(runc.driver)
    const before = await mountsOf(id)
    const hostd = async () => {
      for (const pid of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
        const argv = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')
        if (argv.includes(`serve\0--socket\0${runc.fixture.names.runDir}`)) return Number(pid)
      }
      return assert.fail('hostd runs')
    }
    for (let round = 0; round < roundsOf(3, 6); round += 1) {
      const pid = await hostd()
      const attached = secret(id, '/run/secrets/a').catch((error: unknown) => error)
      await sleep(round)
      process.kill(pid, 'SIGKILL')
      const mount = await attached
      if (!(mount instanceof Error))
        await eventually(() =>
          (mount as AttachedMount).detach().then(
            () => true,
            () => false,
          ),
        )
      const left = (await mountsOf(id)).length > before.length
      if (left) await refuses(runc.driver.checkpoint(id, freshId('cp'), 'disk_only'), 'conflict')
      await runc.driver.restart(specOf(id))
      assert.equal((await mountsOf(id)).length, before.length)
    }
    await remove(runc.driver, id)
  })
})
