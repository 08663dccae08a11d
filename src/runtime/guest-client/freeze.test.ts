import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { readdir, readFile, utimes, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Readable, type Duplex } from 'node:stream'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { frameKind } from '../../protocol/guest.ts'
import type { FreezeReason } from '../../sandbox/ports/runtime-driver.ts'
import type { Attachment, Guest } from '../../sandbox/ports/guest.ts'
import { configureGuest, createGuest, guestConnections } from './index.ts'
import { refuses } from '../../lib/testing/refuses.ts'
import { GuestProcess } from './testing/guest-process.ts'
import { eventually } from '../../lib/testing/eventually.ts'
import { ServiceError } from '../../errors.ts'

/** What a busy machine takes until all clients have paused. */
const patientMs = 60_000

/** Stands for a driver. Its dump stops the guest's process, and has the same conditions as a real one. */
class Freezer {
  readonly #machine: GuestProcess
  readonly #open = new Set<Duplex>()
  #thaw: Promise<void> = Promise.resolve()
  #reason: FreezeReason = 'checkpoint'
  readonly guest: Guest
  /** Connections that were asked for, those that wait for the thaw included. */
  dials = 0

  constructor(machine: GuestProcess) {
    this.#machine = machine
    this.guest = createGuest(async () => {
      this.dials++
      let duplex: Duplex | undefined
      while (duplex === undefined) {
        const thaw = this.#thaw
        await thaw
        duplex = await machine.dial()
        if (this.#thaw === thaw) break
        // A freeze began meanwhile and does not know this one.
        duplex.destroy()
        duplex = undefined
        if (this.#reason === 'hibernate') throw new ServiceError('unavailable', 'the sandbox was put to sleep')
      }
      duplex.on('error', () => undefined)
      this.#open.add(duplex)
      duplex.on('close', () => this.#open.delete(duplex))
      return duplex
    })
  }

  /** Leaves the guest as in the memory of a fork: all clients have paused, and none comes back. */
  async leave(): Promise<void> {
    this.#thaw = Promise.withResolvers<void>().promise
    for (const duplex of this.#open) duplex.emit('freeze', 'checkpoint' satisfies FreezeReason)
    await eventually(() => this.#open.size === 0)
  }

  /** With `graceMs` 0 connections are destroyed at once. Returns whether all went by themselves. */
  async freeze(reason: FreezeReason = 'checkpoint', graceMs = patientMs, lastsMs = 10): Promise<boolean> {
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#thaw = promise
    this.#reason = reason
    for (const duplex of this.#open) duplex.emit('freeze', reason)
    const until = performance.now() + graceMs
    while (this.#open.size > 0 && performance.now() < until) await sleep(2)
    const willing = this.#open.size === 0
    for (const duplex of this.#open) duplex.destroy()
    while ((await guestConnections(() => this.#machine.dial())) > 1) await sleep(2)
    process.kill(this.#machine.pid, 'SIGSTOP')
    await sleep(lastsMs)
    process.kill(this.#machine.pid, 'SIGCONT')
    resolve()
    return willing
  }
}

const machine = await GuestProcess.startForFile()
const freezer = new Freezer(machine)
const { guest } = freezer

function sha256(data: string | Uint8Array): string {
  return createHash('sha256').update(data).digest('hex')
}

async function follow(attachment: Attachment, acknowledge = false) {
  const hash = createHash('sha256')
  const followed = { sha: '', bytes: 0, replayed: 0, exits: new Array<number>() }
  for await (const event of attachment) {
    if (event.type === 'output') {
      assert.equal(event.offset, followed.bytes, 'a gap or a repetition')
      hash.update(event.data)
      followed.bytes += event.data.length
      if (acknowledge) await attachment.acknowledge(followed.bytes)
    }
    if (event.type === 'replayed') followed.replayed++
    if (event.type === 'exit') followed.exits.push(event.exitCode)
  }
  followed.sha = hash.digest('hex')
  return followed
}

async function freezeTimes(count: number, graceMs?: (round: number) => number, lastsMs?: number): Promise<void> {
  for (let round = 0; round < count; round++) {
    await sleep(15)
    const grace = graceMs?.(round) ?? patientMs
    const willing = await freezer.freeze('checkpoint', grace, lastsMs)
    if (grace > 0) assert.ok(willing, 'a connection stayed open')
  }
}

const floodBytes = 60_000_000
const flood = `yes 'some line of output' | head -c ${floodBytes}`
const floodSha = sha256('some line of output\n'.repeat(floodBytes / 20))

for (const [name, graceMs] of [
  ['in peace', () => patientMs],
  ['by force', (round: number) => (round % 2 === 0 ? 0 : patientMs)],
] as const) {
  for (const keep of ['lossless', 'tail'] as const) {
    test(`freeze: a flood of ${keep} output, frozen 20 times ${name}, is whole`, async () => {
      const id = `flood-${keep}-${name.replace(' ', '-')}`
      const argv = ['sh', '-c', `sleep 0.1; ${flood}; sleep 0.5; exit 3`]
      await guest.spawn({ id, argv, envs: {}, keep, readerMs: 60_000 })
      const reading = follow(await guest.attach(id), keep === 'lossless')
      await freezeTimes(20, graceMs)
      assert.deepEqual(await reading, { sha: floodSha, bytes: floodBytes, replayed: 1, exits: [3] })
    })
  }

  test(`freeze: 10 MiB of input, frozen 20 times ${name}, arrive once and in order`, async () => {
    const id = `cat-${name.replace(' ', '-')}`
    const input = randomBytes(10 << 20)
    await guest.spawn({ id, argv: ['cat'], envs: {}, stdin: true, keep: 'lossless' })
    const attachment = await guest.attach(id)
    const reading = follow(attachment, true)
    const freezing = freezeTimes(20, graceMs)
    for (let at = 0; at < input.length; at += 100_000) {
      await attachment.write(input.subarray(at, at + 100_000))
      await sleep(3)
    }
    await freezing
    await attachment.end()
    assert.deepEqual(await reading, { sha: sha256(input), bytes: input.length, replayed: 1, exits: [0] })
  })
}

test('freeze: a tail drops nothing that a paused client has not seen', async () => {
  const script = 'i=0; while [ $i -lt 300 ]; do printf %01000d $i; i=$((i+1)); sleep 0.002; done'
  await guest.spawn({ id: 'tail', argv: ['sh', '-c', script], envs: {}, keepBytes: 100_000, readerMs: 60_000 })
  const reading = follow(await guest.attach('tail'))
  await freezeTimes(5)
  const { bytes, exits } = await reading
  assert.deepEqual([bytes, exits], [300_000, [0]])
})

test('freeze: a fork waits for none of the clients of its source', async () => {
  const source = new Freezer(machine)
  const [begun, written] = [join(machine.folder, 'begun'), join(machine.folder, 'written')]
  // More than is kept, twice.
  const write = 'i=0; while [ $i -lt 200 ]; do printf %01000d $i; i=$((i+1)); done'
  const script = `until [ -e ${begun} ]; do sleep 0.01; done; ${write}; touch ${written}`
  await guest.spawn({ id: 'forked', argv: ['sh', '-c', script], envs: {}, keepBytes: 100_000 })
  const reading = follow(await source.guest.attach('forked'))
  reading.catch(() => undefined)
  await source.leave()
  await writeFile(begun, '')
  await eventually(async () => (await guest.output('forked')).stdout.length > 90_000)
  assert.equal(await configureGuest(() => machine.dial(), { seed: '00' }).then(() => existsSync(written)), false)
  await configureGuest(() => machine.dial(), { seed: '00', fork: true })
  // A client that stays away holds the output for 30 s.
  await eventually(() => existsSync(written), { timeoutMs: 20_000 })
})

test('freeze: a terminal continues', async () => {
  await guest.spawn({ id: 'pty', argv: ['cat'], envs: {}, pty: { cols: 80, rows: 24 }, stdin: true })
  const attachment = await guest.attach('pty')
  let text = ''
  const reading = (async () => {
    for await (const event of attachment) if (event.type === 'output') text += event.data.toString()
  })()
  for (let round = 0; round < 5; round++) {
    await attachment.write(Buffer.from(`line ${round}\n`))
    await freezer.freeze()
  }
  await attachment.end()
  await reading
  for (let round = 0; round < 5; round++) assert.equal(text.split(`line ${round}\r\n`).length, 3)
})

test('freeze: an exit during it is reported once, after all output', async () => {
  for (let round = 0; round < 10; round++) {
    const id = `exit-${round}`
    await guest.spawn({ id, argv: ['sh', '-c', `sleep 0.0${round}; printf done; exit 5`], envs: {} })
    const reading = follow(await guest.attach(id))
    await sleep(20)
    await freezer.freeze('checkpoint', round % 2 === 0 ? 0 : patientMs)
    const { bytes, replayed, exits } = await reading
    assert.deepEqual([bytes, replayed, exits], [4, 1, [5]])
  }
})

test('freeze: it does not count as a disconnect', async () => {
  // On a busy machine its first client may come too late.
  let tries = 0
  await using attachment = await eventually(async () => {
    const id = `left-${tries++}`
    await guest.spawn({ id, argv: ['cat'], envs: {}, stdin: true, maxRunAfterDisconnectMs: 300 })
    const attached = await guest.attach(id)
    assert.ok((await guest.process(id)).running)
    return attached
  })
  const reading = follow(attachment)
  await freezeTimes(3, undefined, 400)
  await attachment.end()
  assert.deepEqual((await reading).exits, [0])
})

test('freeze: a wait for a process continues after it and ends with a hibernation', async () => {
  await guest.spawn({ id: 'waited', argv: ['sleep', '0.5'], envs: {} })
  const waiting = guest.process('waited', 20_000)
  await freezeTimes(3)
  assert.equal((await waiting).exitCode, 0)
  await guest.spawn({ id: 'slept', argv: ['sleep', '100'], envs: {} })
  const refused = refuses(guest.process('slept', 20_000), 'unavailable')
  await sleep(20)
  assert.ok(await freezer.freeze('hibernate'))
  await refused
  await guest.release('slept')
})

test('freeze: a run continues after it, and its command runs once', async () => {
  const file = join(machine.folder, 'runs')
  const options = { waitMs: 20_000, bytesMax: 64 * 1024 }
  const run = (id: string, script: string) =>
    guest.run({ id, argv: ['sh', '-c', `printf x >> ${file}; ${script}`], envs: {} }, options)
  const long = run('long', 'sleep 0.5; echo done; exit 5')
  await freezeTimes(5, (round) => (round % 2 === 0 ? 0 : patientMs))
  const { process: ended, output } = await long
  assert.deepEqual([ended.exitCode, String(output?.stdout)], [5, 'done\n'])
  // Often enough to meet the moments in which its output is on its way, or acknowledged.
  const rounds = 40
  for (let round = 0; round < rounds; round++) {
    const short = run(`short-${round}`, 'printf 1234')
    await sleep(round / 8)
    await freezer.freeze('checkpoint', round % 2 === 0 ? 0 : patientMs)
    assert.equal(String((await short).output?.stdout), '1234')
  }
  assert.equal((await readFile(file, 'utf8')).length, 1 + rounds)
  assert.deepEqual(
    (await guest.processes()).filter(({ id }) => /^(?:long|short-)/.test(id)),
    [],
    'all are released',
  )
})

test('freeze: a run whose acknowledgement is lost releases its process all the same, and runs it once', async () => {
  const file = join(machine.folder, 'acknowledged')
  let lost = 0
  const { run } = createGuest(async () => {
    const socket = await machine.dial()
    const write = socket.write.bind(socket)
    socket.write = (chunk: Buffer) => {
      if (chunk[0] !== frameKind.acknowledge) return write(chunk)
      lost++
      socket.emit('freeze', 'checkpoint')
      socket.destroy()
      return false
    }
    return socket
  })
  const argv = ['sh', '-c', `printf x >> ${file}; echo done`]
  const { output } = await run({ id: 'unheard', argv, envs: {} }, { waitMs: 20_000, bytesMax: 1000 })
  assert.deepEqual([String(output?.stdout), lost, await readFile(file, 'utf8')], ['done\n', 1, 'x'])
  await refuses(guest.process('unheard'), 'not_found')
})

test('freeze: a run ends with a hibernation, and its process goes on', async () => {
  const go = join(machine.folder, 'go')
  const argv = ['sh', '-c', `until [ -e ${go} ]; do sleep 0.02; done; echo done`]
  const running = guest.run({ id: 'dozed', argv, envs: {} }, { waitMs: 20_000, bytesMax: 1000 })
  const refused = assert.rejects(running, /put to sleep/)
  await eventually(async () => (await guest.processes()).some(({ id }) => id === 'dozed'), { what: 'it runs' })
  assert.ok(await freezer.freeze('hibernate'))
  await refused
  await writeFile(go, '')
  assert.equal((await guest.process('dozed', 20_000)).exitCode, 0)
  assert.equal(String((await guest.output('dozed')).stdout), 'done\n')
  await guest.release('dozed')
})

test('freeze: a hibernation ends an attachment after its received output, and another continues by offset', async () => {
  await guest.spawn({ id: 'asleep', argv: ['sh', '-c', 'printf 123; read x; printf 456'], envs: {}, stdin: true })
  const attachment = await guest.attach('asleep')
  let text = ''
  const reading = (async () => {
    for await (const event of attachment) if (event.type === 'output') text += event.data.toString()
  })()
  const ended = assert.rejects(reading, /put to sleep/)
  await eventually(async () => text === '123', { what: 'its output has come' })
  assert.ok(await freezer.freeze('hibernate'))
  await ended
  const next = await guest.attach('asleep', { offset: 3 })
  await next.write(Buffer.from('\n'))
  for await (const event of next) if (event.type === 'output') text += event.data.toString()
  assert.equal(text, '123456')
})

test('freeze: a download continues after it, unless the file has changed', async () => {
  const path = join(machine.folder, 'download')
  const content = randomBytes(30 << 20)
  await writeFile(path, content)
  const { body } = await guest.readFile(path, { start: 5 })
  const chunks: Buffer[] = []
  for await (const chunk of body) {
    chunks.push(chunk as Buffer)
    if (chunks.length % 40 === 0) await freezer.freeze()
  }
  assert.ok(Buffer.concat(chunks).equals(content.subarray(5)))
  const changed = await guest.readFile(path)
  await freezer.freeze()
  await utimes(path, 1, 1)
  await refuses(changed.body.toArray(), 'conflict')
})

test('freeze: a download without a reader is not requested again', async () => {
  const path = join(machine.folder, 'left')
  await writeFile(path, randomBytes(4 << 20))
  const { body } = await guest.readFile(path)
  await once(body, 'readable')
  const dialsBefore = freezer.dials
  const frozen = freezer.freeze('checkpoint', patientMs, 100)
  // The stream reads ahead, so it waits for the thaw by now.
  while (body.read() !== null);
  await eventually(async () => freezer.dials > dialsBefore, { what: 'it asks again' })
  body.destroy()
  await frozen
  await sleep(100)
  assert.equal(freezer.dials, dialsBefore + 1)
})

test('freeze: an upload continues after it; a hibernation leaves the old file', async () => {
  const path = join(machine.folder, 'upload')
  const content = randomBytes(20 << 20)
  const pieces = async function* (): AsyncGenerator<Buffer> {
    for (let at = 0; at < content.length; at += 1 << 20) {
      yield content.subarray(at, at + (1 << 20))
      await sleep(20)
    }
  }
  const writing = guest.writeFile(path, Readable.from(pieces()))
  await freezeTimes(6)
  assert.equal(await writing, content.length)
  assert.ok((await readFile(path)).equals(content))
  const refused = assert.rejects(guest.writeFile(path, Readable.from(pieces())), /put to sleep/)
  await sleep(50)
  assert.ok(await freezer.freeze('hibernate'))
  await refused
  assert.ok((await readFile(path)).equals(content))
  assert.deepEqual(
    (await readdir(machine.folder)).filter((name) => name.includes('.atoll-')),
    [],
  )
})
