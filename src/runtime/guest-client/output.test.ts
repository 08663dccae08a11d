import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Attachment, AttachmentEvent } from '../../sandbox/ports/guest.ts'
import { refuses } from '../../lib/testing/refuses.ts'
import { GuestProcess } from './testing/guest-process.ts'
import { eventually } from '../../lib/testing/eventually.ts'

const machine = await GuestProcess.startForFile()
const { guest } = machine

async function all(attachment: Attachment): Promise<AttachmentEvent[]> {
  const events: AttachmentEvent[] = []
  for await (const event of attachment) events.push(event)
  return events
}

function text(events: AttachmentEvent[], stream?: string): string {
  const chunks = events.flatMap((event) =>
    event.type === 'output' && (stream === undefined || event.stream === stream) ? [event.data] : [],
  )
  return Buffer.concat(chunks).toString()
}

test('output: it is one log in order with absolute offsets, and the exit is last', async () => {
  const expected = 'out1\nerr1\nout2\nerr2\nout3\nerr3\n'
  // Each line is asked for: of two pipes that hold something at once, the guest cannot know which was written to first.
  const script = 'for i in 1 2 3; do echo out$i; read go; echo err$i >&2; test $i = 3 || read go; done; exit 7'
  await guest.spawn({ id: 'order', argv: ['sh', '-c', script], envs: {}, stdin: true })
  await using attachment = await guest.attach('order')
  const events: AttachmentEvent[] = []
  for await (const event of attachment) {
    events.push(event)
    if (event.type === 'output' && text(events) !== expected) await attachment.write(Buffer.from('\n'))
  }
  assert.equal(text(events), expected)
  assert.deepEqual(events.at(-1), { type: 'exit', exitCode: 7 })
  let offset = 0
  for (const event of events) {
    if (event.type !== 'output') continue
    assert.equal(event.offset, offset)
    offset += event.data.length
  }
  assert.equal(offset, 30)
  assert.equal(events.filter((event) => event.type === 'replayed').length, 1)
})

test('output: retained output is replayed from any offset', async () => {
  const argv = ['sh', '-c', 'printf 0123456789; read go; printf abc >&2']
  await guest.spawn({ id: 'replay', argv, envs: {}, stdin: true })
  await using first = await guest.attach('replay')
  // Asked for behind what is there: of two pipes that hold something at once, the guest cannot know which was written to first.
  await eventually(async () => (await guest.output('replay')).stdout.length === 10, { what: 'its first stream' })
  await first.write(Buffer.from('\n'))
  await all(first)
  for (const [offset, expected] of [
    [0, '0123456789abc'],
    [4, '456789abc'],
    [11, 'bc'],
    [13, ''],
    [99, ''],
  ] as const) {
    const events = await all(await guest.attach('replay', { offset }))
    assert.equal(text(events), expected)
    assert.deepEqual(events.slice(-2), [
      { type: 'replayed', offset: 13 },
      { type: 'exit', exitCode: 0 },
    ])
  }
})

test('output: a tail retains the last bytes of each stream and reports a drop', async () => {
  const script = 'echo first >&2; seq 1 100000; echo last >&2'
  const { stdout, stderr, truncated } = await machine.run(['sh', '-c', script], { id: 'tail', keepBytes: 1000 })
  assert.equal(stdout.length, 1000)
  assert.ok(stdout.toString().endsWith('\n99999\n100000\n'))
  assert.deepEqual([stderr.toString(), truncated], ['first\nlast\n', true])
  const events = await all(await guest.attach('tail'))
  assert.equal(text(events, 'stdout'), stdout.toString())
  assert.equal(text(events, 'stderr'), 'first\nlast\n')
  // 588895 bytes of numbers, and 11 of stderr.
  assert.deepEqual(events.at(-2), { type: 'replayed', offset: 588_906 })
})

test('output: more than bytesMax is refused and does not count as taken', async () => {
  const large = { argv: ['sh', '-c', 'head -c 8388608 /dev/zero; echo end >&2'], envs: {}, keepBytes: 8 << 20 }
  const ids = Array.from({ length: 8 }, (_, index) => `large-${index}`)
  for (const id of ids) {
    await guest.spawn({ id, ...large })
    await guest.process(id, 30_000)
    await refuses(guest.output(id, (8 << 20) + 3), 'too_large')
  }
  // 64 MiB that nobody has fetched.
  await refuses(guest.spawn({ id: 'more', ...large }), 'unavailable')
  for (const id of ids) {
    assert.equal((await guest.output(id, (8 << 20) + 4)).stdout.length, 8 << 20)
    await guest.release(id)
  }
})

test('output: eight megabytes of each stream are retained on request', async () => {
  const script = 'head -c 8388608 /dev/zero; head -c 8388608 /dev/zero >&2'
  const { id, stdout, stderr, truncated } = await machine.run(['sh', '-c', script], { keepBytes: 8 << 20 })
  assert.deepEqual([stdout.length, stderr.length, truncated], [8 << 20, 8 << 20, false])
  await guest.release(id)
})

test('output: a lossless process waits for acknowledgements and loses no byte of 50 MiB', async () => {
  const bytes = 50 * 1024 * 1024
  const keepBytes = 256 * 1024
  const script = `openssl enc -aes-128-ctr -pass pass:x -nosalt -pbkdf2 < /dev/zero 2>/dev/null | head -c ${bytes}`
  const expected = await machine.run(['sh', '-c', `${script} | sha256sum`])
  await guest.spawn({ id: 'lossless', argv: ['sh', '-c', script], envs: {}, keep: 'lossless', keepBytes })

  await eventually(async () => (await guest.output('lossless')).stdout.length === keepBytes, {
    what: 'the log is full',
  })
  await sleep(200)
  const waiting = await guest.output('lossless')
  assert.deepEqual([waiting.stdout.length, waiting.truncated], [keepBytes, false])
  assert.equal((await guest.process('lossless')).running, true)

  const hash = createHash('sha256')
  let reached = 0
  // A reader that comes back several times, at what it has acknowledged.
  for (let round = 0; round < 20 && reached < bytes; round++) {
    await using attachment = await guest.attach('lossless', { offset: reached })
    let taken = 0
    for await (const event of attachment) {
      if (event.type !== 'output') continue
      assert.equal(event.offset, reached)
      hash.update(event.data)
      reached += event.data.length
      taken += event.data.length
      await attachment.acknowledge(reached)
      if (round < 10 && taken > 3 * 1024 * 1024) break
    }
  }
  assert.equal(reached, bytes)
  assert.equal(`${hash.digest('hex')}  -\n`, expected.stdout.toString())
  assert.equal((await guest.process('lossless', 20_000)).exitCode, 0)
})

test('output: a lossless process ends without acknowledgements', async () => {
  const script = 'head -c 1000 /dev/zero; head -c 60000 /dev/zero'
  const { exitCode, stdout } = await machine.run(['sh', '-c', script], { keep: 'lossless', keepBytes: 1000 })
  assert.deepEqual([exitCode, stdout.length], [0, 61_000])
})

test('attachment: several clients follow a process, each at its own offset', async () => {
  await guest.spawn({ id: 'many', argv: ['sh', '-c', 'echo a; read x; echo b'], envs: {}, stdin: true })
  await eventually(async () => (await guest.output('many')).stdout.length === 2, { what: 'the first line is there' })
  const clients = await Promise.all([0, 0, 2].map((offset) => guest.attach('many', { offset })))
  assert.equal((await guest.process('many')).attachedClients, 3)
  await clients[0]?.write(Buffer.from('go\n'))
  const outputs = await Promise.all(clients.map(async (client) => text(await all(client))))
  assert.deepEqual(outputs, ['a\nb\n', 'a\nb\n', 'b\n'])
  await eventually(async () => (await guest.process('many')).attachedClients === 0, { what: 'all have left' })
})

test('attachment: the input of a client that does not read its output is taken', async () => {
  await guest.spawn({
    id: 'slow',
    argv: ['sh', '-c', 'read x; seq 1 2000000; read y; echo end'],
    envs: {},
    stdin: true,
  })
  await using slow = await guest.attach('slow')
  const fast = guest.attach('slow').then(all)
  await slow.write(Buffer.from('\n'))
  await eventually(async () => (await guest.output('slow')).stdout.length === 1024 * 1024, {
    what: 'the window is full',
  })
  await slow.write(Buffer.from('\n'))
  for (const events of await Promise.all([all(slow), fast])) {
    assert.ok(text(events).endsWith('\n2000000\nend\n'))
    assert.deepEqual(events.at(-1), { type: 'exit', exitCode: 0 })
  }
})

test('input: it arrives in order, with its end', async () => {
  await guest.spawn({ id: 'cat', argv: ['cat'], envs: {}, stdin: true, keep: 'lossless' })
  await using attachment = await guest.attach('cat')
  const sent = Buffer.alloc(3 * 1024 * 1024, 'input ')
  const hash = createHash('sha256').update(sent).digest('hex')
  const writing = (async () => {
    for (let at = 0; at < sent.length; at += 100_000) await attachment.write(sent.subarray(at, at + 100_000))
    await attachment.end()
    await refuses(attachment.write(Buffer.from('x')), 'conflict')
  })()
  const received = createHash('sha256')
  for await (const event of attachment) {
    if (event.type === 'exit') assert.equal(event.exitCode, 0)
    if (event.type !== 'output') continue
    received.update(event.data)
    await attachment.acknowledge(event.offset + event.data.length)
  }
  await writing
  assert.equal(received.digest('hex'), hash)
})

test('input: a process that does not read it delays neither output nor acknowledgements', async () => {
  const script = 'seq 1 300000; sleep 1000'
  const argv = ['sh', '-c', script]
  await guest.spawn({ id: 'deaf', argv, envs: {}, stdin: true, keep: 'lossless', keepBytes: 65_536 })
  await using attachment = await guest.attach('deaf')
  const writing = attachment.write(Buffer.alloc(2 << 20))
  const refused = refuses(writing, 'conflict')
  let output = ''
  for await (const event of attachment) {
    if (event.type !== 'output') continue
    output += event.data.toString()
    await attachment.acknowledge(event.offset + event.data.length)
    if (output.endsWith('\n300000\n')) break
  }
  await refused
  await guest.release('deaf')
})

test('input: a process without open input takes none and reads its end at once', async () => {
  await guest.spawn({ id: 'closed', argv: ['sh', '-c', 'cat; sleep 1000'], envs: {} })
  await using attachment = await guest.attach('closed')
  await refuses(attachment.write(Buffer.from('x')), 'conflict')
  await refuses(attachment.end(), 'conflict')
  await guest.release('closed')
  assert.deepEqual((await all(attachment)).at(-1), { type: 'exit', exitCode: 137 })
})

test('attachment: an abort ends it with the reason and disconnects it', async () => {
  await guest.spawn({ id: 'aborted', argv: ['sleep', '1000'], envs: {} })
  const controller = new AbortController()
  const attachment = await guest.attach('aborted', { signal: controller.signal })
  setTimeout(() => controller.abort(new Error('enough')), 30)
  await assert.rejects(all(attachment), /enough/)
  await eventually(async () => (await guest.process('aborted')).attachedClients === 0, { what: 'it has left' })
  await guest.release('aborted')
})

test('attachment: the end of the reading loop disconnects it', async () => {
  await guest.spawn({ id: 'left', argv: ['sh', '-c', 'echo x; sleep 1000'], envs: {} })
  for await (const event of await guest.attach('left')) if (event.type === 'output') break
  await eventually(async () => (await guest.process('left')).attachedClients === 0, { what: 'it has left' })
  await guest.release('left')
})

test('terminal: it has its size, takes a new one, and input as typed', async () => {
  const script = 'stty size; read line; stty size; echo "got $line"; tty; echo err >&2'
  await guest.spawn({ id: 'pty', argv: ['sh', '-c', script], envs: {}, pty: { cols: 100, rows: 30 } })
  assert.equal((await guest.process('pty')).pty, true)
  await using attachment = await guest.attach('pty')
  await eventually(async () => (await guest.output('pty')).stdout.toString() === '30 100\r\n', { what: 'it asks' })
  await guest.resize('pty', 120, 40)
  await attachment.write(Buffer.from('hello\n'))
  const output = text(await all(attachment), 'stdout')
  assert.match(output, /^30 100\r\nhello\r\n40 120\r\ngot hello\r\n\/dev\/pts\/\d+\r\nerr\r\n$/)
})

test('terminal: control-C interrupts, and control-D ends the input', async () => {
  await guest.spawn({ id: 'ctrl', argv: ['cat'], envs: {}, pty: { cols: 80, rows: 24 } })
  await using attachment = await guest.attach('ctrl')
  await attachment.write(Buffer.from('\u0003'))
  assert.deepEqual((await all(attachment)).at(-1), { type: 'exit', exitCode: 130 })

  await guest.spawn({ id: 'eof', argv: ['cat'], envs: {}, pty: { cols: 80, rows: 24 } })
  await using second = await guest.attach('eof')
  await second.write(Buffer.from('x\n'))
  await second.end()
  const events = await all(second)
  assert.match(text(events), /^x\r\n(\^D..)?x\r\n/s)
  assert.deepEqual(events.at(-1), { type: 'exit', exitCode: 0 })
})

test('terminal: it belongs to the user and ends with its session', async () => {
  const argv = ['bash', '-ic', 'echo x > $(tty); sleep 1000 & kill -9 $$']
  const { exitCode, stdout } = await machine.run(argv, { pty: { cols: 80, rows: 24 }, user: 'nobody' })
  assert.equal(exitCode, 137)
  assert.match(stdout.toString(), /x\r\n/)
})

test('terminal: a process without one has no size', async () => {
  await guest.spawn({ id: 'plain', argv: ['true'], envs: {} })
  await refuses(guest.resize('plain', 80, 24), 'invalid_request')
})
