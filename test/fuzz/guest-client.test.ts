import assert from 'node:assert/strict'
import { Readable } from 'node:stream'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import fc from 'fast-check'
import { isServiceError } from '../../src/errors.ts'
import { frameKind, lineBytesMax, payloadBytesMax } from '../../src/protocol/guest.ts'
import { createGuest } from '../../src/runtime/guest-client/index.ts'
import { refuses } from '../../src/lib/testing/refuses.ts'
import type { Guest } from '../../src/sandbox/ports/guest.ts'
import {
  drain,
  type Ending,
  frame,
  guestThat,
  hostile,
  json,
  line,
  ok,
  stat,
  timeouts,
  uint64,
} from './hostile-guest.ts'

/** A call that has not ended by then hangs; the client's own wait is far shorter, also on a busy machine. */
const hangMs = 60_000

const process = {
  id: 'x',
  pid: 7,
  argv: ['true'],
  running: false,
  exitCode: 0,
  startedSeconds: 1_700_000_000,
  endedSeconds: 1_700_000_001,
  attachedClients: 0,
  pty: false,
}
const systemProcess = {
  pid: 7,
  parentPid: 1,
  user: 'root',
  command: 'true',
  state: 'S',
  memoryBytes: 4096,
  cpuMs: 10,
  startedSeconds: 1_700_000_000,
}
const output = [
  frame(frameKind.stdout, uint64(0), Buffer.from('out')),
  frame(frameKind.stderr, uint64(3), Buffer.from('err')),
]

/** Every operation: how it is called, and an answer that it takes. */
const operations: Record<string, { call: (guest: Guest) => Promise<unknown>; answer: Buffer[]; follows?: true }> = {
  hello: {
    call: (guest) => guest.hello(),
    answer: [line({ ok: true, version: '1.0.0', protocol: 1, connections: 1 })],
  },
  spawn: {
    call: (guest) => guest.spawn({ id: 'x', argv: ['true'], envs: {} }),
    answer: [line({ ok: true, process: { ...process, running: true, exitCode: undefined, endedSeconds: undefined } })],
  },
  run: {
    call: (guest) => guest.run({ id: 'x', argv: ['true'], envs: {} }, { waitMs: 5, bytesMax: 6 }),
    answer: [line({ ok: true, process, output: true }), ...output, frame(frameKind.end, json({ truncated: false }))],
  },
  processes: {
    call: (guest) => guest.processes(),
    answer: [line(ok), frame(frameKind.entries, json([process, process])), frame(frameKind.end)],
  },
  process: { call: (guest) => guest.process('x', 5), answer: [line({ ok: true, process })] },
  output: {
    call: (guest) => guest.output('x'),
    answer: [line(ok), ...output, frame(frameKind.end, json({ truncated: false }))],
  },
  attach: {
    call: async (guest) => {
      await using attachment = await guest.attach('x')
      await Promise.all([
        drain(attachment),
        attachment.write(Buffer.from('input')).catch((error: unknown) => assert.ok(isServiceError(error))),
        attachment.acknowledge(3).catch((error: unknown) => assert.ok(isServiceError(error))),
      ])
    },
    answer: [
      line({ ok: true, input: true, taken: 0, inputEnded: false }),
      ...output,
      frame(frameKind.replayed, uint64(6)),
      frame(frameKind.taken, uint64(5)),
      frame(frameKind.exit, Buffer.from([0, 0, 0, 3])),
    ],
    follows: true,
  },
  signal: { call: (guest) => guest.signal('x', 15), answer: [line(ok)] },
  resize: { call: (guest) => guest.resize('x', 80, 24), answer: [line(ok)] },
  release: { call: (guest) => guest.release('x'), answer: [line(ok)] },
  stat: { call: (guest) => guest.stat('/x'), answer: [line({ ok: true, stat })] },
  list: {
    call: (guest) => guest.list('/x'),
    answer: [line(ok), frame(frameKind.entries, json([{ ...stat, name: 'x' }])), frame(frameKind.end)],
  },
  mkdir: { call: (guest) => guest.mkdir('/x'), answer: [line(ok)] },
  inspect: {
    call: (guest) => guest.inspect('/x'),
    answer: [line({ ok: true, entry: { ...stat, name: 'x', type: 'symlink', uid: 0, gid: 0, target: 'y' } })],
  },
  watch: {
    call: async (guest) => {
      for await (const changes of await guest.watch('/x', { recursive: true })) assert.ok(changes.length > 0)
    },
    answer: [
      line(ok),
      frame(frameKind.entries, json([{ type: 'created', path: '/x/y', isDir: false }, { type: 'lost' }])),
      frame(frameKind.result, json({ ok: true, ended: 'removed' })),
    ],
    follows: true,
  },
  readFile: {
    call: async (guest) => drain((await guest.readFile('/x')).body),
    answer: [
      line({ ok: true, stat, length: 6, version: '1' }),
      frame(frameKind.data, Buffer.from('abc')),
      frame(frameKind.data, Buffer.from('def')),
      frame(frameKind.end),
    ],
  },
  writeFile: {
    call: (guest) => guest.writeFile('/x', Readable.from([Buffer.from('hello')])),
    answer: [line({ ok: true, bytes: 0 }), frame(frameKind.result, json({ ok: true, bytes: 5 }))],
  },
  pack: {
    call: async (guest) => drain(await guest.pack([{ path: '/x', name: 'y' }], { skip: ['/x/z'] })),
    answer: [
      line(ok),
      frame(frameKind.data, Buffer.from('abc')),
      frame(frameKind.data, Buffer.from('def')),
      frame(frameKind.end),
    ],
  },
  unpack: {
    call: (guest) => guest.unpack(Readable.from([Buffer.from('hello')]), { target: '/x' }),
    answer: [
      line(ok),
      frame(frameKind.result, json({ ok: true, files: 1, bytes: 5, devices: 0, attributes: 0, hidden: 0 })),
    ],
  },
  ports: { call: (guest) => guest.ports(), answer: [line({ ok: true, ports: [80, 22] })] },
  listeners: {
    call: (guest) => guest.listeners(),
    answer: [line({ ok: true, ports: [80], listeners: [{ port: 80, address: '::', pid: 7, command: 'x' }] })],
  },
  systemProcesses: {
    call: (guest) => guest.systemProcesses(),
    answer: [line(ok), frame(frameKind.entries, json([systemProcess, systemProcess])), frame(frameKind.end)],
  },
  systemSignal: { call: (guest) => guest.systemSignal(7, 15), answer: [line(ok)] },
  dial: { call: async (guest) => (await guest.dial(80)).destroy(), answer: [line(ok), Buffer.from('raw')] },
}
const names = Object.keys(operations)

/** The call ends, well or with a `ServiceError`, and its connection is closed. */
async function endsWell(name: string, chunks: Uint8Array[], ending: Ending): Promise<boolean> {
  const operation = operations[name]
  assert.ok(operation !== undefined)
  const { guest, open } = hostile(chunks, operation.follows === true && ending === 'stall' ? 'end' : ending)
  let succeeded = true
  const timer = new AbortController()
  const guard = sleep(hangMs, 'hangs', { signal: timer.signal }).catch(() => 'ended')
  const call = operation.call(guest).catch((error: unknown) => {
    assert.ok(isServiceError(error), `${name}: ${String(error)}`)
    succeeded = false
  })
  const first = await Promise.race([call, guard])
  assert.notEqual(first, 'hangs', name)
  timer.abort()
  await call
  assert.equal(open(), 0, `${name}: a connection stays open`)
  return succeeded
}

function cut(bytes: Buffer, sizes: number[]): Uint8Array[] {
  const chunks: Uint8Array[] = []
  let at = 0
  for (let index = 0; at < bytes.length; index++) {
    const size = (sizes[index % sizes.length] ?? 1) + 1
    chunks.push(bytes.subarray(at, at + size))
    at += size
  }
  return chunks
}

const anyName = fc.constantFrom(...names)
const anySizes = fc.array(fc.nat(200), { minLength: 1, maxLength: 5 })
const anyEnding = fc.constantFrom<Ending>('end', 'end', 'end', 'destroy', 'stall')

test('guest client: every operation takes its answer in any pieces', async () => {
  // An upload that is confirmed before it was sent is none.
  const uploads = ['writeFile', 'unpack']
  const prompt = names.filter((name) => !uploads.includes(name))
  for (const name of uploads) assert.equal(await endsWell(name, operations[name]?.answer ?? [], 'end'), false)
  for (const name of prompt) {
    assert.ok(await endsWell(name, operations[name]?.answer ?? [], 'end'), name)
  }
  await fc.assert(
    fc.asyncProperty(fc.constantFrom(...prompt), anySizes, async (name, sizes) => {
      const bytes = Buffer.concat(operations[name]?.answer ?? [])
      assert.ok(await endsWell(name, cut(bytes, sizes), 'end'), name)
    }),
    { numRuns: 300 },
  )
})

test('guest client: random answers end every operation with a ServiceError', async () => {
  await fc.assert(
    fc.asyncProperty(
      anyName,
      fc.array(fc.uint8Array({ maxLength: 200 }), { maxLength: 4 }),
      anyEnding,
      async (...it) => {
        assert.equal(await endsWell(...it), false)
      },
    ),
    { numRuns: 500 },
  )
})

test('guest client: random JSON answers end every operation', async () => {
  await fc.assert(
    fc.asyncProperty(anyName, fc.jsonValue(), fc.jsonValue(), anyEnding, async (name, first, second, ending) => {
      const answer = { ok: true, process: second, stat: second, ports: second, length: second, input: second }
      await endsWell(name, [line(first)], ending)
      await endsWell(name, [line(answer), frame(frameKind.entries, json(second))], ending)
    }),
    { numRuns: 300 },
  )
})

test('guest client: mutated answers end every operation', async () => {
  const anyMutation = fc.record({
    at: fc.double({ min: 0, max: 1, noNaN: true }),
    remove: fc.nat(6),
    insert: fc.oneof(fc.uint8Array({ maxLength: 6 }), fc.constant(Buffer.from([0, 0xff, 0xff, 0xff, 0xff]))),
  })
  await fc.assert(
    fc.asyncProperty(
      anyName,
      fc.array(anyMutation, { minLength: 1, maxLength: 3 }),
      anySizes,
      anyEnding,
      async (name, mutations, sizes, ending) => {
        let bytes = Buffer.concat(operations[name]?.answer ?? [])
        for (const { at, remove, insert } of mutations) {
          const from = Math.floor(at * bytes.length)
          bytes = Buffer.concat([bytes.subarray(0, from), insert, bytes.subarray(from + remove)])
        }
        await endsWell(name, cut(bytes, sizes), ending)
      },
    ),
    { numRuns: 2000 },
  )
})

test('guest client: an endless answer is cut off at the bounds', async () => {
  const long = `/${'x'.repeat(1000)}`
  const entries = (count: number, entry: object) =>
    frame(frameKind.entries, json(Array.from({ length: count }, () => entry)))
  const file = { ...stat, name: 'x' }
  const streams: [name: string, start: Buffer, repeat: Buffer, bytesMax: number][] = [
    ['hello', Buffer.alloc(0), Buffer.alloc(65_536, 'x'), lineBytesMax],
    ['list', line(ok), entries(500, file), 16 << 20],
    ['list', line(ok), entries(200, { ...file, path: long }), 32 << 20],
    ['output', line(ok), frame(frameKind.stdout, uint64(0), Buffer.alloc(payloadBytesMax - 8)), 18 << 20],
    ['run', line({ ok: true, process, output: true }), frame(frameKind.stdout, uint64(0), Buffer.alloc(5)), 100],
    ['attach', line({ ok: true, input: false }), frame(frameKind.stdout, uint64(0), Buffer.alloc(1000)), 512 << 10],
    ['readFile', line({ ok: true, stat, length: 6 }), frame(frameKind.data, Buffer.alloc(5)), 100],
    ['pack', line(ok), frame(frameKind.data), 100],
    ['processes', line(ok), entries(0, process), 100],
    ['processes', line(ok), entries(256, process), 2 << 20],
  ]
  for (const [name, start, repeat, bytesMax] of streams) {
    let sent = 0
    const { guest } = guestThat((server, client) => {
      server.write(start)
      const more = (): void => {
        while (!client.destroyed) {
          sent += repeat.length
          if (!server.write(repeat)) return
        }
      }
      server.on('drain', more)
      more()
    }, timeouts)
    await assert.rejects(operations[name]?.call(guest) ?? Promise.resolve(), (error) => isServiceError(error), name)
    assert.ok(sent <= bytesMax + 4 * Math.max(65_536, repeat.length), `${name} took ${sent} bytes`)
  }
})

test('guest client: a run takes no more output than it has asked for, and no other answer', async () => {
  const frames = (...parts: Buffer[]) => [...parts, frame(frameKind.end, json({ truncated: false }))]
  const [out, err] = [Buffer.from('out'), Buffer.from('err!')].map((data) => [uint64(0), data] as const)
  for (const answer of [
    [
      line({ ok: true, process, output: true }),
      ...frames(frame(frameKind.stdout, ...out!), frame(frameKind.stderr, ...err!)),
    ],
    [line({ ok: true, process, output: true }), ...frames(frame(frameKind.data, ...out!))],
    [line({ ok: true, process, output: 'yes' })],
    [line({ ok: true, process })],
    [line({ ok: true, output: false })],
  ]) {
    const { guest, open } = hostile(answer, 'end')
    await refuses(operations['run']!.call(guest), 'unavailable', /answers nonsense/)
    assert.equal(open(), 0)
  }
  const { guest } = hostile([line({ ok: true, process, output: false })], 'end')
  assert.equal((await guest.run({ id: 'x', argv: ['true'], envs: {} }, { waitMs: 5, bytesMax: 6 })).output, undefined)
})

test('guest client: all retained output is taken, also in tiny pieces', async () => {
  // As guests send it whose processes write to both streams in turns: the offsets alone are megabytes.
  const [bytes, pieceBytes] = [16 << 20, 32]
  const pieces = frame(frameKind.stdout, uint64(0), Buffer.alloc(pieceBytes, 'x'))
  const many = Buffer.concat(Array.from({ length: 1024 }, () => pieces))
  const chunks = Array.from({ length: bytes / pieceBytes / 1024 }, () => many)
  const { guest } = hostile([line(ok), ...chunks, frame(frameKind.end, json({ truncated: false }))], 'end', {})
  const { stdout, stderr } = await guest.output('x')
  assert.ok(stdout.equals(Buffer.alloc(bytes, 'x')))
  assert.equal(stderr.length, 0)
})

test('guest client: a fault of the guest is thrown with its code, and nothing else of it is trusted', async () => {
  const { guest } = hostile([line({ ok: false, code: 'not_found', message: 'no such file' })], 'end')
  await assert.rejects(
    guest.stat('/x'),
    (error: Error) => isServiceError(error, 'not_found') && error.message === 'no such file',
  )
  for (const fault of [
    { ok: false, code: 'unauthorized', message: 'x' },
    { ok: false, code: 'internal_error', message: 'x' },
    { ok: false, code: 'not_found', message: 'x'.repeat(5000) },
    { ok: false },
    { ok: 'true' },
  ]) {
    await refuses(hostile([line(fault)], 'end').guest.stat('/x'), 'unavailable', /answers nonsense/)
  }
})

test('guest client: no answer of a guest is a fault of the server', async () => {
  for (const name of names) {
    const { guest: liar } = hostile([Buffer.from('{"ok":"perhaps"}\n')], 'end')
    await refuses(operations[name]?.call(liar) ?? Promise.resolve(), 'unavailable')
  }
})

/** Asserts that the client gives up on a guest that sends `start` and then `drop` more often than the timeouts. */
async function givesUp(name: string, start: Buffer, drop: Buffer): Promise<void> {
  const timers: NodeJS.Timeout[] = []
  const { guest } = guestThat(
    (server) => {
      server.write(start)
      timers.push(setInterval(() => server.write(drop), 5))
    },
    { ...timeouts, collectTimeoutMs: 100 },
  )
  const timer = new AbortController()
  const call = operations[name]?.call(guest) ?? Promise.resolve()
  try {
    const hangs = sleep(hangMs, undefined, { signal: timer.signal }).then(() => assert.fail(`${name} hangs`))
    await refuses(Promise.race([call, hangs]), 'unavailable', /did not answer within/, name)
  } finally {
    timer.abort()
    for (const drips of timers) clearInterval(drips)
    await call.catch(() => undefined)
  }
}

test('guest client: an answer that arrives byte by byte times out in every operation', async () => {
  await Promise.all(names.map((name) => givesUp(name, Buffer.from('{"ok":'), Buffer.from(' '))))
})

test('guest client: a frame that arrives byte by byte times out, and so does an answer of endless frames', async () => {
  const half = frame(frameKind.entries, Buffer.alloc(200_000)).subarray(0, 10)
  const entry = frame(frameKind.entries, json([{ ...stat, name: 'x' }]))
  const oneByte = frame(frameKind.stdout, uint64(0), Buffer.from('x'))
  await Promise.all([
    givesUp('list', Buffer.concat([line(ok), half]), Buffer.from('x')),
    givesUp('list', line(ok), entry),
    givesUp('output', line(ok), oneByte),
  ])
})

test('guest client: a connection that cannot be opened fails with the error of the dial', async () => {
  const guest = createGuest(async () => {
    throw new Error('no route')
  })
  await assert.rejects(guest.hello(), /no route/)
})
