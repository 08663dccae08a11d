/** A data directory that was closed, moved to another path, and opened there with another image folder and another subnet. */
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { chmod, glob, mkdir, mkdtemp, readFile, realpath, rename, rm, symlink, unlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { promisify } from 'node:util'
import { refuses } from '../../src/lib/testing/refuses.ts'
import { createGuest } from '../../src/runtime/guest-client/index.ts'
import { createOciDriver, ociRuntimes } from '../../src/runtime/index.ts'
import { recordedIds } from '../../src/runtime/host/records.ts'
import type { RuntimeDriver } from '../../src/sandbox/ports/runtime-driver.ts'
import { imageDir } from '../support/images.ts'
import { claimSubnet } from './subnets.ts'
import { askWitness, create, freshId, specOf, startWitness, succeed } from './driver-shell.ts'

const runFile = promisify(execFile)
const poolBytes = 2 * 1024 ** 3
const { cidr: subnetBefore } = await claimSubnet()
/** Its addresses have fewer digits. */
const subnetAfter = '10.9.16.0/20'

/** Holds files of the host and of the image open, maps one, watches folders of the image and counts what it sees there. */
const witness = `
import ctypes, mmap, os
held = [open(path) for path in ("/etc/resolv.conf", "/etc/hosts", "/etc/profile", "/etc/debian_version")]
library = open("/usr/bin/python3", "rb")
mapped = mmap.mmap(library.fileno(), 0, prot=mmap.PROT_READ)
libc = ctypes.CDLL(None)
watch = libc.inotify_init1(os.O_NONBLOCK)
for folder in (b"/etc", b"/usr/local", b"/workspace"):
    assert libc.inotify_add_watch(watch, folder, 0x100) >= 0, folder
events = 0
def answer():
    global events
    try: events += len(os.read(watch, 65536)) // 32
    except BlockingIOError: pass
    held[3].seek(0)
    return b"%d %s %s" % (events, mapped[:4].hex().encode(), held[3].read(4).encode())`

describe('a data directory that is moved', () => {
  let root: string
  let driver: RuntimeDriver
  const [source, slept, onLayer] = [freshId('sb'), freshId('sb'), freshId('sb')]
  const [full, disk] = [freshId('cp'), freshId('cp')]
  const guest = (id: string) => createGuest((signal) => driver.dial(id, signal))
  const open = async (name: string, { images, subnet, isNew }: { images: string; subnet: string; isNew?: boolean }) => {
    const options = { dataDir: `${root}/${name}`, imageDir: `${root}/${images}`, subnet, diskPoolBytes: poolBytes }
    driver = createOciDriver({ runtime: ociRuntimes.runc, ...options })
    const nothing = { sandboxIds: [], checkpointIds: [] }
    const known = isNew === true ? nothing : { sandboxIds: [slept, onLayer], checkpointIds: [full, disk] }
    return driver.open({ ...known, abandoned: nothing })
  }

  /** Changes folders and files of the image, so that the overlay of the disk remembers where the files below it lay. */
  const startChanged = async (id: string) => {
    await succeed(guest(id), 'echo mine >> /etc/profile; mkdir /etc/mine; echo x > /usr/local/mine')
    await succeed(guest(id), 'ln /usr/bin/rg /usr/bin/rg2; chmod 700 /usr/share/doc')
    await startWitness(guest(id), witness)
  }
  const isChanged = async (id: string) => {
    assert.equal(
      await succeed(guest(id), 'tail -n 1 /etc/profile; cat /usr/local/mine; test /usr/bin/rg -ef /usr/bin/rg2'),
      'mine\nx',
    )
    // Folders that both hold show what both hold.
    await succeed(guest(id), 'test -s /etc/passwd -a -d /etc/mine -a -x /usr/local/bin/node -a -d /usr/share/doc/bash')
    assert.equal(await succeed(guest(id), 'echo more >> /etc/passwd; tail -n 1 /etc/passwd'), 'more')
  }

  before(async () => {
    root = await realpath(await mkdtemp(`${tmpdir()}/atoll-moved-`))
    await chmod(root, 0o711)
    for (const folder of ['earlier', 'later']) await mkdir(`${root}/${folder}`)
    for (const name of ['base', 'guest', 'hostd', 'criu']) {
      const real = await realpath(`${imageDir}/${name}`)
      const target = basename(real)
      await symlink(real, `${root}/earlier/${target}`)
      if (name === 'base' || name === 'guest')
        await runFile('cp', ['-a', '--reflink=auto', real, `${root}/later/${target}`])
      else await symlink(real, `${root}/later/${target}`)
      for (const folder of ['earlier', 'later']) await symlink(target, `${root}/${folder}/${name}`)
    }
    await open('before', { images: 'earlier', subnet: subnetBefore, isNew: true })
    await driver.create(specOf(source))
    await startChanged(source)
    await driver.checkpoint(source, full, 'full')
    await driver.checkpoint(source, disk, 'disk_only')
    await driver.create(specOf(slept))
    await startChanged(slept)
    await driver.create(specOf(onLayer, { from: { checkpointId: full } }))
    for (const id of [slept, onLayer]) {
      await succeed(guest(id), 'echo own > /etc/own; echo own >> /etc/bash.bashrc; mkdir /usr/share/own')
      await driver.hibernate(id)
    }
    await driver.delete(source)
    await driver.close()
    await rename(`${root}/before`, `${root}/after`)
  })

  after(async () => {
    await driver.close()
    const all = { sandboxIds: await recordedIds(`${root}/after/sandboxes`), checkpointIds: [full, disk] }
    await driver.open({ sandboxIds: [], checkpointIds: [], abandoned: all })
    await driver.close()
    await rm(root, { recursive: true })
  })

  test('moved data: records name images and no path', async () => {
    const files = await Array.fromAsync(glob(`${root}/after/{sandboxes,checkpoints}/*`))
    assert.equal(files.length, 4)
    for (const file of files) assert.doesNotMatch(await readFile(file, 'utf8'), /"\//)
  })

  test('moved data: sandboxes wake and checkpoints fork with their memory', async () => {
    const report = await open('after', { images: 'later', subnet: subnetAfter })
    assert.deepEqual(report.dormant.toSorted(), [slept, onLayer].toSorted())
    for (const id of [slept, onLayer]) {
      await driver.wake(specOf(id))
      await isChanged(id)
      assert.equal(
        await succeed(guest(id), 'cat /etc/own; tail -n 1 /etc/bash.bashrc; ls -d /usr/share/own'),
        'own\nown\n/usr/share/own',
      )
      assert.match(await askWitness(guest(id)), /^\d+ \d+ 7f454c46 12\.\d$/)
    }
    const fork = await create(driver, { from: { checkpointId: full } })
    const diskFork = await create(driver, { from: { checkpointId: disk } })
    for (const id of [fork, diskFork]) await isChanged(id)
    const [turns = 0, events = 0] = (await askWitness(guest(fork))).split(' ').map(Number)
    await succeed(guest(fork), 'echo > /etc/new; echo > /usr/local/new; echo > /workspace/new')
    const [later, seen = 0] = (await askWitness(guest(fork))).split(' ').map(Number)
    assert.deepEqual([later, seen - events], [turns + 1, 3], 'its watches see what is made')
    const mounts = await succeed(guest(fork), 'cat /proc/self/mountinfo')
    assert.ok(mounts.includes(`${root}/later/guest-`), mounts)
  })

  test('missing image: the error names it, running sandboxes go on, and its return repairs all', async () => {
    await driver.hibernate(slept)
    const name = basename(await realpath(`${root}/later/base`))
    await rename(`${root}/later/${name}`, `${root}/away`)
    // New sandboxes start from another one.
    await symlink(await realpath(`${imageDir}/base`), `${root}/later/base-other`)
    await unlink(`${root}/later/base`)
    await symlink('base-other', `${root}/later/base`)
    const words = new RegExp(`image ${name} is not in ${root}/later: `)
    await refuses(driver.wake(specOf(slept)), 'unavailable', words)
    for (const checkpointId of [full, disk]) {
      await refuses(create(driver, { from: { checkpointId } }), 'unavailable', words)
      await refuses(driver.restore(specOf(onLayer), checkpointId), 'unavailable', words)
    }
    await refuses(driver.restart(specOf(onLayer)), 'unavailable', words)
    assert.match(await askWitness(guest(onLayer)), /7f454c46/, 'its processes have gone on')
    await rename(`${root}/away`, `${root}/later/${name}`)
    await driver.wake(specOf(slept))
    await isChanged(slept)
    assert.match(await askWitness(guest(slept)), /7f454c46/)
  })
})
