import assert from 'node:assert/strict'
import { link, mkdir, readdir, symlink, writeFile } from 'node:fs/promises'
import type { Socket } from 'node:net'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { afterEach, test } from 'node:test'
import fc from 'fast-check'
import { isServiceError } from '../../src/errors.ts'
import { defined } from '../../src/lib/defined.ts'
import { frameKind, payloadBytesMax } from '../../src/protocol/guest.ts'
import { GuestProcess } from '../../src/runtime/guest-client/testing/guest-process.ts'
import { freePort } from '../support/listen.ts'
import { frame, line } from './hostile-guest.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

/** A conversation that has not ended by then hangs. */
const hangMs = 60_000

const machine = await GuestProcess.startForFile()
const folder = join(machine.folder, 'fuzz')
await mkdir(folder)
/** A port of this machine on which nothing listens. */
const deadPort = await freePort()
const files = await machine.openFiles()
const threads = await machine.threads()

afterEach(async () => {
  assert.ok(machine.alive, 'the guest has died')
  await machine.guest.hello()
  for (const { id } of await machine.guest.processes()) await machine.guest.release(id)
  await eventually(async () => (await machine.openFiles()) <= files, { what: 'no file is left open' })
  await eventually(async () => (await machine.threads()) <= threads, { what: 'no thread is left' })
  await eventually(async () => (await machine.children()).length === 0, { what: 'no process is left' })
})

/** Sends all, ends, and returns what the guest said until it closed. */
async function converse(chunks: Uint8Array[]): Promise<Buffer> {
  const socket: Socket = await machine.dial()
  const received: Buffer[] = []
  // A guest that refuses early may break the connection.
  socket.on('error', () => undefined)
  socket.on('data', (chunk) => received.push(chunk))
  socket.on('end', () => socket.destroy())
  for (const chunk of chunks) socket.write(chunk)
  socket.end()
  const timer = setTimeout(() => socket.destroy(new Error('hangs')), hangMs)
  await new Promise<void>((resolve) => socket.once('close', () => resolve()))
  clearTimeout(timer)
  assert.notEqual(socket.errored?.message, 'hangs')
  return Buffer.concat(received)
}

/** The answer line of the guest, which is JSON whatever was asked; nothing when the request never ended. */
function answerOf(received: Buffer): { ok: boolean; code?: string } | undefined {
  if (received.length === 0) return undefined
  const end = received.indexOf(0x0a)
  assert.ok(end > 0, 'an answer without a line end')
  const answer: unknown = JSON.parse(received.subarray(0, end).toString())
  assert.ok(typeof answer === 'object' && answer !== null && 'ok' in answer && typeof answer.ok === 'boolean')
  return answer as { ok: boolean; code?: string }
}

test('guest server: random bytes are refused or ignored', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.uint8Array({ maxLength: 300 }), { maxLength: 5 }), async (chunks) => {
      const answer = answerOf(await converse(chunks))
      if (answer !== undefined) assert.deepEqual([answer.ok, answer.code], [false, 'invalid_request'])
    }),
    { numRuns: 300 },
  )
})

test('guest server: random JSON is refused', async () => {
  await fc.assert(
    fc.asyncProperty(fc.jsonValue({ maxDepth: 6 }), async (value) => {
      const answer = answerOf(await converse([line(value)]))
      assert.deepEqual([answer?.ok, answer?.code], [false, 'invalid_request'])
    }),
    { numRuns: 300 },
  )
})

test('guest server: lines past the bound and endless nesting are refused', async () => {
  const long = answerOf(await converse([Buffer.alloc(3 << 20, 'x')]))
  assert.ok(long === undefined || long.code === 'too_large')
  const deep = answerOf(await converse([Buffer.from(`${'['.repeat(500_000)}\n`)]))
  assert.equal(deep?.code, 'invalid_request')
  const wide = answerOf(await converse([line({ op: 'hello', x: Array.from({ length: 200_000 }, () => 0) })]))
  assert.equal(wide?.ok, true)
})

/** Inside the test's folder, or no path at all: the guest runs as whoever runs the tests. */
const anyPath = fc.oneof(
  fc.string().map((text) => (text.startsWith('/') ? folder + text.replaceAll('..', '.') : text.replace(/^\/+/, ''))),
  fc.constantFrom('', '.', 'x', '/\0', '~').map((path) => (path === '/\0' ? `${folder}/\0` : path)),
  fc.constantFrom('a', 'b', 'a/b', 'a/b/c', '.', '').map((path) => `${folder}/${path}`),
)
const anyId = fc.oneof(fc.constantFrom('one', 'two', 'three'), fc.string(), fc.jsonValue())
const anyInteger = fc.oneof(fc.integer(), fc.double(), fc.nat(200), fc.jsonValue())

/** Fields of every operation, right, nearly right and wrong; nothing that would reach outside the test. */
const anyRequest = fc.record(
  {
    op: fc.constantFrom(
      ...['hello', 'spawn', 'processes', 'process', 'output', 'attach', 'signal', 'resize', 'release', 'stat', 'list'],
      ...['mkdir', 'remove', 'read', 'write', 'ports', 'dial', 'configure', 'system-processes', 'nothing'],
      ...['inspect', 'move', 'watch', 'pack', 'unpack'],
    ),
    id: anyId,
    argv: fc.oneof(
      fc.constantFrom(['true'], ['cat'], ['sleep', '1000'], ['no-such-program'], ['/dev/null'], [], ['']),
      fc.array(fc.jsonValue(), { maxLength: 3 }).map((words) => ['echo', ...words]),
      fc.nat(),
    ),
    envs: fc.oneof(fc.dictionary(fc.string(), fc.string()), fc.jsonValue()),
    cwd: fc.oneof(fc.constantFrom('/', '/nonexistent', '/proc/self/fd', ''), fc.jsonValue()),
    user: fc.oneof(fc.constantFrom('root', 'nobody', '4242', 'no-such-user'), fc.jsonValue()),
    timeoutMs: anyInteger,
    maxRunAfterDisconnectMs: anyInteger,
    pty: fc.oneof(fc.record({ cols: anyInteger, rows: anyInteger }), fc.jsonValue()),
    stdin: fc.oneof(fc.boolean(), fc.jsonValue()),
    privatePorts: fc.oneof(fc.boolean(), fc.jsonValue()),
    keep: fc.constantFrom('tail', 'lossless', 'all', 1),
    keepBytes: anyInteger,
    waitMs: anyInteger,
    offset: anyInteger,
    credit: anyInteger,
    signal: anyInteger,
    cols: anyInteger,
    rows: anyInteger,
    path: anyPath,
    from: anyPath,
    to: anyPath,
    pathBase64: fc.oneof(fc.constantFrom('L3g=', '', 'x', null), fc.jsonValue()),
    overwrite: fc.oneof(fc.boolean(), fc.jsonValue()),
    recursive: fc.oneof(fc.boolean(), fc.jsonValue()),
    start: anyInteger,
    end: anyInteger,
    bytesMax: anyInteger,
    mode: fc.oneof(anyInteger, fc.constantFrom('755', 'u+x,go=r', '+', ''), fc.string()),
    owner: fc.oneof(fc.constantFrom('root', '5:6', 'no-such-user', ':'), fc.jsonValue()),
    asArchive: fc.oneof(fc.boolean(), fc.jsonValue()),
    followsFirst: fc.oneof(fc.boolean(), fc.jsonValue()),
    port: fc.constantFrom(0, -1, 70_000, 'x', null, deadPort),
    seed: fc.oneof(fc.constantFrom('00ff', 'x', ''), fc.jsonValue()),
    loopback: fc.constantFrom(true, 'x'),
  },
  { requiredKeys: ['op'] },
)

const anyFrame = fc.oneof(
  fc.tuple(fc.constantFrom(...Object.values(frameKind)), fc.uint8Array({ maxLength: 100 })),
  fc.tuple(fc.constantFrom(frameKind.credit, frameKind.acknowledge), fc.uint8Array({ minLength: 8, maxLength: 8 })),
  fc.tuple(fc.nat(255), fc.uint8Array({ maxLength: 20 })),
)
const anyItem = fc.oneof(
  fc.record({ path: anyPath, name: fc.oneof(fc.constantFrom('', 'a', 'a/b', '/', '..'), fc.string()) }),
  fc.record({ skip: anyPath }),
  fc.jsonValue(),
)
const anyFrames = fc.array(
  fc.oneof(
    fc.array(anyItem, { maxLength: 4 }).map((items) => frame(frameKind.entries, Buffer.from(JSON.stringify(items)))),
    anyFrame.map(([kind, payload]) => frame(kind, payload)),
    fc.uint8Array({ maxLength: 12 }),
    fc.nat(payloadBytesMax + 10).map((length) => frame(frameKind.data, Buffer.alloc(length))),
  ),
  { maxLength: 8 },
)

test('guest server: mutated requests with any frames are answered and release everything', async () => {
  await fc.assert(
    fc.asyncProperty(anyRequest, anyFrames, async (request, frames) => {
      const answer = answerOf(await converse([line(request), ...frames]))
      assert.ok(answer !== undefined)
      if (!answer.ok) assert.notEqual(answer.code, 'internal_error')
    }),
    { numRuns: 1500 },
  )
})

test('guest server: any frames to a process and to an upload leave the guest working', async () => {
  let count = 0
  await fc.assert(
    fc.asyncProperty(anyFrames, fc.boolean(), fc.boolean(), async (frames, terminal, lossless) => {
      const id = `fuzz-${++count}`
      await machine.guest.spawn({
        id,
        argv: ['cat'],
        envs: {},
        stdin: true,
        keepBytes: 1000,
        keep: lossless ? 'lossless' : 'tail',
        ...defined({ pty: terminal ? { cols: 80, rows: 24 } : undefined }),
      })
      assert.equal(answerOf(await converse([line({ op: 'attach', id, credit: 100 }), ...frames]))?.ok, true)
      assert.equal(answerOf(await converse([line({ op: 'write', path: join(folder, 'upload') }), ...frames]))?.ok, true)
      await machine.guest.release(id)
    }),
    { numRuns: 200 },
  )
})

test('guest server: no archive leads out of its folder or stops the guest', async () => {
  const [source, target] = [join(folder, 'source'), join(folder, 'outer', 'target')]
  await mkdir(join(source, 'a/b'), { recursive: true })
  for (const name of ['a/file', 'a/b/other']) await writeFile(join(source, name), 'content')
  await symlink('../..', join(source, 'up'))
  await symlink('a/file', join(source, 'a/link'))
  await link(join(source, 'a/file'), join(source, 'again'))
  const tar = Buffer.concat(await (await machine.guest.pack([{ path: source, name: '' }])).toArray())
  const anyName = fc.constantFrom(
    'a',
    'a/file',
    'up',
    'up/x',
    'up/target',
    'again',
    '..',
    '../x',
    '/',
    './a',
    'a/link',
    '',
  )
  const anyChange = fc.oneof(
    // A name, the target of a link, or the type of an entry.
    fc.record({ at: fc.constantFrom(0, 157), text: anyName.map((name) => `${name}\0`) }),
    fc.record({ at: fc.constant(156), text: fc.constantFrom(...'01234567xgLKS'.split(''), '\0') }),
    fc.record({ at: fc.nat(511), text: fc.string({ maxLength: 9 }) }),
  )
  const entries = tar.length / 512
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.tuple(fc.nat(entries - 1), anyChange, fc.boolean()), { minLength: 1, maxLength: 4 }),
      fc.boolean(),
      async (changes, asArchive) => {
        const changed = Buffer.from(tar)
        for (const [entry, { at, text }, isSealed] of changes) {
          const block = changed.subarray(entry * 512, entry * 512 + 512)
          block.write(text.slice(0, 512 - at), at, 'latin1')
          if (isSealed) seal(block)
        }
        await mkdir(target, { recursive: true })
        await machine.guest.unpack(Readable.from([changed]), { target, asArchive }).catch((error: unknown) => {
          assert.ok(isServiceError(error) && error.code !== 'unavailable', String(error))
        })
        assert.deepEqual(await readdir(join(folder, 'outer')), ['target'])
        await machine.guest.remove(target)
      },
    ),
    { numRuns: 500 },
  )
})

/** Writes the checksum of a header. */
function seal(block: Buffer): void {
  block.write('        ', 148, 'latin1')
  const sum = block.reduce((all, byte) => all + byte, 0)
  block.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1')
}

test('guest server: hundreds of idle connections are served, more are refused, and all of them close', async () => {
  const sockets: Socket[] = []
  // Idle ones are closed after a while, so on a busy machine any of them may be the first that is refused.
  const refused = Promise.withResolvers<void>()
  for (let index = 0; index < 600; index++) {
    const socket = await machine.dial()
    socket.on('error', () => undefined)
    socket.on('data', (bytes: Buffer) => bytes.includes('"code":"unavailable"') && refused.resolve())
    sockets.push(socket)
  }
  await refused.promise
  for (const socket of sockets) socket.destroy()
  await eventually(
    () =>
      machine.guest.hello().then(
        () => true,
        () => false,
      ),
    { what: 'it answers again' },
  )
})
