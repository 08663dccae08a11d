import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import type { Attachment } from '../../sandbox/ports/guest.ts'
import { refuses } from '../../lib/testing/refuses.ts'
import { GuestProcess } from './testing/guest-process.ts'
import { eventually } from '../../lib/testing/eventually.ts'

const machine = await GuestProcess.startForFile()
const { guest, folder } = machine
const mebibyte = 1 << 20

/** Numbers, so that a gap or a repetition shows. */
const floodArgv = ['seq', '1', '4000000']
const floodText = floodOf(4_000_000)

function floodOf(count: number): { bytes: number; sha: string } {
  const hash = createHash('sha256')
  let bytes = 0
  for (let next = 1; next <= count;) {
    let text = ''
    for (const end = Math.min(count, next + 99_999); next <= end; next += 1) text += `${next}\n`
    hash.update(text)
    bytes += text.length
  }
  return { bytes, sha: hash.digest('hex') }
}

async function readAll(attachment: Attachment): Promise<{ bytes: number; sha: string; exitCode?: number }> {
  const hash = createHash('sha256')
  let bytes = 0
  let exitCode: number | undefined
  for await (const event of attachment) {
    if (event.type === 'exit') exitCode = event.exitCode
    if (event.type !== 'output') continue
    assert.equal(event.offset, bytes, 'a gap or a repetition')
    hash.update(event.data)
    bytes += event.data.length
  }
  return { bytes, sha: hash.digest('hex'), ...(exitCode === undefined ? {} : { exitCode }) }
}

/** Writes much more than is retained and then a file. */
function marking(name: string, bytes = 8 * mebibyte): { argv: string[]; mark: string } {
  const mark = join(folder, name)
  return { argv: ['sh', '-c', 'head -c "$0" /dev/zero; touch "$1"', String(bytes), mark], mark }
}

test('readers: 30 MB arrive whole, from the first byte on, however late the first reader comes', async () => {
  await guest.spawn({ id: 'late', argv: floodArgv, envs: {}, readerMs: 60_000 })
  await eventually(async () => (await guest.output('late')).stdout.length === mebibyte, { what: 'the log is full' })
  assert.deepEqual(await readAll(await guest.attach('late')), { ...floodText, exitCode: 0 })
})

test('readers: several read the same output whole, and the slowest counts', async () => {
  await guest.spawn({ id: 'several', argv: floodArgv, envs: {}, readerMs: 60_000 })
  const readers = await Promise.all(Array.from({ length: 3 }, () => guest.attach('several')))
  const slow = await guest.attach('several')
  const others = readers.map(readAll)
  await eventually(async () => (await guest.output('several')).stdout.length === mebibyte, {
    what: 'the window is full',
  })
  assert.equal((await guest.process('several')).running, true)
  assert.deepEqual(await readAll(slow), { ...floodText, exitCode: 0 })
  for (const read of others) assert.deepEqual(await read, { ...floodText, exitCode: 0 })
})

test('readers: a window smaller than the credit does not stop the process', async () => {
  for (const keepBytes of [1, 100, 65_536]) {
    const id = `window-${keepBytes}`
    const argv = ['head', '-c', String(Math.min(keepBytes * 50, 5_000_000)), '/dev/zero']
    await guest.spawn({ id, argv, envs: {}, keepBytes, readerMs: 60_000 })
    const { bytes, exitCode } = await readAll(await guest.attach(id))
    assert.deepEqual([bytes, exitCode], [Number(argv[2]), 0])
  }
})

test('readers: both streams are whole', async () => {
  const script = 'seq 1 200000 >&2 & seq 1 400000; wait'
  await guest.spawn({ id: 'both', argv: ['sh', '-c', script], envs: {}, keepBytes: 100_000, readerMs: 60_000 })
  const texts = { stdout: createHash('sha256'), stderr: createHash('sha256') }
  for await (const event of await guest.attach('both')) {
    if (event.type === 'output') texts[event.stream].update(event.data)
  }
  assert.equal(texts.stdout.digest('hex'), floodOf(400_000).sha)
  assert.equal(texts.stderr.digest('hex'), floodOf(200_000).sha)
})

test('readers: a process without one never waits, whether it had one before or not', async () => {
  const never = marking('never')
  await guest.spawn({ id: 'never', argv: never.argv, envs: {} })
  assert.equal((await guest.process('never', 60_000)).exitCode, 0)

  const left = marking('left')
  await guest.spawn({ id: 'left', argv: left.argv, envs: {}, readerMs: 60_000 })
  const reader = await guest.attach('left')
  for await (const event of reader) if (event.type === 'output') break
  reader.close()
  assert.equal((await guest.process('left', 60_000)).exitCode, 0)
  assert.ok(existsSync(left.mark))
})

test('readers: the first one is not awaited for ever', async () => {
  const { argv, mark } = marking('unread')
  await guest.spawn({ id: 'unread', argv, envs: {}, readerMs: 50 })
  assert.equal((await guest.process('unread', 60_000)).exitCode, 0)
  assert.ok(existsSync(mark))
})

test('readers: one that reads nothing is let go and told so behind what it was sent, and the process goes on', async () => {
  const { argv, mark } = marking('stalled')
  await guest.spawn({ id: 'stalled', argv, envs: {}, readerMs: 60_000 })
  const other = await guest.attach('stalled')
  await using stalled = await guest.attach('stalled', { stallMs: 200 })
  const attentive = readAll(other)
  assert.equal((await guest.process('stalled', 60_000)).exitCode, 0)
  assert.ok(existsSync(mark))
  assert.equal((await attentive).bytes, 8 * mebibyte)
  let bytes = 0
  await refuses(
    (async () => {
      for await (const event of stalled) if (event.type === 'output') bytes += event.data.length
    })(),
    'unavailable',
    /was not read/,
  )
  assert.ok(bytes > 0 && bytes < 8 * mebibyte, String(bytes))
})

test('readers: one that sends input and never reads is held back, then let go, and the process gets all that was taken', async () => {
  const file = join(folder, 'taken')
  await guest.spawn({ id: 'deaf', argv: ['tee', file], envs: {}, stdin: true, readerMs: 60_000 })
  await using deaf = await guest.attach('deaf', { stallMs: 500 })
  const part = Buffer.alloc(100_000, 'x')
  let taken = 0
  const sending = (async () => {
    for (;;) {
      await deaf.write(part)
      taken += part.length
    }
  })()
  await refuses(sending, 'unavailable', /was not read/)
  assert.ok(taken < 4 * mebibyte, `${taken} bytes of input were taken`)
  const other = await guest.attach('deaf')
  await other.end()
  other.close()
  assert.equal((await guest.process('deaf', 60_000)).exitCode, 0)
  const { size } = await stat(file)
  assert.ok(size >= taken, `${size} bytes for ${taken}`)
})

test('readers: one that is let go holds nobody else, and another goes on where it had read', async () => {
  await guest.spawn({ id: 'two', argv: floodArgv, envs: {}, readerMs: 60_000 })
  const other = await guest.attach('two')
  await using stopped = await guest.attach('two', { stallMs: 200 })
  const reading = readAll(other)
  let reached = 0
  await refuses(
    (async () => {
      for await (const event of stopped) {
        if (event.type === 'output') reached = event.offset + event.data.length
        await eventually(async () => (await guest.process('two')).exitCode === 0, { what: 'it was let go' })
      }
    })(),
    'unavailable',
    /was not read/,
  )
  assert.deepEqual(await reading, { ...floodText, exitCode: 0 })
  const again = await guest.attach('two', { offset: reached })
  let [first, last] = [Infinity, 0]
  for await (const event of again) {
    if (event.type !== 'output') continue
    first = Math.min(first, event.offset)
    last = event.offset + event.data.length
  }
  assert.ok(first > reached, 'a gap: the process went on')
  assert.equal(last, floodText.bytes)
})

test('readers: one that reads now and then is never let go', async () => {
  const { argv } = marking('slow', 2 * mebibyte)
  await guest.spawn({ id: 'slow', argv, envs: {}, readerMs: 60_000 })
  let bytes = 0
  for await (const event of await guest.attach('slow', { stallMs: 60_000 })) {
    if (event.type === 'output') bytes += event.data.length
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
  assert.equal(bytes, 2 * mebibyte)
})

test('readers: the output of a process that ends while its reader stands still is whole', async () => {
  await guest.spawn({ id: 'ended', argv: ['head', '-c', String(mebibyte), '/dev/zero'], envs: {}, readerMs: 60_000 })
  const reader = await guest.attach('ended', { stallMs: 10_000 })
  assert.equal((await guest.process('ended', 60_000)).exitCode, 0)
  assert.equal((await readAll(reader)).bytes, mebibyte)
})
