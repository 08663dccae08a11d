/** Volumes: folders that outlive sandboxes, with a size, snapshots and clones. */
import assert from 'node:assert/strict'
import type { RuntimeDriver, SandboxVolume } from '../../src/sandbox/ports/runtime-driver.ts'
import { refuses } from '../../src/lib/testing/refuses.ts'
import type { DriverUnderTest } from './driver.ts'
import {
  create,
  driverTests,
  freshId,
  memoryTests,
  python,
  remove,
  shell,
  specOf,
  startPython,
  succeed,
} from './driver-shell.ts'

const path = '/data/volume'
const sizeMb = 64

async function makeVolume(driver: RuntimeDriver, from?: string): Promise<string> {
  const id = freshId('vol')
  await driver.createVolume({ id, sizeMb, ...(from === undefined ? {} : { from }) })
  return id
}

function at(id: string, more: Partial<SandboxVolume> = {}): { volumes: SandboxVolume[] } {
  return { volumes: [{ id, path, readOnly: false, ...more }] }
}

/** Counts in memory, and appends each line of its input to a file of the volume that it keeps open. */
const counter = `
import sys
file = open("${path}/log", "a")
print("ready", flush=True)
for count, line in enumerate(sys.stdin):
    file.write("%d %s" % (count, line))
    file.flush()
    print(count, flush=True)`

export function volumeConformance(under: () => DriverUnderTest): void {
  const test = driverTests(under)
  const testMemory = memoryTests(under)

  test('volumes: what one sandbox writes outlives it, and root of another owns it', async ({ driver, guest }) => {
    const volume = await makeVolume(driver)
    const writer = await create(driver, at(volume))
    await succeed(guest(writer), `echo one > ${path}/file && chown 1000:1000 ${path}/file && mkdir ${path}/folder`)
    await driver.delete(writer)
    const other = await create(driver, at(volume))
    assert.equal(
      await succeed(guest(other), `stat -c %u:%g ${path}/file ${path}/folder ${path}`),
      '1000:1000\n0:0\n0:0',
    )
    assert.equal(await succeed(guest(other), `chown 0:0 ${path}/file && cat ${path}/file`), 'one')
    await remove(driver, other, volume)
  })

  test('volumes: readers cannot write, no device opens and no setuid program gains', async ({ driver, guest }) => {
    const volume = await makeVolume(driver)
    const writer = await create(driver, at(volume))
    await succeed(guest(writer), `echo one > ${path}/file`)
    const reader = await create(driver, at(volume, { readOnly: true }))
    assert.equal(await succeed(guest(reader), `cat ${path}/file`), 'one')
    const tries = ['touch', 'rm', 'mkdir'].map((name) => `${name} ${path}/file`)
    const more = ['mount -o remount,rw,bind', 'umount'].map((command) => `${command} ${path} && touch ${path}/file`)
    for (const script of [...tries, ...more]) assert.notEqual((await shell(guest(reader), script)).exitCode, 0, script)
    await succeed(guest(writer), `echo two > ${path}/file`)
    assert.equal(await succeed(guest(reader), `cat ${path}/file`), 'two')
    for (const id of [writer, reader]) {
      const flags = await succeed(guest(id), `findmnt -n -o OPTIONS ${path}`)
      assert.ok(flags.includes('nosuid') && flags.includes('nodev'), flags)
    }
    await remove(driver, writer, reader, volume)
  })

  test('volumes: a full one takes no more, and its sandbox, its clones and others write on', async ({
    driver,
    guest,
  }) => {
    const [volume, other] = [await makeVolume(driver), await makeVolume(driver)]
    const volumes = [...at(volume).volumes, ...at(other, { path: '/other' }).volumes]
    const id = await create(driver, { volumes })
    const filled = await shell(guest(id), `dd if=/dev/urandom of=${path}/big bs=1M count=100 conv=fsync`)
    assert.notEqual(filled.exitCode, 0)
    assert.match(filled.stderr, /quota exceeded/i)
    await succeed(
      guest(id),
      'dd if=/dev/urandom of=/root/file bs=1M count=8 conv=fsync && echo kept > /other/file && sync',
    )
    const state = await driver.volumeState(volume)
    assert.ok(state!.usedBytes > 32 * 1024 ** 2 && state!.usedBytes <= sizeMb * 1024 ** 2, String(state?.usedBytes))
    await succeed(guest(id), `rm ${path}/big && sync && echo again > ${path}/file && sync`)
    await remove(driver, id, volume, other)
  })

  test('volumes: nothing without a limit can be made in one', async ({ driver, guest }) => {
    const volume = await makeVolume(driver)
    const id = await create(driver, at(volume))
    const tried = await python(
      guest(id),
      `
import fcntl, os, struct
folder = os.open("${path}", os.O_RDONLY)
def ask(request, number, name):
    try:
        fcntl.ioctl(folder, request, bytearray(struct.pack("q", number) + name.ljust(4088, b"\\0")), True)
        print(name.decode(), "made")
    except OSError as error: print(name.decode(), error.errno)
ask(0x5000940e, 0, b"subvolume")
ask(0x50009401, folder, b"snapshot")`,
    )
    assert.equal(tried, 'subvolume 1\nsnapshot 1')
    const clone = `echo a > ${path}/a && cp --reflink=always ${path}/a ${path}/b && cat ${path}/b && ls ${path}`
    assert.equal(await succeed(guest(id), clone), 'a\na\nb')
    await remove(driver, id, volume)
  })

  test('volumes: snapshots and clones are of one moment, and go their own ways', async ({ driver, guest }) => {
    const volume = await makeVolume(driver)
    const id = await create(driver, at(volume))
    await succeed(guest(id), `echo one > ${path}/file`)
    const snapshot = freshId('vol')
    await driver.snapshotVolume(volume, snapshot)
    await succeed(guest(id), `echo two > ${path}/file`)
    const [old, now] = [await makeVolume(driver, snapshot), await makeVolume(driver, volume)]
    await driver.deleteVolume(snapshot)
    const volumes = [...at(old, { path: '/old' }).volumes, ...at(now, { path: '/now' }).volumes]
    const other = await create(driver, { volumes })
    assert.equal(await succeed(guest(other), 'cat /old/file /now/file'), 'one\ntwo')
    await succeed(guest(other), 'echo three > /old/file && dd if=/dev/zero of=/now/big bs=1M count=4 conv=fsync')
    assert.notEqual((await shell(guest(other), 'head -c 100M /dev/urandom > /old/big && sync')).exitCode, 0)
    assert.equal(await succeed(guest(id), `cat ${path}/file; ls ${path}`), 'two\nfile')
    await refuses(driver.createVolume({ id: volume, sizeMb }), 'conflict')
    await refuses(driver.createVolume({ id: freshId('vol'), sizeMb, from: snapshot }), 'unavailable')
    assert.equal(await driver.volumeState(snapshot), undefined)
    await remove(driver, id, other, volume, old, now, volume)
  })

  test('volumes: a checkpoint does not contain them, and its fork starts with others', async ({ driver, guest }) => {
    const [volume, other] = [await makeVolume(driver), await makeVolume(driver)]
    const id = await create(driver, at(volume))
    await succeed(guest(id), `echo inside > ${path}/file && echo disk > /root/file`)
    const checkpoint = freshId('cp')
    await driver.checkpoint(id, checkpoint, 'disk_only')
    const bare = await create(driver, { from: { checkpointId: checkpoint } })
    assert.equal(await succeed(guest(bare), `cat /root/file; ls ${path}`), 'disk')
    const fork = await create(driver, { ...at(other), from: { checkpointId: checkpoint } })
    assert.equal(await succeed(guest(fork), `ls ${path}`), '')
    await remove(driver, id, bare, fork, checkpoint, volume, other)
  })

  testMemory('volumes: a writer sleeps and wakes with an open file', async ({ driver, guest }) => {
    const volume = await makeVolume(driver)
    const id = await create(driver, at(volume))
    await startPython(guest(id), 'counter', counter)
    await sendTo(guest(id), 'one')
    await driver.hibernate(id)
    await driver.wake(specOf(id, at(volume)))
    await sendTo(guest(id), 'two')
    assert.equal(await succeed(guest(id), `cat ${path}/log`), '0 one\n1 two')
    await driver.restart(specOf(id, at(volume)))
    assert.equal(await succeed(guest(id), `cat ${path}/log`), '0 one\n1 two')
    await remove(driver, id, volume)
  })

  testMemory('volumes: a reader forks with an open file, and is restored in place', async ({ driver, guest }) => {
    const volume = await makeVolume(driver)
    const writer = await create(driver, at(volume))
    await succeed(guest(writer), `echo one > ${path}/file`)
    const spec = at(volume, { readOnly: true })
    const id = await create(driver, spec)
    const program = `
import sys
file = open("${path}/file")
print("ready", flush=True)
for line in sys.stdin:
    file.seek(0)
    print(file.read(), flush=True)`
    await startPython(guest(id), 'reader', program)
    const checkpoint = freshId('cp')
    await driver.checkpoint(id, checkpoint, 'full')
    const fork = await create(driver, { ...spec, from: { checkpointId: checkpoint } })
    await driver.restore(specOf(id, spec), checkpoint)
    for (const sandbox of [id, fork]) {
      await sendTo(guest(sandbox), 'go')
      assert.notEqual((await shell(guest(sandbox), `touch ${path}/other`)).exitCode, 0)
      assert.equal(await succeed(guest(sandbox), `cat ${path}/file`), 'one')
    }
    await remove(driver, id, fork, writer, checkpoint, volume)
  })

  test('volumes: a path over a link is refused, and nothing outside the sandbox is touched', async ({
    driver,
    guest,
  }) => {
    const volume = await makeVolume(driver)
    const id = await create(driver, at(volume))
    await succeed(
      guest(id),
      `echo kept > ${path}/file; umount ${path} 2>/dev/null; mv /data /elsewhere; ln -s /etc /data`,
    )
    await refuses(driver.restart(specOf(id, at(volume))), 'conflict', /symbolic link/)
    await refuses(driver.wake(specOf(id, at(volume))), 'conflict', /symbolic link/)
    await driver.delete(id)
    const other = await create(driver, at(volume))
    assert.equal(await succeed(guest(other), `cat ${path}/file`), 'kept')
    await remove(driver, other, volume)
  })

  test('volumes: a path over a file or a link of the image is refused before the start, without a word of the host', async ({
    driver,
    guest,
  }) => {
    const volume = await makeVolume(driver)
    const id = await create(driver)
    await succeed(
      guest(id),
      'echo x > /root/file; ln -s /etc /root/link; ln -s /none /root/dangling; mkfifo /root/fifo',
    )
    for (const [over, message] of [
      ['/root/file', '/root/file, where a volume is to be mounted, is no folder'],
      ['/root/file/below', '/root/file, above where a volume is to be mounted, is no folder'],
      ['/root/fifo', '/root/fifo, where a volume is to be mounted, is no folder'],
      ['/root/link', '/root/link, where a volume is to be mounted, leads over a symbolic link'],
      ['/root/link/below/it', '/root/link/below/it, where a volume is to be mounted, leads over a symbolic link'],
      ['/root/dangling', '/root/dangling, where a volume is to be mounted, leads over a symbolic link'],
    ] as const) {
      const volumes = [{ id: volume, path: over, readOnly: false }]
      await assert.rejects(driver.restart(specOf(id, { volumes })), { code: 'conflict', message })
    }
    await driver.restart(specOf(id))
    assert.equal(await succeed(guest(id), 'test -e /etc/below || echo none'), 'none')
    await remove(driver, id, volume)
  })

  test('volumes: a path may have any character that a name may have', async ({ driver, guest }) => {
    const volume = await makeVolume(driver)
    for (const name of ['a#b', 'a b', 'ä€', 'a:b', 'a,b', 'a\\b', 'a"b', "a'b", '\\043', '%2e', '🙂', '-']) {
      const over = `/data/${name}/in`
      const id = await create(driver, { volumes: [{ id: volume, path: over, readOnly: false }] })
      const found = await guest(id).spawn({ id: 'touch', argv: ['touch', `${over}/file`], envs: {} })
      assert.equal((await guest(id).process(found.id, 10_000)).exitCode, 0, name)
      await driver.delete(id)
    }
    await remove(driver, volume)
  })

  test('volumes: a restart of the server keeps what is known, mounted or not, and removes what is abandoned alone', async ({
    driver,
    guest,
    restart,
  }) => {
    const [volume, idle, left, unknown] = await Promise.all([0, 1, 2, 3].map(() => makeVolume(driver)))
    const id = await create(driver, at(volume!))
    await succeed(guest(id), `echo kept > ${path}/file`)
    const known = { sandboxIds: [id], volumeIds: [volume!, idle!, 'vol-gone'] }
    const abandoned = { sandboxIds: [], checkpointIds: [], volumeIds: [left!, 'vol-never'] }
    const report = await restart({ ...known, abandoned })
    assert.deepEqual([report.running, report.lostVolumes], [[id], ['vol-gone']])
    assert.deepEqual([report.unknownVolumes, report.removed], [[unknown], [left]])
    const reopened = under().driver
    assert.equal(await succeed(guest(id), `echo more >> ${path}/file && cat ${path}/file`), 'kept\nmore')
    assert.equal((await reopened.volumeState(left!)) ?? 'gone', 'gone')
    assert.ok(await reopened.volumeState(unknown!))
    await remove(reopened, id, volume!, idle!, unknown!)
  })
}

async function sendTo(guest: ReturnType<DriverUnderTest['guest']>, line: string): Promise<void> {
  const before = (await guest.output(line === 'go' ? 'reader' : 'counter')).stdout.toString().split('\n').length
  const id = line === 'go' ? 'reader' : 'counter'
  const attachment = await guest.attach(id)
  await attachment.write(Buffer.from(`${line}\n`))
  attachment.close()
  while ((await guest.output(id)).stdout.toString().split('\n').length === before);
}
