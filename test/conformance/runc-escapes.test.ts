/** Ways out of a sandbox that were found in runc, tried with images and from inside. `docs/operate/security.md` names the advisory of each. */
import assert from 'node:assert/strict'
import { lstat, mkdir, mkdtemp, readdir, readFile, realpath, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { after, before, describe, test } from 'node:test'
import { isServiceError } from '../../src/errors.ts'
import { refuses } from '../../src/lib/testing/refuses.ts'
import { imageOf, ociArchiveOf, tarOf, type TarEntry } from '../support/oci-image.ts'
import { useRunc } from './driver-runc-host.ts'
import { create, freshId, remove, shell, specOf, succeed } from './driver-shell.ts'

/** Settings of the host that an escape would aim at. */
const settings = ['core_pattern', 'modprobe', 'hostname', 'sysrq', 'poweroff_cmd'].map(
  (name) => `/proc/sys/kernel/${name}`,
)
const devices = ['/dev/null', '/dev/zero', '/dev/ptmx', '/dev/console', '/dev/tty']

describe('ways out of a runc sandbox', () => {
  const runc = useRunc()
  const { guest } = runc
  /** A folder of the host, with what runc would remove or write behind a link. */
  let decoy: string
  let untouched: unknown

  before(async () => {
    decoy = await realpath(await mkdtemp(join(tmpdir(), 'atoll-decoy-')))
    for (const name of ['ptmx', 'null', 'hosts', 'secret']) await writeFile(join(decoy, name), `${name} of the host\n`)
    for (const name of ['pts', 'shm', 'fd']) await mkdir(join(decoy, name))
    untouched = await hostState(decoy)
  })
  after(() => rm(decoy, { recursive: true }))

  const isUntouched = async (tried: string) => assert.deepEqual(await hostState(decoy), untouched, tried)
  const link = (path: string, target: string): TarEntry => ({ path, type: 'link', target })

  /** An image of links alone, which starts, as its first process is the host's, or is refused with words. */
  const tryImage = async (tried: string, entries: TarEntry[]) => {
    const { driver } = runc
    const cp = freshId('cp')
    const archive = Readable.from([ociArchiveOf(imageOf([tarOf(entries)]))])
    try {
      await driver.importImage!(cp, { archive })
      const id = await create(driver, { from: { checkpointId: cp } })
      await isUntouched(tried)
      await driver.hibernate(id)
      await driver.wake(specOf(id))
      const fork = freshId('cp')
      await driver.checkpoint(id, fork, 'full')
      const other = await create(driver, { from: { checkpointId: fork } })
      await remove(driver, id, other, fork)
    } catch (error) {
      assert.ok(
        isServiceError(error, 'invalid_request') || isServiceError(error, 'conflict'),
        `${tried}: ${String(error)}`,
      )
    }
    await isUntouched(tried)
    await driver.deleteCheckpoint(cp)
  }

  for (const path of ['dev', 'proc', 'sys', 'run', 'etc', '.atoll', 'tmp', 'var', 'workspace']) {
    test(`image: /${path} is a link, to a folder of the host and above the root`, async () => {
      await tryImage(path, [link(path, decoy)])
      await tryImage(path, [link(path, `../../../../../../..${decoy}`)])
    })
  }

  test('image: what the runtime binds or makes in /dev and /etc is a link, also behind another name', async () => {
    const names = [
      'dev/null',
      'dev/pts',
      'dev/console',
      'dev/ptmx',
      'dev/shm',
      'etc/hosts',
      'etc/resolv.conf',
      'etc/machine-id',
    ]
    for (const name of names) await tryImage(name, [link(name, join(decoy, name.split('/')[1]!))])
    for (const name of ['hosts', 'resolv.conf', 'hostname', 'machine-id']) {
      const entries = [
        { path: 'usr', type: 'folder' } as const,
        { path: 'usr/etc', type: 'folder' } as const,
        link(`usr/etc/${name}`, join(decoy, 'hosts')),
        link('etc', 'usr/etc'),
      ]
      await tryImage(`etc, ${name}`, entries)
    }
    const devFile = [{ path: 'dev/null', content: 'no device' }]
    await tryImage('dev/null is a file', devFile)
  })

  test('disk: a link at /dev, which nobody can make from inside, is refused before the runtime follows it', async () => {
    const { driver, fixture } = runc
    const id = await create(driver)
    await driver.hibernate(id)
    const dev = `${fixture.names.poolDir}/sandboxes/${id}/upper/dev`
    await rm(dev, { recursive: true, force: true })
    await symlink(decoy, dev)
    for (const start of [() => driver.wake(specOf(id)), () => driver.restart(specOf(id))]) {
      await refuses(start(), 'conflict', /no folder at \/dev, where the runtime mounts/)
      await isUntouched('a link at /dev')
    }
    await rm(dev)
    await driver.wake(specOf(id))
    await remove(driver, id)
  })

  test('inside: mount points, devices and masks cannot be moved, removed or replaced, and stay so over restarts and forks', async () => {
    const { driver } = runc
    const id = await create(driver)
    const tries = [
      'rm -f /dev/null',
      'mv /dev /old',
      'mv /dev/pts /old',
      'umount /dev/null',
      'umount -l /dev',
      'umount /proc/keys',
      'rmdir /dev',
      'mv /proc /old',
      'mknod /dev/sda b 8 0 && cat /dev/sda',
      'mount --bind /dev/zero /dev/null',
      'mount -t proc proc /mnt',
      'unshare --mount --map-root-user umount /proc/keys',
      'unshare --mount --map-root-user umount -l /dev',
    ]
    const hidden =
      'for name in keys timer_list kcore sched_debug interrupts; do [ ! -e /proc/$name ] || head -c 1 /proc/$name; done'
    const stays = async (one: string, when: string) => {
      for (const command of tries) {
        const { exitCode } = await shell(guest(one), command)
        assert.notEqual(exitCode, 0, `${command}, ${when}`)
      }
      assert.equal(await succeed(guest(one), hidden), '', when)
      assert.equal(await succeed(guest(one), 'stat -c %t:%T /dev/null'), '1:3', when)
      await isUntouched(when)
    }
    await stays(id, 'at first')
    // What can be replaced in its own file system.
    await succeed(
      guest(id),
      `ln -sfn ${decoy} /dev/console 2>/dev/null; ln -sfn /proc/sys/kernel/core_pattern /dev/fd2; ln -sfn ${decoy} /root/dev; true`,
    )
    await driver.hibernate(id)
    await driver.wake(specOf(id))
    await stays(id, 'after a wake')
    await driver.restart(specOf(id))
    await stays(id, 'after a restart')
    const cp = freshId('cp')
    await driver.checkpoint(id, cp, 'full')
    const fork = await create(driver, { from: { checkpointId: cp } })
    await stays(fork, 'in a fork')
    await remove(driver, id, fork, cp)
  })

  test('inside: no setting of the host can be written, by any name', async () => {
    const { driver } = runc
    const id = await create(driver)
    for (const path of [
      ...settings,
      '/proc/sysrq-trigger',
      '/proc/1/attr/exec',
      '/sys/kernel/uevent_helper',
      '/proc/irq/0/smp_affinity',
    ]) {
      for (const name of [path, `/proc/self/root${path}`, `/proc/1/root${path}`, `/proc/self/cwd${path}`]) {
        const { exitCode } = await shell(guest(id), `echo owned > ${name}`)
        assert.notEqual(exitCode, 0, name)
      }
    }
    // Its own name is its own.
    assert.equal(await succeed(guest(id), 'hostname'), id)
    await isUntouched('settings')
    await remove(driver, id)
  })

  test('inside: a working directory of /proc/self/fd/N leads to no folder of the host', async () => {
    const { driver } = runc
    const id = await create(driver)
    const up = '../'.repeat(12)
    for (let number = 0; number < 40; number += 1) {
      for (const owner of ['self', '1', 'thread-self']) {
        const request = {
          id: `fd-${owner}-${number}`,
          argv: ['/bin/sh', '-c', `cat ./secret ${up}${decoy.slice(1)}/secret; true`] as [string, ...string[]],
          envs: { PATH: '/usr/bin:/bin' },
          cwd: `/proc/${owner}/fd/${number}`,
        }
        try {
          const { output } = await guest(id).run(request, { waitMs: 10_000, bytesMax: 4096 })
          assert.doesNotMatch(String(output?.stdout), /of the host/, request.cwd)
        } catch (error) {
          assert.ok(isServiceError(error), String(error))
        }
      }
    }
    await remove(driver, id)
  })
})

/** What an escape would change: the decoy, settings of the kernel, and the host's own devices. */
async function hostState(decoy: string): Promise<unknown> {
  const names = (await readdir(decoy, { recursive: true })).toSorted()
  const entries = await Promise.all(
    names.map(async (name) => {
      const { mode, uid, nlink } = await lstat(join(decoy, name))
      return [name, mode, uid, nlink]
    }),
  )
  const texts = await Promise.all(
    ['ptmx', 'null', 'hosts', 'secret'].map((name) => readFile(join(decoy, name), 'utf8')),
  )
  const values = await Promise.all(settings.map((path) => readFile(path, 'utf8').catch(() => 'none')))
  const nodes = await Promise.all(
    devices.map(async (path) => {
      const found = await lstat(path).catch(() => undefined)
      return [path, found?.mode, found?.uid, found?.rdev]
    }),
  )
  return { entries, texts, values, nodes }
}
