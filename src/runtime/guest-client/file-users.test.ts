import assert from 'node:assert/strict'
import { once } from 'node:events'
import { chmod, chown, mkdir, readdir, readFile, rename, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PassThrough, Readable } from 'node:stream'
import { before, test } from 'node:test'
import { isServiceError } from '../../errors.ts'
import { refuses } from '../../lib/testing/refuses.ts'
import { GuestProcess } from './testing/guest-process.ts'

const machine = await GuestProcess.startForFile()
const { guest } = machine
const nobody = 65_534
const user = 'nobody'
/** Of the user, with a link to each of what is root's alone. */
const home = join(machine.folder, 'home')
const secret = join(machine.folder, 'root/secret')

function bodyOf(text: string): Readable {
  return Readable.from([Buffer.from(text)])
}

async function read(path: string, as?: string): Promise<string> {
  const { body } = await guest.readFile(path, as === undefined ? {} : { user: as })
  return Buffer.concat(await body.toArray()).toString()
}

before(async () => {
  await chmod(machine.folder, 0o755)
  await mkdir(home)
  await chown(home, nobody, nobody)
  await mkdir(join(machine.folder, 'root/open'), { recursive: true })
  await writeFile(secret, 'secret')
  await writeFile(join(machine.folder, 'root/open/file'), 'within')
  await chmod(join(machine.folder, 'root'), 0o700)
  await symlink(secret, join(home, 'file'))
  await symlink(join(machine.folder, 'root'), join(home, 'folder'))
})

test("file user: links to what is root's lead nowhere", async () => {
  for (const path of [secret, join(home, 'file'), join(home, 'folder/secret'), join(home, 'folder/open/file')]) {
    await refuses(guest.readFile(path, { user }), 'forbidden', /permission denied/)
    await refuses(guest.stat(path, user), 'forbidden')
    await refuses(guest.writeFile(path, bodyOf('x'), { user }), 'forbidden')
  }
  await refuses(guest.list(join(home, 'folder'), user), 'forbidden')
  await refuses(guest.mkdir(join(home, 'folder/new/er'), user), 'forbidden')
  await refuses(guest.writeFile(join(home, 'folder/new/er'), bodyOf('x'), { user }), 'forbidden')
  await refuses(guest.remove(join(home, 'folder/secret'), user), 'forbidden')
  await refuses(guest.remove(join(home, 'folder/open'), user), 'forbidden')
  assert.deepEqual((await readdir(join(machine.folder, 'root'))).toSorted(), ['open', 'secret'])
  assert.equal(await readFile(secret, 'utf8'), 'secret')
})

test('file user: root, and who says nothing, reads, writes and lists by those links', async () => {
  assert.equal(await read(join(home, 'file')), 'secret')
  assert.equal(await read(join(home, 'folder/secret'), 'root'), 'secret')
  assert.equal((await guest.list(join(home, 'folder'), 'root')).length, 2)
  await guest.writeFile(join(home, 'folder/made/file'), bodyOf('x'), { user: 'root' })
  assert.equal((await stat(join(machine.folder, 'root/made/file'))).uid, 0)
  await guest.remove(join(home, 'folder/made'), 'root')
})

test('file user: what is made belongs to the user and is read, listed, replaced and removed as that user', async () => {
  const path = join(home, 'a/b/c')
  await guest.writeFile(path, bodyOf('one'), { user, mode: 0o600 })
  await guest.writeFile(path, bodyOf('two'), { user })
  await guest.mkdir(join(home, 'a/d'), user)
  for (const name of ['a', 'a/b', 'a/b/c', 'a/d']) assert.equal((await stat(join(home, name))).uid, nobody, name)
  assert.equal((await stat(path)).mode & 0o7777, 0o600)
  assert.equal(await read(path, user), 'two')
  assert.equal((await guest.stat(path, user)).size, 3)
  assert.deepEqual(
    (await guest.list(join(home, 'a'), user)).map(({ name, path: found }) => [name, found]),
    [
      ['b', join(home, 'a/b')],
      ['d', join(home, 'a/d')],
    ],
  )
  await guest.remove(join(home, 'a'), user)
  assert.ok(!(await readdir(home)).includes('a'))
})

test("file user: a listing shows a link to what is root's as the link itself", async () => {
  const entries = new Map((await guest.list(home, user)).map((entry) => [entry.name, entry]))
  assert.equal(entries.get('file')?.size, Buffer.byteLength(secret))
  await refuses(guest.list(join(home, 'folder'), user), 'forbidden')
})

test('file user: a group alone gives its rights, and of a user all of his', async () => {
  const path = join(machine.folder, 'of-group')
  await writeFile(path, 'shared')
  await chown(path, 0, 12)
  await chmod(path, 0o640)
  await refuses(guest.readFile(path, { user }), 'forbidden')
  assert.equal(await read(path, 'nobody:12'), 'shared')
  const made = join(home, 'made-by-group')
  await guest.writeFile(made, bodyOf('x'), { user: 'nobody:12' })
  assert.deepEqual([(await stat(made)).uid, (await stat(made)).gid], [nobody, 12])
})

test('file user: the groups of the guest give a user nothing', async () => {
  const ofGroup = join(machine.folder, 'of-root-group')
  await mkdir(ofGroup)
  await writeFile(join(ofGroup, 'file'), 'x')
  await chown(ofGroup, 1, 0)
  await chmod(ofGroup, 0o770)
  await refuses(guest.list(ofGroup, user), 'forbidden')
  await refuses(guest.readFile(join(ofGroup, 'file'), { user }), 'forbidden')
  await refuses(guest.writeFile(join(ofGroup, 'new'), bodyOf('x'), { user }), 'forbidden')
})

test('file user: a file is replaced by who may write it alone', async () => {
  const path = join(home, 'of-root')
  await writeFile(path, 'old')
  await refuses(guest.writeFile(path, bodyOf('new'), { user }), 'forbidden')
  assert.equal(await readFile(path, 'utf8'), 'old')
  await chown(path, 1, 1)
  await chmod(path, 0o4766)
  await guest.writeFile(path, bodyOf('new'), { user })
  const replaced = await stat(path)
  assert.deepEqual([replaced.uid, replaced.mode & 0o7777], [nobody, 0o766])
  assert.deepEqual(
    (await readdir(home)).filter((name) => name.includes('.atoll-')),
    [],
  )
})

test('file user: what the guest itself has open is not reached by links to it', async () => {
  const inFolder = join(machine.folder, 'root/open/large')
  await writeFile(inFolder, Buffer.alloc(4 << 20))
  const { body } = await guest.readFile(inFolder)
  try {
    await once(body, 'readable')
    const open = `/proc/${machine.pid}/fd`
    const names = await readdir(open)
    await symlink('/proc/self/fd', join(home, 'fd'))
    let tried = 0
    for (const name of names) {
      const target = await guest.stat(`${open}/${name}`).catch(() => undefined)
      if (target?.size !== 4 << 20) continue
      tried += 1
      for (const path of [`${open}/${name}`, join(home, 'fd', name)]) {
        await assert.rejects(guest.readFile(path, { user }), (error) => isServiceError(error), path)
        await assert.rejects(guest.stat(path, user), (error) => isServiceError(error), path)
      }
    }
    assert.equal(tried, 1)
  } finally {
    body.destroy()
  }
})

test("file user: a link that is swapped all the time leads to nothing that is root's", async () => {
  const place = join(home, 'swapped')
  await mkdir(join(home, 'good'))
  await chown(join(home, 'good'), nobody, nobody)
  await writeFile(join(home, 'good/secret'), 'public')
  await chmod(join(home, 'good/secret'), 0o666)
  const swap = { over: false }
  const swapping = (async () => {
    for (let count = 0; !swap.over; count++) {
      await symlink(count % 2 === 0 ? join(machine.folder, 'root') : join(home, 'good'), `${place}.next`)
      await rename(`${place}.next`, place)
    }
  })()
  let succeeded = 0
  let refused = 0
  for (let attempt = 0; (attempt < 300 || succeeded === 0 || refused === 0) && attempt < 5000; attempt++) {
    try {
      assert.equal(await read(join(place, 'secret'), user), 'public')
      await guest.writeFile(join(place, 'secret'), bodyOf('public'), { user })
      succeeded += 1
    } catch (error) {
      if (!isServiceError(error)) throw error
      refused += 1
    }
  }
  swap.over = true
  await swapping
  assert.ok(succeeded > 0 && refused > 0)
  assert.equal(await readFile(secret, 'utf8'), 'secret')
  await rm(place)
})

test('file user: an upload as a user goes on as that user after a pause', async () => {
  const path = join(home, 'paused')
  const socket = await machine.dial()
  socket.write(`${JSON.stringify({ op: 'write', path, user })}\n`)
  socket.write(Buffer.from([1, 0, 0, 0, 1, 65, 5, 0, 0, 0, 0]))
  const answer = Buffer.concat(await socket.toArray()).toString()
  const token = /"paused":"(\w+)"/.exec(answer)?.[1]
  const again = await machine.dial()
  again.write(`${JSON.stringify({ op: 'write', path, user, resume: token })}\n`)
  again.write(Buffer.from([1, 0, 0, 0, 1, 66, 2, 0, 0, 0, 0]))
  await again.toArray()
  assert.equal(await readFile(path, 'utf8'), 'AB')
  assert.equal((await stat(path)).uid, nobody)
})

test('file user: calls as many users at once have each their own rights, and the guest stays root', async () => {
  const body = new PassThrough()
  const writing = guest.writeFile(join(home, 'slow'), body, { user })
  body.write('x')
  const calls = Array.from({ length: 60 }, async (_, index) => {
    if (index % 2 === 0) assert.equal(await read(secret), 'secret')
    else await refuses(guest.readFile(secret, { user: String(2000 + index) }), 'forbidden')
  })
  await Promise.all(calls)
  body.end()
  await writing
  const { stdout } = await machine.run(['sh', '-c', 'id -u; cat /proc/self/oom_score_adj'])
  assert.match(stdout.toString(), /^0\n\d+\n$/)
  assert.match(await readFile(`/proc/${machine.pid}/status`, 'utf8'), /^Uid:\t0\t0\t0\t0$/m)
})

test('file user: an unknown user is refused by each call', async () => {
  const as = 'no-such-user'
  for (const call of [
    () => guest.stat(home, as),
    () => guest.list(home, as),
    () => guest.mkdir(join(home, 'x'), as),
    () => guest.remove(join(home, 'x'), as),
    () => guest.readFile(home, { user: as }),
    () => guest.writeFile(join(home, 'x'), bodyOf('x'), { user: as }),
  ]) {
    await refuses(call(), 'invalid_request', /^user: no user/)
  }
})
