/** Trees out of a sandbox and into one, compared by what each entry is. */
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { lstat, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type Duplex, Readable } from 'node:stream'
import { test } from 'node:test'
import { isServiceError } from '../../errors.ts'
import { pathOfBytes } from '../../lib/byte-path.ts'
import { eventually } from '../../lib/testing/eventually.ts'
import { refuses } from '../../lib/testing/refuses.ts'
import { createGuest } from './guest.ts'
import { describe, list, python, shell, TreeWorld } from './testing/tree-world.ts'
import { makeTree } from './testing/trees.ts'

const { machine, place, pack, unpack, tarOf } = await TreeWorld.startForFile()
const { guest } = machine

/** Packs what is in a folder and unpacks it in another. */
async function copy(from: string, target: string) {
  return await guest.unpack(await guest.pack([{ path: from, name: '' }]), { target })
}

test('archive: a tree arrives as it was', async () => {
  const [from, to] = [await place(), join(await place(), 'new/below')]
  await python(from, makeTree)
  const before = await describe(from)
  const report = await copy(from, to)
  // The first line is the folder itself, which is not part of what it holds.
  assert.deepEqual((await describe(to)).slice(1), before.slice(1))
  assert.ok(
    before.some((line) => line.includes('security.capability')) && before.some((line) => line.includes('user.note')),
  )
  const bytes = 3 * 1024 * 1024 + 300_001 + 1 + 1 + 1 + 7 + 1 + 1 + 1 + 1 + 1 + 3 + 3
  assert.deepEqual(report, { files: before.length - 1, bytes, devices: 0, attributes: 0, hidden: 0 })
  assert.ok((await lstat(join(to, 'sparse'))).blocks < 1024, 'a hole is no data')
  // The same tree gives the same bytes.
  const alone = async (path: string) => (await pack([{ path, name: '' }])).subarray(512)
  assert.ok((await alone(from)).equals(await alone(to)))
})

test('archive: GNU tar reads what is packed', async () => {
  const from = await place()
  await python(from, makeTree)
  const to = await place()
  await writeFile(join(machine.folder, 'packed.tar'), await pack([{ path: from, name: '' }]))
  await shell(to, `tar --xattrs --xattrs-include='*' --numeric-owner -xpf ${machine.folder}/packed.tar`)
  assert.deepEqual(await describe(to), await describe(from))
})

test('archive: paths of 4095 bytes pass, longer ones are refused', async () => {
  const [from, to] = [await place(), await place()]
  const make = (depth: number, last: number) =>
    `import os\nfor _ in range(${depth}):\n os.makedirs('n' * 255, exist_ok=True); os.chdir('n' * 255)\nopen('m' * ${last}, 'w').write('deep')`
  await python(from, make(15, 255))
  await copy(from, to)
  assert.match(
    await python(to, `import os\nfor _ in range(15): os.chdir('n' * 255)\nprint(open('m' * 255).read())`),
    /deep/,
  )
  await python(from, make(16, 1))
  await refuses(pack([{ path: from, name: '' }]), 'invalid_request', /too long/)
  // Nobody else can remove it.
  for (const folder of [from, to]) await guest.remove(folder)
})

test('archive: entries have the names that they are given, and what is to be skipped is left out', async () => {
  const [from, to] = [await place(), await place()]
  await shell(
    from,
    'mkdir -p lib/x lib/y; echo 1 > lib/x/1; echo 2 > lib/y/2; echo f > file; ln -s lib link; ln -s file to-file',
  )
  const odd = pathOfBytes(Buffer.from('odd\xff', 'latin1'))
  const entries = [
    { path: join(from, 'link'), name: 'followed' },
    { path: join(from, 'to-file'), name: 'copied/deep' },
    { path: join(from, 'lib'), name: 'alone', shallow: true },
    { path: join(from, 'file'), name: odd },
  ]
  const tar = await pack(entries, { followsFirst: true, skip: [join(from, 'link/x'), join(from, 'lib/y')] })
  await unpack(tar, { target: to })
  assert.deepEqual(await list(to), [
    'alone d 755 0:0',
    'copied d 755 0:0',
    'copied/deep f 644 0:0',
    'followed d 755 0:0',
    'followed/y d 755 0:0',
    'followed/y/2 f 644 0:0',
    'odd\ufffd f 644 0:0',
  ])
  const links = await place()
  await unpack(await pack([{ path: join(from, 'link'), name: 'link' }]), { target: links })
  assert.deepEqual(await list(links), ['link l 777 0:0 lib'])
  await refuses(pack([{ path: join(from, 'none'), name: 'x' }]), 'not_found', /none: /)
  await refuses(pack([{ path: join(from, 'file'), name: '' }]), 'invalid_request', /needs a name/)
  for (const name of ['/x', '../x', 'a/../x', 'a//b', './a']) {
    await refuses(pack([{ path: from, name }]), 'invalid_request', /^name: /)
  }
})

test('archive: more entries than a line holds are named in frames', async () => {
  const from = await place()
  await writeFile(join(from, 'file'), '1')
  const entries = Array.from({ length: 3000 }, (_, index) => ({
    path: join(from, 'file'),
    name: `${'n'.repeat(200)}-${index}`,
  }))
  const to = await place()
  const report = await guest.unpack(await guest.pack(entries), { target: to })
  assert.equal(report.files, 3000)
  const skip = entries.map(({ name }) => join(from, name))
  assert.equal((await pack([{ path: from, name: '' }], { skip })).includes('file'), true)
})

test('archive: what is mounted stays behind, and its folder is empty', async () => {
  const from = await place()
  await shell(
    from,
    'mkdir mounted; touch file-mount; echo x > file; mount -t tmpfs none mounted; touch mounted/inside; mount --bind /etc/hostname file-mount',
  )
  try {
    const to = await place()
    await copy(from, to)
    assert.deepEqual(
      (await list(to)).map((line) => line.split(' ').slice(0, 2)),
      [
        ['file', 'f'],
        ['mounted', 'd'],
      ],
    )
    // And nothing is put where something is mounted.
    const tar = await tarOf('mkdir mounted; echo 1 > mounted/inside; echo 2 > file-mount; echo 3 > file')
    const { hidden } = await unpack(tar, { target: from })
    assert.equal(hidden, 3)
    assert.deepEqual(await shell(from, 'cat mounted/inside file; cmp file-mount /etc/hostname'), '3\n')
  } finally {
    await shell(from, 'umount mounted file-mount')
  }
})

test('archive: sockets are left out, and devices are told', async () => {
  const from = await place()
  await python(
    from,
    "import socket, os\nsocket.socket(socket.AF_UNIX).bind('socket'); os.mknod('null', 0o20666, os.makedev(1, 3))",
  )
  const tar = await pack([{ path: from, name: 'all' }])
  const to = await place()
  const { devices } = await unpack(tar, { target: to })
  assert.equal(devices, 1)
  assert.deepEqual(await list(to), ['all d 755 0:0'])
  await writeFile(join(machine.folder, 'devices.tar'), tar)
  assert.match(await shell(to, `tar -tvf ${machine.folder}/devices.tar`), /^crw\S+ \S+ +1,3 .* all\/null$/m)
})

test('archive: more bytes than are allowed are refused before they are read', async () => {
  const from = await place()
  await writeFile(join(from, 'sparse'), '')
  await truncate(join(from, 'sparse'), 2 ** 40)
  await refuses(
    pack([{ path: from, name: '' }], { bytesMax: 2 ** 30 }),
    'too_large',
    /sparse: .*more than 1073741824 bytes/,
  )
  await writeFile(join(from, 'sparse'), '12345')
  const tar = await pack([{ path: from, name: '' }])
  await refuses(unpack(tar, { target: await place(), bytesMax: 4 }), 'too_large', /sparse: .*more than 4 bytes/)
})

test('archive: a file that becomes shorter is told, and what one grows by is left out', async () => {
  const from = await place()
  await shell(from, 'head -c 20000000 /dev/zero > big')
  for (const [size, expected] of [
    [40_000_000, 'whole'],
    [1000, 'conflict'],
  ] as const) {
    await shell(from, 'truncate -s 20000000 big')
    const tar = await guest.pack([{ path: from, name: '' }])
    // More than what is on its way is not read yet.
    await new Promise((resolve) => tar.once('readable', resolve))
    await truncate(join(from, 'big'), size)
    if (expected === 'conflict') await refuses(tar.toArray(), 'conflict', /big: became shorter while it was read/)
    else await unpack(Buffer.concat(await tar.toArray()), { target: join(from, 'copy') })
  }
  assert.equal((await lstat(join(from, 'copy/big'))).size, 20_000_000)
})

test('archive: files with holes are read in the forms that programs write', async () => {
  const make = String.raw`truncate -s 60M holes; for at in $(seq 40); do printf data | dd of=holes bs=1 seek=$((at * 1000000)) conv=notrunc status=none; done
    truncate -s 100M empty; printf ends > ends; truncate -s 1M ends; printf x > plain; truncate -s 1M starts; printf end >> starts`
  const from = await place()
  await shell(from, make)
  const expected = await shell(from, 'sha256sum *')
  for (const format of ['--format=gnu -S', '--format=posix -S']) {
    const to = await place()
    const tar = await tarOf(make, '.', format)
    assert.ok(tar.length < 1 << 20, 'it is sparse')
    await unpack(tar, { target: to })
    assert.equal(await shell(to, 'sha256sum *'), expected)
    assert.ok((await lstat(join(to, 'holes'))).blocks < 8192)
    await refuses(unpack(tar, { target: await place(), bytesMax: 2 ** 27 }), 'too_large', /more than 134217728 bytes/)
    // Any damage of a map is told.
    for (let at = 0; at < 20 * 512; at += 512) {
      const broken = Buffer.from(tar)
      broken[at + 390] = 0x39
      await unpack(broken, { target: await place() }).catch((error: unknown) => assert.ok(isServiceError(error)))
    }
  }
  const old = await tarOf('truncate -s 1M old', 'old', '--format=posix -S --sparse-version=0.1')
  await refuses(unpack(old, { target: await place() }), 'invalid_request', /old form of pax/)
})

test('archive: a damaged or cut off archive is told', async () => {
  const tar = await tarOf('head -c 100000 /dev/zero > zeros; echo 1 > y')
  const to = await place()
  await refuses(unpack(tar.subarray(0, 5000), { target: to }), 'invalid_request', /cut off/)
  await refuses(unpack(Buffer.from('no tar at all'.repeat(100)), { target: to }), 'invalid_request', /no tar/)
  await unpack(Buffer.alloc(0), { target: to })
  const wrong = Buffer.from(tar)
  wrong[0] = 1
  await refuses(unpack(wrong, { target: to }), 'invalid_request', /checksum/)
  const source = new Readable({ read() {} })
  source.push(tar.subarray(0, 2000))
  const broken = guest.unpack(source, { target: to })
  source.destroy(new Error('the source broke'))
  await assert.rejects(broken, /the source broke/)
})

test('archive: a full disk is told with the path', async () => {
  const at = await place()
  await shell(at, 'mkdir small; mount -t tmpfs -o size=64k none small')
  try {
    const tar = await tarOf('head -c 1000000 /dev/urandom > big')
    await refuses(unpack(tar, { target: join(at, 'small') }), 'disk_full', /small\/big: the disk is full/)
  } finally {
    await shell(at, 'umount small')
  }
})

test('archive: a checkpoint ends both at once', async () => {
  const from = await place()
  await shell(from, 'head -c 8000000 /dev/zero > big')
  for (const [reason, message] of [
    ['checkpoint', /a checkpoint of the sandbox came first/],
    ['hibernate', /put to sleep/],
  ] as const) {
    const open: Duplex[] = []
    const frozen = createGuest(async () => {
      const socket = await machine.dial()
      open.push(socket)
      return socket
    })
    const tar = await frozen.pack([{ path: from, name: '' }])
    const source = new Readable({ read() {} })
    source.push((await tarOf(`echo 1 > ${reason}`)).subarray(0, 4096))
    const unpacking = frozen.unpack(source, { target: from })
    await eventually(() => existsSync(join(from, reason)))
    for (const socket of open) socket.emit('freeze', reason)
    await refuses(unpacking, 'unavailable', message)
    await refuses(tar.toArray(), 'unavailable', message)
    assert.ok(open.every((socket) => socket.destroyed))
  }
})

test('archive: the guest holds nothing when a client goes away', async () => {
  const from = await place()
  await shell(from, 'head -c 8000000 /dev/zero > big')
  const [files, threads] = [await machine.openFiles(), await machine.threads()]
  for (let count = 0; count < 20; count++) {
    const tar = await guest.pack([{ path: from, name: '' }])
    await new Promise((resolve) => tar.once('readable', resolve))
    tar.destroy()
    const source = new Readable({ read() {} })
    source.push(await tarOf('echo 1 > x'))
    const abort = new AbortController()
    const unpacking = guest.unpack(source, { target: await place(), signal: abort.signal })
    abort.abort(new Error('enough'))
    await assert.rejects(unpacking, /enough/)
  }
  while ((await machine.threads()) > threads || (await machine.openFiles()) > files) await guest.hello()
})
