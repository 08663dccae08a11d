import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { mkdir, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Duplex } from 'node:stream'
import { test } from 'node:test'
import { eventually } from '../../lib/testing/eventually.ts'
import { refuses } from '../../lib/testing/refuses.ts'
import type { FileChange } from '../../sandbox/ports/guest.ts'
import type { FreezeReason } from '../../sandbox/ports/runtime-driver.ts'
import { createGuest } from './index.ts'
import { GuestProcess } from './testing/guest-process.ts'

const machine = await GuestProcess.startForFile()
const connections = new Set<Duplex>()
const guest = createGuest(async () => {
  const duplex = await machine.dial()
  duplex.on('error', () => undefined)
  connections.add(duplex)
  duplex.on('close', () => connections.delete(duplex))
  return duplex
})
const files = await machine.openFiles()
let count = 0

/** The guest notices after an abort that the client has gone. */
const released = () =>
  eventually(async () => (await machine.openFiles()) <= files, { what: 'no file of a watch is left open' })

/** A watched folder; `until` reads its changes up to one of this type and path. */
async function watched(options: { recursive?: boolean } = {}) {
  const folder = join(machine.folder, `watched-${count++}`)
  await mkdir(folder)
  const leave = new AbortController()
  const changes = (await guest.watch(folder, { ...options, signal: leave.signal }))[Symbol.asyncIterator]()
  const until = async (type: FileChange['type'], path?: string): Promise<FileChange[]> => {
    const all: FileChange[] = []
    for (;;) {
      const { value, done } = await changes.next()
      if (done === true) return all
      all.push(...value)
      const last = all.at(-1)
      if (
        all.some((it) => it.type === type && (path === undefined || ('path' in it && it.path === join(folder, path))))
      )
        return all
      assert.ok(last?.type !== 'ended', JSON.stringify(all))
    }
  }
  return { folder, until, leave, changes }
}

test('watch: changes of a tree are told in order, a rename as one, and an upload as a new file', async () => {
  const { folder, until, leave } = await watched({ recursive: true })
  await mkdir(join(folder, 'a'))
  await until('created', 'a')
  await writeFile(join(folder, 'a/x'), 'x')
  await until('modified', 'a/x')
  await rename(join(folder, 'a'), join(folder, 'b'))
  assert.deepEqual(await until('moved'), [
    { type: 'moved', path: join(folder, 'b'), from: join(folder, 'a'), isDir: true },
  ])
  await guest.writeFile(join(folder, 'b/y'), (await guest.readFile(join(folder, 'b/x'))).body)
  assert.deepEqual(await until('created'), [{ type: 'created', path: join(folder, 'b/y'), isDir: false }])
  await writeFile(Buffer.concat([Buffer.from(`${folder}/`), Buffer.from([0xff])]), '')
  const [odd] = await until('created')
  assert.deepEqual(odd, {
    type: 'created',
    path: join(folder, '\\xff'),
    pathBase64: Buffer.concat([Buffer.from(`${folder}/`), Buffer.from([0xff])]).toString('base64'),
    isDir: false,
  })
  await rm(join(folder, 'b'), { recursive: true })
  await until('removed', 'b')
  leave.abort()
  await assert.rejects(until('lost'), { name: 'AbortError' })
})

test('watch: without `recursive` folders below are not followed, and the end of the folder ends it', async () => {
  const { folder, until } = await watched()
  await mkdir(join(folder, 'sub'))
  await until('created', 'sub')
  await writeFile(join(folder, 'sub/file'), '')
  await rename(folder, `${folder}-moved`)
  assert.deepEqual(await until('ended'), [{ type: 'ended', reason: 'moved' }])
  const removed = await watched()
  await rm(removed.folder, { recursive: true })
  assert.deepEqual(await removed.until('ended'), [{ type: 'ended', reason: 'removed' }])
})

test('watch: what cannot be watched is refused', async () => {
  await writeFile(join(machine.folder, 'file'), '')
  await refuses(guest.watch(join(machine.folder, 'file')), 'invalid_request', /is no folder/)
  await refuses(guest.watch(join(machine.folder, 'none')), 'not_found')
  await mkdir(join(machine.folder, 'closed'), { mode: 0o700 })
  await refuses(guest.watch(join(machine.folder, 'closed'), { user: 'nobody' }), 'forbidden')
})

test('watch: a checkpoint in between is told as lost, and a hibernation is the end', async () => {
  const { folder, until, leave } = await watched()
  const freeze = (reason: FreezeReason) => connections.forEach((duplex) => duplex.emit('freeze', reason))
  const lost = until('lost')
  freeze('checkpoint')
  assert.deepEqual(await lost, [{ type: 'lost' }])
  await writeFile(join(folder, 'after'), '')
  await until('created', 'after')
  const end = until('ended')
  freeze('hibernate')
  assert.deepEqual(await end, [{ type: 'ended', reason: 'hibernated' }])
  leave.abort()
})

test('watch: those whose clients have gone are released, and more than a sandbox may have are refused', async () => {
  await released()
  const all = await Promise.all(Array.from({ length: 32 }, () => watched()))
  await refuses(guest.watch(machine.folder), 'unavailable', /more than 32 watches/)
  for (const { leave } of all) leave.abort()
  await released()
  const { leave } = await watched()
  leave.abort()
})

test('watch: more changes than the kernel keeps are told as lost', async () => {
  const { folder, until, leave } = await watched()
  // Nothing is read meanwhile: the guest waits with its socket full.
  for (let number = 0; number < 20_000; number++) writeFileSync(join(folder, `${'n'.repeat(200)}${number}`), '')
  await until('lost')
  await writeFile(join(folder, 'after'), '')
  await until('created', 'after')
  leave.abort()
})
