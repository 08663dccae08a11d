import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { readFile, writeFile } from 'node:fs/promises'
import type { Socket } from 'node:net'
import { join } from 'node:path'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { Sandbox as PublicSandbox } from '@opencomputer/sdk'
import { WebSocket } from 'ws'
import { Atoll, Sandbox, type Process } from '../../sdk/src/index.ts'
import { AtollServer } from './server.ts'

// Output is whole for whoever reads it, however fast a command writes.

const server = await AtollServer.startForFile()
const client = new Atoll({ url: server.url, apiKey: server.key })
const cli = join(import.meta.dirname, '../../src/cli/main.ts')

class Sum {
  readonly #hash = createHash('sha256')
  #bytes = 0

  add(data: Uint8Array): void {
    this.#hash.update(data)
    this.#bytes += data.length
  }

  get value(): { bytes: number; sha: string } {
    return { bytes: this.#bytes, sha: this.#hash.copy().digest('hex') }
  }
}

/** Numbers, so that a gap or a repetition shows: 38 MB. */
const flood = 'seq 1 5000000'
const floodOnInput = `read go; ${flood}`
const whole = floodOf(5_000_000)

function floodOf(count: number, last = ''): { bytes: number; sha: string } {
  const sum = new Sum()
  for (let next = 1; next <= count;) {
    let text = ''
    for (const end = Math.min(count, next + 99_999); next <= end; next += 1) text += `${next}\n`
    sum.add(Buffer.from(text))
  }
  sum.add(Buffer.from(last))
  return sum.value
}

/** The hash of its first bytes. */
function startOfWhole(bytes: number): string {
  let text = ''
  for (let next = 1; text.length < bytes; next += 1) text += `${next}\n`
  return createHash('sha256').update(text.slice(0, bytes)).digest('hex')
}

interface CliResult {
  exitCode: number | null
  stdout: { bytes: number; sha: string }
  stderr: string
}

async function atoll(args: string[], { json = false } = {}): Promise<CliResult & { text: string }> {
  const env = { ...process.env, ATOLL_URL: server.url, ATOLL_API_KEY: server.key }
  const child = spawn(process.execPath, [cli, ...args], { env, stdio: ['ignore', 'pipe', 'pipe'] })
  const sum = new Sum()
  let [text, stderr] = ['', '']
  child.stdout.on('data', (data: Buffer) => {
    sum.add(data)
    if (json) text += data.toString()
  })
  child.stderr.on('data', (data: Buffer) => (stderr += data.toString()))
  const [exitCode] = (await once(child, 'close')) as [number | null]
  return { exitCode, stdout: sum.value, stderr, text }
}

async function readAll(remote: Process): Promise<{ bytes: number; sha: string; exitCode: number }> {
  const sum = new Sum()
  for await (const { data } of remote) sum.add(data)
  return { ...sum.value, exitCode: await remote.exited }
}

/** The frames of the reference, without a client's library. It reads nothing before it is resumed. */
async function attachRaw(sandbox: Sandbox, id: string, offset = 0): Promise<WebSocket> {
  const path = `/api/sandboxes/${sandbox.id}/exec/${id}?offset=${offset}&api_key=${server.key}`
  const socket = new WebSocket(`ws://127.0.0.1:${server.port}${path}`)
  // The first message may come with the answer.
  socket.once('open', () => socket.pause())
  await once(socket, 'open')
  return socket
}

async function readRaw(socket: WebSocket): Promise<{ bytes: number; sha: string; exitCode: number }> {
  const sum = new Sum()
  let exitCode = -1
  socket.on('message', (message: Buffer) => {
    if (message[0] === 1) sum.add(message.subarray(1))
    if (message[0] === 3) exitCode = message.readInt32BE(1)
  })
  socket.resume()
  await once(socket, 'close')
  return { ...sum.value, exitCode }
}

/** 214 MB. */
const large = ['seq', '1', '25000000'] as const
const largeWhole = floodOf(25_000_000)
const largeEnd = 8 * 1024 * 1024

interface Read {
  bytes: number
  sha: string
  exitCode: number | null
}

const ways: Record<string, (sandbox: Sandbox) => Promise<Read>> = {
  async 'atoll exec'(sandbox) {
    const { exitCode, stdout, stderr } = await atoll(['exec', sandbox.id, '--', ...large])
    assert.equal(stderr, '')
    return { ...stdout, exitCode }
  },
  async 'run with a callback'(sandbox) {
    const sum = new Sum()
    const run = await sandbox.run(large.join(' '), { onOutput: ({ data }) => sum.add(data) })
    assert.deepEqual([run.truncated, run.lost, run.stdout.length, run.stderr], [true, undefined, largeEnd, ''])
    assert.ok(run.stdout.endsWith('\n24999999\n25000000\n'))
    return { ...sum.value, exitCode: run.exitCode }
  },
  async spawn(sandbox) {
    const spawned = await sandbox.spawn(large.join(' '))
    const read = await readAll(spawned)
    assert.equal(await spawned.lost(), 0)
    return read
  },
  async 'a WebSocket'(sandbox) {
    const path = `/api/sandboxes/${sandbox.id}/exec`
    const { sessionID } = await client.json<{ sessionID: string }>('POST', path, { json: { cmd: large.join(' ') } })
    return await readRaw(await attachRaw(sandbox, sessionID))
  },
  async 'the public SDK'(sandbox) {
    const ofPublic = await PublicSandbox.connect(sandbox.id, { apiUrl: server.url, apiKey: server.key })
    const [command, ...args] = large
    const sum = new Sum()
    const session = await ofPublic.exec.start(command, { args, onStdout: (data) => sum.add(data) })
    return { exitCode: await session.done, ...sum.value }
  },
}

for (const [way, read] of Object.entries(ways)) {
  test(`${way}: 214 MB arrive whole, and neither the server nor the guest holds them`, async () => {
    await using sandbox = await Sandbox.create({ client })
    const before = await forgetPeak(server.pid)
    assert.deepEqual(await read(sandbox), { ...largeWhole, exitCode: 0 })
    const grown = (await memoryOf(server.pid, 'VmHWM')) - before
    const { stdout } = await sandbox.run('cat /proc/1/status')
    const guest = statusMib(stdout, 'VmHWM')
    assert.ok(grown < 100 && guest < 16, `the server grew by ${grown} MiB, the guest had ${guest} MiB`)
  })
}

test('exec --json has all of 2 MB, and what arrived with the exit code when something failed', async () => {
  await using sandbox = await Sandbox.create({ client })
  const done = await atoll(['exec', '--json', sandbox.id, '--', 'head', '-c', '2000000', '/dev/zero'], { json: true })
  const { exitCode, stdout } = JSON.parse(done.text) as { exitCode: number; stdout: string }
  assert.deepEqual([done.exitCode, done.stderr, exitCode, stdout.length], [0, '', 0, 2_000_000])

  const script = 'echo early; head -c 140000000 /dev/zero | tr "\\\\0" x; exit 7'
  const failed = await atoll(['exec', '--json', sandbox.id, '--', 'sh', '-c', script], { json: true })
  const arrived = JSON.parse(failed.text) as { exitCode: number | null; stdout: string }
  assert.equal(failed.exitCode, 125)
  assert.match(failed.stderr, /too much for --json/)
  assert.ok(arrived.stdout.startsWith('early\nxxx'))
  assert.equal(arrived.stdout.length > 100_000_000, true)
})

test('several read one command whole, each at its own pace, and the slowest counts', async () => {
  await using sandbox = await Sandbox.create({ client })
  const first = await sandbox.spawn(floodOnInput)
  const socket = await attachRaw(sandbox, first.id)
  const reading = [readAll(first), readAll(sandbox.attach(first.id))]
  await attached(sandbox, 3)
  await first.write('\n')
  await untilFull(first.id, sandbox)
  for (const read of [...reading, readRaw(socket)]) assert.deepEqual(await read, { ...whole, exitCode: 0 })
})

test('a checkpoint of a sandbox whose output is read loses none of it', async () => {
  await using sandbox = await Sandbox.create({ client })
  const reading = readAll(await sandbox.spawn('sh', { args: ['-c', `seq 1 2500000; sleep 1; seq 2500001 5000000`] }))
  for (const name of ['one', 'two', 'three']) await sandbox.checkpoint({ name })
  assert.deepEqual(await reading, { ...whole, exitCode: 0 })
})

test('a command that nobody reads never waits', async () => {
  await using sandbox = await Sandbox.create({ client })
  const script = `${flood}; touch /workspace/done`
  const isDone = async () => (await sandbox.run('test -e /workspace/done')).exitCode === 0
  const left = await sandbox.spawn('sh', { args: ['-c', script] })
  for await (const _ of left) break
  while (!(await isDone())) await sleep(50)
  await sandbox.run('rm /workspace/done')
  // Its first reader is awaited for a while.
  await sandbox.spawn('sh', { args: ['-c', script] })
  while (!(await isDone())) await sleep(50)
})

test('readers that stop reading, or take a byte a second, are told so in the end, and the command and other readers go on', async () => {
  await using sandbox = await Sandbox.create({ client })
  const remote = await sandbox.spawn(floodOnInput)
  const stopped = await attachRaw(sandbox, remote.id)
  const slow = await attachRaw(sandbox, remote.id)
  const reading = readAll(remote)
  await attached(sandbox, 3)
  await remote.write('\n')
  const got = [stopped, slow].map((socket) => {
    const sum = new Sum()
    socket.on('message', (message: Buffer) => {
      if (message[0] === 1) sum.add(message.subarray(1))
    })
    return { socket, sum }
  })
  // Below the frames, whose library reads 64 KiB at once; it gets the byte.
  const { _socket: connection } = slow as unknown as { _socket: Socket }
  let slowBytes = 0
  const byteASecond = setInterval(() => (slowBytes += connection.read(1) === null ? 0 : 1), 1000)
  assert.deepEqual(await reading, { ...whole, exitCode: 0 })
  clearInterval(byteASecond)
  assert.ok(slowBytes > 0)
  for (const { socket, sum } of got) {
    socket.resume()
    const [code, reason] = (await once(socket, 'close')) as [number, Buffer]
    assert.deepEqual([code, reason.toString()], [1011, 'the output was not read for 60 s; the process goes on'])
    const { bytes, sha } = sum.value
    assert.ok(bytes > 0 && bytes < whole.bytes, String(bytes))
    assert.equal(sha, startOfWhole(bytes))
    const later = sandbox.attach(remote.id, { offset: bytes })
    await later.wait()
    assert.ok((await later.lost()) > 0)
  }
})

test('a client that is killed with output on its way leaves the command and its other readers alone', async () => {
  await using sandbox = await Sandbox.create({ client })
  const remote = await sandbox.spawn(floodOnInput)
  const env = { ...process.env, ATOLL_URL: server.url, ATOLL_API_KEY: server.key }
  // It reads nothing of what it is sent, as nobody reads what it writes.
  const logs = spawn(process.execPath, [cli, 'logs', '--follow', sandbox.id, remote.id], {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const reading = readAll(remote)
  await attached(sandbox, 2)
  await remote.write('\n')
  await once(logs.stdout, 'readable')
  await untilFull(remote.id, sandbox)
  logs.kill('SIGKILL')
  assert.deepEqual(await reading, { ...whole, exitCode: 0 })
})

for (const [how, end] of [
  ['is killed', () => server.kill()],
  ['stops', () => server.stop()],
] as const) {
  test(`readers whose server ${how} go on at their offsets, and get each byte of output and input once`, async () => {
    await using sandbox = await Sandbox.create({ client })
    const remote = await sandbox.spawn(`read go; ${flood}; echo "$go"`)
    const socket = await attachRaw(sandbox, remote.id)
    await attached(sandbox, 1)
    await remote.write('one line\n')
    const [sum, raw] = [new Sum(), new Sum()]
    let exitCode = -1
    const take = (message: Buffer) => {
      if (message[0] === 1) raw.add(message.subarray(1))
      if (message[0] === 3) exitCode = message.readInt32BE(1)
    }
    socket.on('message', take)
    socket.resume()
    const restarted = Promise.withResolvers<void>()
    const reading = (async () => {
      let isOver = false
      for await (const { data } of remote) {
        sum.add(data)
        if (isOver || sum.value.bytes < 10_000_000) continue
        isOver = true
        void end()
          .then(() => server.restart())
          .then(restarted.resolve, restarted.reject)
      }
    })()
    await Promise.all([once(socket, 'close'), restarted.promise])
    // Its own client would have asked as often as it takes.
    const again = await attachRaw(sandbox, remote.id, raw.value.bytes)
    again.on('message', take)
    again.resume()
    await Promise.all([reading, once(again, 'close')])
    const expected = floodOf(5_000_000, 'one line\n')
    assert.deepEqual([sum.value, await remote.exited, await remote.lost()], [expected, 0, 0])
    assert.deepEqual([raw.value, exitCode], [expected, 0])
  })
}

async function attached(sandbox: Sandbox, count: number): Promise<void> {
  while ((await sandbox.spawned())[0]?.attachedClients !== count) await sleep(20)
}

/** The command stands still: its output does not grow any more. */
async function untilFull(id: string, sandbox: Sandbox): Promise<void> {
  const reached = async () => {
    const probe = await attachRaw(sandbox, id, 999_999_999_999_999)
    probe.resume()
    const [message] = (await once(probe, 'message')) as [Buffer]
    probe.close()
    return Number(message.readBigInt64BE(1))
  }
  for (let last = -1, same = 0; same < 5;) {
    const now = await reached()
    same = now === last ? same + 1 : 0
    last = now
    await sleep(20)
  }
}

/** The peak begins anew at what it uses now, which is returned. */
async function forgetPeak(pid: number): Promise<number> {
  await writeFile(`/proc/${pid}/clear_refs`, '5')
  return await memoryOf(pid, 'VmRSS')
}

async function memoryOf(pid: number, field: string): Promise<number> {
  return statusMib(await readFile(`/proc/${pid}/status`, 'utf8'), field)
}

/** MiB, of proc_pid_status(5). */
function statusMib(status: string, field: string): number {
  return Number(new RegExp(`^${field}:\\s+(\\d+) kB$`, 'm').exec(status)?.[1]) / 1024
}
