import assert from 'node:assert/strict'
import { execFile, execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { closeSync, mkdirSync, openSync, readFileSync } from 'node:fs'
import { chmod, chown, mkdir, mkdtemp, readdir, readFile, readlink } from 'node:fs/promises'
import { rename, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { dirname, join } from 'node:path'
import { PassThrough, Readable } from 'node:stream'
import { test } from 'node:test'
import { isServiceError } from '../../errors.ts'
import { refuses } from '../../lib/testing/refuses.ts'
import type { ReadFileOptions } from '../../sandbox/ports/guest.ts'
import { GuestProcess } from './testing/guest-process.ts'
import { eventually } from '../../lib/testing/eventually.ts'

const machine = await GuestProcess.startForFile()
const { guest } = machine
const folder = join(machine.folder, 'files')
await mkdir(folder)

function bodyOf(...chunks: (string | Buffer)[]): Readable {
  return Readable.from(chunks.map((chunk) => Buffer.from(chunk)))
}

async function read(path: string, options?: ReadFileOptions): Promise<string> {
  const { body } = await guest.readFile(path, options)
  return Buffer.concat(await body.toArray()).toString()
}

/** Nothing of an upload is left beside the file. */
async function temporaries(): Promise<string[]> {
  return (await readdir(folder, { recursive: true })).filter((name) => name.includes('.atoll-'))
}

test('files: a written file is read unchanged, and its parents are created', async () => {
  const path = join(folder, 'a/b/c.txt')
  assert.equal(await guest.writeFile(path, bodyOf('hello', ' world')), 11)
  assert.equal(await read(path), 'hello world')
  const { stat: found, body } = await guest.readFile(path)
  body.destroy()
  assert.deepEqual({ ...found, modifiedAt: '' }, { path, isDir: false, size: 11, mode: 0o644, modifiedAt: '' })
  assert.equal(found.modifiedAt, `${(await stat(path)).mtime.toISOString().slice(0, 19)}Z`)
  assert.deepEqual(await guest.stat(path), found)
  assert.deepEqual(await temporaries(), [])
})

test('files: an empty file and one with the longest legal name are written and read', async () => {
  for (const [name, text] of [
    ['empty', ''],
    ['n'.repeat(255), 'long'],
  ] as const) {
    const path = join(folder, name)
    assert.equal(await guest.writeFile(path, text === '' ? Readable.from([]) : bodyOf(text)), text.length)
    assert.equal(await read(path), text)
  }
})

test('files: 64 MiB are uploaded and downloaded unchanged', async () => {
  const path = join(folder, 'large')
  const chunk = Buffer.alloc(1_000_003, 'some longer text ')
  const sent = createHash('sha256')
  async function* chunks(): AsyncGenerator<Buffer> {
    for (let index = 0; index < 64; index++) {
      chunk.writeUInt32BE(index)
      sent.update(chunk)
      yield Buffer.from(chunk)
    }
  }
  assert.equal(await guest.writeFile(path, Readable.from(chunks())), 64 * chunk.length)
  const received = createHash('sha256')
  for await (const part of (await guest.readFile(path)).body) received.update(part as Buffer)
  assert.equal(received.digest('hex'), sent.digest('hex'))
})

test('files: a range is read up to the end of the file', async () => {
  const path = join(folder, 'digits')
  await writeFile(path, '0123456789')
  for (const [range, expected] of [
    [{ start: 3 }, '3456789'],
    [{ end: 3 }, '0123'],
    [{ start: 2, end: 4 }, '234'],
    [{ start: 9, end: 9 }, '9'],
    [{ start: 8, end: 1000 }, '89'],
    [{ start: 10 }, ''],
    [{ start: 99, end: 100 }, ''],
    [{ start: 5, end: 4 }, ''],
    [{ end: Number.MAX_SAFE_INTEGER }, '0123456789'],
  ] as const) {
    assert.equal(await read(path, range), expected, JSON.stringify(range))
  }
  await refuses(read(path, { start: -1 }), 'invalid_request', /^start/)
  await refuses(read(path, { end: 1.5 }), 'invalid_request', /^end/)
})

test('files: a file without a size is read to its end', async () => {
  assert.match(await read('/proc/version'), /^Linux version /)
  assert.equal(await read('/proc/kallsyms'), readFileSync('/proc/kallsyms', 'utf8'))
})

test('files: a size that is made up is neither told nor waited for', async () => {
  const path = '/sys/kernel/mm/transparent_hugepage/enabled'
  const content = readFileSync(path, 'utf8')
  assert.ok((await stat(path)).size > content.length)
  assert.equal(await read(path), content)
  assert.equal(await read(path, { start: 2, end: 4 }), content.slice(2, 5))
  for (const each of [path, '/proc/version', '/proc/cpuinfo']) {
    assert.equal((await guest.stat(each)).size, Buffer.byteLength(await read(each)), each)
  }
})

test('files: an existing file keeps its mode and owner, a new one gets those of the request', async () => {
  const path = join(folder, 'kept')
  await writeFile(path, 'old')
  await chown(path, 65_534, 12)
  await chmod(path, 0o4751)
  await guest.writeFile(path, bodyOf('new'), { mode: 0o600, user: 'root' })
  const kept = await stat(path)
  assert.deepEqual([kept.mode & 0o7777, kept.uid, kept.gid], [0o4751, 65_534, 12])

  const made = join(await folderOf(65_534), 'of/nobody')
  await guest.writeFile(made, bodyOf('x'), { mode: 0o600, user: 'nobody' })
  const [file, parent] = [await stat(made), await stat(dirname(made))]
  assert.deepEqual([file.mode & 0o7777, file.uid, parent.mode & 0o7777, parent.uid], [0o600, 65_534, 0o755, 65_534])
  await refuses(guest.writeFile(made, bodyOf('x'), { user: 'no-such-user' }), 'invalid_request', /^user/)
})

/** A folder that belongs to a user, below folders that let everybody pass. */
async function folderOf(uid: number): Promise<string> {
  for (const above of [machine.folder, folder]) await chmod(above, 0o755)
  const own = await mkdtemp(join(folder, 'own-'))
  await chown(own, uid, uid)
  await chmod(own, 0o755)
  return own
}

test('files: a call with a user has the rights of that user and no more, whatever a link says', async () => {
  const home = await folderOf(65_534)
  const closed = await folderOf(0)
  const [secret, inside] = [join(closed, 'secret'), join(closed, 'inside/file')]
  await mkdir(dirname(inside), { mode: 0o700 })
  for (const file of [secret, inside]) await writeFile(file, 'of root', { mode: 0o600 })
  await symlink(secret, join(home, 'to-file'))
  await symlink(dirname(inside), join(home, 'to-folder'))
  await symlink(join(closed, 'new'), join(home, 'to-nothing'))
  const user = 'nobody'
  const written = (path: string) => guest.writeFile(path, bodyOf('of nobody'), { user })
  for (const refused of [
    () => guest.readFile(join(home, 'to-file'), { user }),
    () => guest.readFile(secret, { user }),
    () => guest.stat(join(home, 'to-file'), user),
    () => guest.list(join(home, 'to-folder'), user),
    () => guest.readFile(join(home, 'to-folder/file'), { user }),
    () => written(join(home, 'to-file')),
    () => written(join(home, 'to-folder/file')),
    () => written(join(home, 'to-folder/new')),
    () => written(join(home, 'to-nothing')),
    () => written(join(closed, 'new')),
    () => guest.mkdir(join(home, 'to-folder/new'), user),
    () => guest.mkdir(join(closed, 'new'), user),
    () => guest.remove(join(home, 'to-folder/file'), user),
    () => guest.remove(secret, user),
    () => guest.readFile('/proc/1/environ', { user }),
  ]) {
    await refuses(refused(), 'forbidden', /permission denied|not permitted/, String(refused))
  }
  assert.deepEqual((await readdir(closed)).toSorted(), ['inside', 'secret'])
  for (const file of [secret, inside]) assert.equal(await readFile(file, 'utf8'), 'of root')

  // In its own folders the user may write, and owns what it makes. Root, and a call without a user, may do everything.
  await written(join(home, 'a/b'))
  assert.equal(await read(join(home, 'a/b'), { user }), 'of nobody')
  assert.deepEqual([(await stat(join(home, 'a'))).uid, (await stat(join(home, 'a/b'))).uid], [65_534, 65_534])
  await guest.mkdir(join(home, 'c'), user)
  assert.deepEqual(
    (await guest.list(home, user)).map(({ name }) => name),
    ['a', 'c', 'to-file', 'to-folder', 'to-nothing'],
  )
  await guest.remove(join(home, 'a'), user)
  for (const options of [{}, { user: 'root' }, { user: '0' }])
    assert.equal(await read(join(home, 'to-file'), options), 'of root')
  await guest.remove(join(home, 'to-folder/file'), 'root')
  await assert.rejects(stat(inside), { code: 'ENOENT' })
})

test('files: a user replaces a file that it may write, and not one that it may only remove', async () => {
  const home = await folderOf(65_534)
  const [shared, guarded] = [join(home, 'shared'), join(home, 'guarded')]
  await writeFile(shared, 'old')
  await chown(shared, 0, 12)
  await chmod(shared, 0o662)
  await writeFile(guarded, 'old', { mode: 0o644 })
  await guest.writeFile(shared, bodyOf('new'), { user: '65534:12' })
  const now = await stat(shared)
  assert.deepEqual([now.uid, now.gid, now.mode & 0o777, await readFile(shared, 'utf8')], [65_534, 12, 0o662, 'new'])
  await refuses(guest.writeFile(guarded, bodyOf('new'), { user: 'nobody' }), 'forbidden')
  assert.equal(await readFile(guarded, 'utf8'), 'old')
  // A group behind a colon replaces all groups of the user.
  await chmod(guarded, 0o640)
  await chown(guarded, 0, 12)
  assert.equal(await read(guarded, { user: '65534:12' }), 'old')
  await refuses(guest.readFile(guarded, { user: '65534:13' }), 'forbidden')
  // A set-user-id file belongs to the user and never to root.
  await guest.writeFile(join(home, 'suid'), bodyOf('x'), { mode: 0o4755, user: 'nobody' })
  assert.equal((await stat(join(home, 'suid'))).uid, 65_534)
  assert.deepEqual(await temporaries(), [])
})

test('files: a link that is swapped while a user reads never shows more than that user may see', async () => {
  const home = await folderOf(65_534)
  const secret = join(await folderOf(0), 'secret')
  await writeFile(secret, 'of root', { mode: 0o600 })
  const [own, link] = [join(home, 'own'), join(home, 'link')]
  await writeFile(own, 'of nobody')
  const swapping = execFile('sh', ['-c', `while ln -sfn ${own} ${link} && ln -sfn ${secret} ${link}; do :; done`])
  try {
    await eventually(async () => (await readlink(link).catch(() => '')) !== '', { what: 'the link is there' })
    const seen = new Set<string>()
    for (let round = 0; round < 300; round++) {
      const text = await read(link, { user: 'nobody' }).catch((error: unknown) =>
        isServiceError(error) ? error.code : String(error),
      )
      seen.add(text)
    }
    assert.ok(!seen.has('of root'), [...seen].join())
  } finally {
    swapping.kill('SIGKILL')
    await once(swapping, 'exit')
  }
})

test('files: a body that breaks off leaves the old file and nothing else', async () => {
  const path = join(folder, 'broken')
  await writeFile(path, 'old')
  const body = new PassThrough()
  const writing = guest.writeFile(path, body)
  body.write(Buffer.alloc(3 << 20))
  await eventually(async () => (await temporaries()).length === 1, { what: 'the upload has begun' })
  body.destroy(new Error('the client went away'))
  await assert.rejects(writing, /the client went away/)
  await eventually(async () => (await temporaries()).length === 0, { what: 'nothing is left' })
  assert.equal(await readFile(path, 'utf8'), 'old')
})

test('files: a connection that breaks in an upload leaves the old file', async () => {
  const path = join(folder, 'cut')
  await writeFile(path, 'old')
  const socket = await machine.dial()
  socket.write(`${JSON.stringify({ op: 'write', path })}\n`)
  socket.write(Buffer.from([1, 0, 0, 1, 0, 65]))
  await eventually(async () => (await temporaries()).length === 1, { what: 'the upload has begun' })
  socket.destroy()
  await eventually(async () => (await temporaries()).length === 0, { what: 'nothing is left' })
  assert.equal(await readFile(path, 'utf8'), 'old')
})

test('files: a body past its bound is refused and not destroyed', async () => {
  const path = join(folder, 'bounded')
  await writeFile(path, 'old')
  const body = new PassThrough()
  body.write(Buffer.alloc(2000))
  await refuses(guest.writeFile(path, body, { bytesMax: 1999 }), 'too_large')
  assert.equal(body.destroyed, false)
  body.destroy()
  // One that never ends is refused on the way.
  async function* endless(): AsyncGenerator<Buffer> {
    for (;;) yield Buffer.alloc(65_536)
  }
  const stream = Readable.from(endless())
  await refuses(guest.writeFile(path, stream, { bytesMax: 10 << 20 }), 'too_large')
  stream.destroy()
  assert.equal(await guest.writeFile(join(folder, 'exact'), bodyOf('12345'), { bytesMax: 5 }), 5)
  assert.equal(await readFile(path, 'utf8'), 'old')
  assert.deepEqual(await temporaries(), [])
})

test('files: a full disk is a refusal of its own, leaves the old file and takes smaller ones', async () => {
  const small = join(folder, 'small')
  await mkdir(small)
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=1m,nr_inodes=5', 'tmpfs', small])
  try {
    await guest.writeFile(join(small, 'kept'), bodyOf('old'))
    await refuses(guest.writeFile(join(small, 'kept'), bodyOf(Buffer.alloc(2 << 20))), 'disk_full', /the disk is full/)
    await refuses(guest.writeFile(join(small, 'new'), bodyOf(Buffer.alloc(2 << 20))), 'disk_full')
    assert.deepEqual(await readdir(small), ['kept'])
    assert.equal(await read(join(small, 'kept')), 'old')
    await guest.writeFile(join(small, 'new'), bodyOf(Buffer.alloc(1 << 19)))
    await refuses(guest.mkdir(join(small, 'one/two/three')), 'disk_full')
  } finally {
    execFileSync('umount', [small])
  }
})

test('files: a link is written through and stays a link', async () => {
  await mkdir(join(folder, 'links'))
  const link = join(folder, 'links/link')
  await symlink('../target', link)
  await guest.writeFile(link, bodyOf('through'))
  assert.equal(await readFile(join(folder, 'target'), 'utf8'), 'through')
  assert.equal(await readlink(link), '../target')
  assert.equal(await read(link), 'through')
  assert.equal((await guest.stat(link)).size, 7)

  await symlink('loop', join(folder, 'links/loop'))
  await refuses(guest.writeFile(join(folder, 'links/loop'), bodyOf('x')), 'invalid_request')
  await refuses(read(join(folder, 'links/loop')), 'invalid_request')
})

test('files: only a regular file is read or replaced', async () => {
  const fifo = join(folder, 'fifo')
  execFileSync('mkfifo', [fifo])
  const socket = join(folder, 'socket')
  const server = createServer().listen(socket)
  await eventually(async () => server.listening, { what: 'it listens' })
  for (const path of [fifo, socket, '/dev/null', '/dev/zero']) {
    await refuses(read(path), 'invalid_request', /not a regular file/)
    await refuses(guest.stat(path), 'invalid_request', /not a regular file/)
    await refuses(guest.writeFile(path, bodyOf('x')), 'invalid_request', /not a regular file/)
  }
  server.close()
  await refuses(read(folder), 'invalid_request', /is a directory/)
  await refuses(guest.writeFile(folder, bodyOf('x')), 'invalid_request', /is a directory/)
  assert.ok((await stat('/dev/null')).isCharacterDevice())
})

test('files: a path that cannot be read or created is a fault of the client', async () => {
  await refuses(read('/proc/self/mem'), 'invalid_request', /cannot be read/)
  for (const path of ['/proc/self/none/x', '/proc/self/x', '/proc/sys/kernel/x']) {
    await assert.rejects(guest.writeFile(path, bodyOf('x')), (error) => {
      return isServiceError(error, 'invalid_request') || isServiceError(error, 'not_found')
    })
  }
})

test('files: an odd size and time are reported as the nearest integers', async () => {
  // A file system without bounds of its own.
  const odd = await mkdtemp('/dev/shm/atoll-odd-')
  execFileSync('touch', ['-d', '@99999999999999999', join(odd, 'late')])
  execFileSync('truncate', ['-s', '8191P', join(odd, 'large')])
  assert.deepEqual(
    (await guest.list(odd)).map((entry) => entry.name),
    ['large', 'late'],
  )
  await refuses(read(join(odd, 'large')), 'too_large')
  await rm(odd, { recursive: true })
})

test('files: the protected directory is neither removed nor written to, by any name', async () => {
  await using other = await GuestProcess.start({ owning: true })
  const own = join(other.folder, '.atoll')
  await symlink(own, join(other.folder, 'link'))
  for (const path of [
    own,
    `${own}/`,
    `${own}/run`,
    `${own}/run/guest.sock`,
    other.folder,
    `${other.folder}/link/run`,
  ]) {
    await refuses(other.guest.remove(path), 'invalid_request', /belongs to the sandbox/)
  }
  await symlink(join(own, 'run/new'), join(other.folder, 'dangling'))
  for (const path of [`${own}/run/guest.sock`, `${own}/x`, `${other.folder}/x/../link/x`, `${other.folder}/dangling`]) {
    await refuses(other.guest.writeFile(path, bodyOf('x')), 'invalid_request', /belongs to the sandbox/)
  }
  await refuses(other.guest.mkdir(`${own}/run/folder`), 'invalid_request', /belongs to the sandbox/)
  assert.deepEqual(await readdir(own, { recursive: true }), ['run', 'run/guest.sock'])
  await other.guest.remove(join(other.folder, 'link'))
  await other.guest.writeFile(join(other.folder, 'file'), bodyOf('x'))
})

test('files: a path is absolute, without NUL, not too long, and names something', async () => {
  for (const path of ['', 'a', './a', '../a', '/a\0b', `/${'x/'.repeat(3000)}`]) {
    await refuses(guest.writeFile(path, bodyOf('x')), 'invalid_request', /^path/)
    for (const call of [read, guest.stat, guest.list, guest.mkdir, guest.remove]) {
      await refuses(call(path), 'invalid_request', /^path/)
    }
  }
  for (const path of [`${folder}/slash/`, '/', `${folder}/..`]) {
    await refuses(guest.writeFile(path, bodyOf('x')), 'invalid_request')
  }
  await refuses(read(join(folder, 'x'.repeat(256))), 'invalid_request')
  for (const call of [read, guest.stat, guest.list, guest.remove]) {
    await refuses(call(join(folder, 'missing')), 'not_found')
  }
  await refuses(guest.stat(join(folder, 'digits/below')), 'invalid_request')
})

test('files: a folder is listed by name, with links followed and odd names shown', async () => {
  const listed = join(folder, 'listed')
  await mkdir(join(listed, 'sub'), { recursive: true })
  await writeFile(join(listed, 'b'), '12')
  await symlink('sub', join(listed, 'to-folder'))
  await symlink('nowhere', join(listed, 'dangling'))
  await writeFile(Buffer.concat([Buffer.from(`${listed}/bad-`), Buffer.from([0xff])]), '')
  await writeFile(join(listed, 'new\nline "quoted"'), '')
  const entries = await guest.list(listed)
  assert.deepEqual(
    entries.map(({ name, isDir }) => [name, isDir]),
    [
      ['b', false],
      ['bad-\\xff', false],
      ['dangling', false],
      ['new\nline "quoted"', false],
      ['sub', true],
      ['to-folder', true],
    ],
  )
  assert.deepEqual([entries[0]?.path, entries[0]?.size], [join(listed, 'b'), 2])
  await refuses(guest.list(join(listed, 'b')), 'invalid_request')
})

test('files: ten thousand entries are listed', async () => {
  const many = join(folder, 'many')
  await mkdir(many)
  for (let index = 0; index < 10_000; index++) {
    closeSync(openSync(join(many, `file-${String(index).padStart(5, '0')}`), 'w'))
  }
  const entries = await guest.list(many)
  assert.equal(entries.length, 10_000)
  assert.equal(entries[9999]?.name, 'file-09999')
})

test('files: mkdir creates parents and can be repeated', async () => {
  const path = join(folder, 'm/n/o')
  await guest.mkdir(path)
  await guest.mkdir(path)
  await guest.mkdir('/')
  assert.ok((await stat(path)).isDirectory())
  await refuses(guest.mkdir(join(folder, 'digits')), 'invalid_request')
  await refuses(guest.mkdir(join(folder, 'digits/below')), 'invalid_request')
})

test('files: a tree is removed, and no link is followed', async () => {
  const tree = join(folder, 'tree')
  await mkdir(join(tree, 'a/b/c'), { recursive: true })
  await mkdir(join(folder, 'outside'))
  await writeFile(join(folder, 'outside/kept'), 'kept')
  await writeFile(join(tree, 'a/b/file'), '')
  await symlink('../../outside', join(tree, 'a/link'))
  await symlink(join(folder, 'outside'), join(tree, 'a/b/absolute'))
  execFileSync('mkfifo', [join(tree, 'a/fifo')])
  await guest.remove(tree)
  await refuses(guest.stat(tree), 'not_found')
  assert.equal(await readFile(join(folder, 'outside/kept'), 'utf8'), 'kept')

  await symlink('outside', join(folder, 'link-to-folder'))
  await guest.remove(join(folder, 'link-to-folder'))
  assert.equal(await readFile(join(folder, 'outside/kept'), 'utf8'), 'kept')
  await guest.remove(join(folder, 'outside/kept'))
  for (const path of ['/', '//', '/..', `${folder}/..`]) await refuses(guest.remove(path), 'invalid_request')
})

test('files: a folder of very many folders is removed', { timeout: 60_000 }, async () => {
  // In memory: a busy disk takes longer than the guest.
  const wide = await mkdtemp('/dev/shm/atoll-wide-')
  for (let index = 0; index < 50_000; index++) mkdirSync(join(wide, String(index)))
  await guest.remove(wide)
  await refuses(guest.stat(wide), 'not_found')
})

test('files: a tree deeper than the longest path is removed, without files left open', async () => {
  const deep = join(folder, 'deep')
  // Built from its bottom up, so that no path gets long.
  await mkdir(deep)
  for (let depth = 0; depth < 3000; depth++) {
    const parent = `${deep}-parent`
    await mkdir(join(parent, 'sibling'), { recursive: true })
    await rename(deep, join(parent, 'child'))
    await rename(parent, deep)
  }
  const files = await machine.openFiles()
  await guest.remove(deep)
  await refuses(guest.stat(deep), 'not_found')
  await eventually(async () => (await machine.openFiles()) <= files, { what: 'no file is left' })
})

test('files: a reader that stops early leaves nothing open in the guest', async () => {
  await guest.hello()
  const files = await machine.openFiles()
  for (let round = 0; round < 20; round++) {
    const { body } = await guest.readFile(join(folder, 'large'))
    await once(body, 'readable')
    body.destroy()
  }
  const { body } = await guest.readFile(join(folder, 'large'))
  body.destroy()
  await eventually(async () => (await machine.openFiles()) <= files, { what: 'no file is left' })
})

test('files: a file that becomes shorter while it is read breaks the body', async () => {
  const path = join(folder, 'shrinks')
  await writeFile(path, Buffer.alloc(8 << 20))
  const { body } = await guest.readFile(path)
  await refuses(
    (async () => {
      let bytes = 0
      for await (const chunk of body) {
        if (bytes === 0) execFileSync('truncate', ['-s', '1M', path])
        bytes += (chunk as Buffer).length
      }
    })(),
    'conflict',
  )
})
