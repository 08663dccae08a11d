/** Entries themselves: what they are, where they move, and names that are no text. */
import assert from 'node:assert/strict'
import { chmod, chown, lstat, mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { test } from 'node:test'
import { pathOfBase64, pathOfBytes } from '../../lib/byte-path.ts'
import { refuses } from '../../lib/testing/refuses.ts'
import { GuestProcess } from './testing/guest-process.ts'

const machine = await GuestProcess.startForFile()
const { guest } = machine
const folder = join(machine.folder, 'entries')
await mkdir(folder)

test('entries: a file, a folder, a link and a device are told as what they are', async () => {
  await writeFile(join(folder, 'file'), '12345', { mode: 0o640 })
  await chown(join(folder, 'file'), 4242, 4243)
  await chmod(join(folder, 'file'), 0o4640)
  await mkdir(join(folder, 'sub'))
  await symlink('nowhere', join(folder, 'dangling'))
  await symlink('sub', join(folder, 'to-sub'))
  const { modifiedAt, ...file } = await guest.inspect(join(folder, 'file'))
  const expected = {
    path: join(folder, 'file'),
    name: 'file',
    type: 'file',
    size: 5,
    mode: 0o4640,
    uid: 4242,
    gid: 4243,
  }
  assert.deepEqual(file, expected)
  assert.equal(modifiedAt, `${(await lstat(join(folder, 'file'))).mtime.toISOString().slice(0, 19)}Z`)
  const { type, target, user, uid } = await guest.inspect(join(folder, 'dangling'))
  assert.deepEqual([type, target, user, uid], ['symlink', 'nowhere', 'root', 0])
  const kinds = ['sub', 'sub/', 'to-sub', 'to-sub/.', '.'].map(
    async (name) => (await guest.inspect(`${folder}/${name}`)).type,
  )
  assert.deepEqual(await Promise.all(kinds), ['directory', 'directory', 'symlink', 'directory', 'directory'])
  assert.equal((await guest.inspect('/dev/null')).type, 'other')
  assert.equal((await guest.inspect('/')).name, '/')
  for (const missing of ['none', 'file/below', 'none/x']) {
    await refuses(guest.inspect(join(folder, missing)), 'not_found', /no such file or folder|is no folder/)
  }
  await refuses(guest.inspect(join(folder, 'x'.repeat(256))), 'invalid_request', /too long/)
})

test('entries: a move keeps what is there, unless it may be replaced', async () => {
  const at = (name: string) => join(folder, name)
  await writeFile(at('one'), 'one')
  await writeFile(at('other'), 'other')
  await refuses(guest.move(at('one'), at('other')), 'conflict', /exists already/)
  assert.equal(await readFile(at('other'), 'utf8'), 'other')
  await guest.move(at('one'), at('other'), { overwrite: true })
  assert.equal(await readFile(at('other'), 'utf8'), 'one')
  await refuses(guest.move(at('one'), at('new')), 'not_found', /one: /)
  await refuses(guest.move(at('other'), at('none/new')), 'not_found', /none: /)
  await mkdir(at('tree/below'), { recursive: true })
  await refuses(guest.move(at('tree'), at('tree/below/x')), 'invalid_request', /lies in what is moved/)
  // A folder does not take the place of a file, nor a file that of a folder.
  for (const [from, to] of [
    ['tree', 'other'],
    ['other', 'tree'],
  ] as const) {
    await refuses(guest.move(at(from), at(to), { overwrite: true }), 'invalid_request')
  }
  await refuses(guest.move(at('other'), '/proc/x'), 'not_found')
  await symlink('nowhere', at('link'))
  await guest.move(at('link'), at('tree/link'))
  assert.equal((await guest.inspect(at('tree/link'))).target, 'nowhere')
})

test('entries: a move to another file system copies, and asks for the rights of its user', async () => {
  const other = `/dev/shm/atoll-entries-${process.pid}`
  const tree = join(folder, 'moved')
  await mkdir(join(tree, 'deep'), { recursive: true })
  await writeFile(join(tree, 'deep/file'), 'content', { mode: 0o750 })
  await guest.move(tree, other)
  try {
    assert.equal((await lstat(join(other, 'deep/file'))).mode & 0o777, 0o750)
    await refuses(guest.inspect(tree), 'not_found')
    await refuses(guest.move(other, tree, { user: 'nobody' }), 'forbidden', /permission denied/)
    await guest.move(other, tree)
    assert.equal(await readFile(join(tree, 'deep/file'), 'utf8'), 'content')
  } finally {
    await guest.remove(other).catch(() => undefined)
  }
})

test('entries: names that are no text are told apart, read, written, moved and removed', async () => {
  const odd = join(folder, 'odd')
  await mkdir(odd)
  const bytesOf = (name: number[]) => Buffer.concat([Buffer.from(`${odd}/`), Buffer.from(name)])
  for (const name of [[0xff], [0xfe], [0x61, 0xc3]]) await writeFile(bytesOf(name), String(name))
  await writeFile(join(odd, 'new\nline'), 'text')
  await writeFile(join(odd, 'n'.repeat(255)), 'text')
  const entries = await guest.list(odd)
  assert.deepEqual(
    entries.map(({ name }) => name),
    ['\\xfe', '\\xff', 'a\\xc3', 'new\nline', 'n'.repeat(255)].toSorted(),
  )
  assert.deepEqual(
    entries.map(({ pathBase64 }) => pathBase64 !== undefined),
    [true, true, true, false, false],
  )
  for (const { pathBase64 = '', name } of entries.filter((entry) => entry.pathBase64 !== undefined)) {
    const path = pathOfBase64(pathBase64) ?? ''
    const found = await guest.inspect(path)
    assert.deepEqual([found.name, found.pathBase64], [name, pathBase64])
    const { body } = await guest.readFile(path)
    assert.equal(
      String(Buffer.concat(await body.toArray())),
      String([...Buffer.from(pathBase64, 'base64')].slice(odd.length + 1)),
    )
  }
  const [from, to] = [pathOfBytes(bytesOf([0xff])), pathOfBytes(bytesOf([0xfd, 0x0a]))]
  await guest.move(from, to)
  await guest.writeFile(to, Readable.from([Buffer.from('written')]))
  await guest.mkdir(pathOfBytes(bytesOf([0xfc])))
  assert.equal(await readFile(bytesOf([0xfd, 0x0a]), 'utf8'), 'written')
  await guest.remove(to)
  await refuses(guest.stat(to), 'not_found', /\\xfd/)
  assert.equal((await readdir(odd)).length, 5)
})
