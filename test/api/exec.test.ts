import assert from 'node:assert/strict'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import type { Socket } from 'node:net'
import { join } from 'node:path'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { WebSocket } from 'ws'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { restoring, useWorld } from '../support/world.ts'

let id: string
const world = useWorld({}, async () => {
  id = await world.sandbox({ timeout: 0, envs: { GREETING: 'hello' } })
})

const path = (suffix: string) => `/api/sandboxes/${id}/exec${suffix}`

test('exec: a command runs to its end and answers what came of it', async () => {
  const { api } = world
  const run = await api.post(path('/run'), {
    cmd: 'echo "$GREETING $X"; pwd; echo no >&2; exit 4',
    envs: { X: 'you' },
    cwd: '/tmp',
  })
  assert.deepEqual(run.body, { exitCode: 4, stdout: 'hello you\n/tmp\n', stderr: 'no\n' })
  assert.equal((await api.post(path('/run'), { cmd: 'echo', args: ['a b', '$X'] })).body.stdout, 'a b $X\n')
  for (const body of [
    {},
    { cmd: '' },
    { cmd: 5 },
    { cmd: 'x', args: 'y' },
    { cmd: 'x', timeout: -1 },
    { cmd: 'x', envs: { a: 1 } },
  ]) {
    assert.equal((await api.post(path('/run'), body)).status, 400, JSON.stringify(body))
  }
  for (const suffix of ['/run-async', '']) {
    const { status, body } = await api.post(path(suffix), { cmd: 'x', timeout: -1 })
    assert.deepEqual([status, body.field], [400, 'timeout'], suffix)
  }
})

test('exec: a timeout is told from an exit with the same status, in each answer', async () => {
  const { api } = world
  const late = { cmd: 'sleep 30', timeout: 1 }
  const own = { cmd: 'exit 124' }
  const ran = { exitCode: 124, stdout: '', stderr: '' }
  assert.deepEqual((await api.post(path('/run'), late)).body, { ...ran, timedOut: true })
  assert.deepEqual((await api.post(path('/run'), own)).body, ran)
  for (const [body, end] of [
    [late, { timedOut: true }],
    [own, {}],
  ] as const) {
    const { execId } = (await api.post(path('/run-async'), body)).body
    let state = (await api.get(path(`/${execId}/result`))).body
    while (state.running) state = (await api.get(path(`/${execId}/result`))).body
    assert.deepEqual(state, { running: false, ...ran, ...end })

    const { sessionID } = (await api.post(path(''), body)).body
    const client = await attach(sessionID)
    assert.equal(await client.closed, 1000)
    assert.deepEqual([...(client.frames.at(-1) ?? [])], [3, 0, 0, 0, 124, ...('timedOut' in end ? [1] : [])])
    const listed = (await api.get(path(''))).body.find((one: { sessionID: string }) => one.sessionID === sessionID)
    assert.deepEqual([listed.exitCode, listed.timedOut], [124, 'timedOut' in end ? true : undefined])
  }
})

test('exec: output past 8 MiB is cut, and said to be', async () => {
  const { body } = await world.api.post(path('/run'), { cmd: 'head -c 9000000 /dev/zero | tr "\\0" x' })
  assert.deepEqual([body.truncated, body.exitCode], [true, 0])
  assert.ok(body.stdout.length <= 8 * 1024 * 1024)
})

test('exec: a command in the background has its result read later', async () => {
  const { api } = world
  const flag = join(world.machines.folder(id), 'may-end')
  const started = await api.post(path('/run-async'), { cmd: `until test -e ${flag}; do sleep 0.05; done; echo done` })
  assert.equal(started.status, 202)
  const { execId } = started.body
  const running = (await api.get(path(`/${execId}/result?wait=0`))).body
  assert.deepEqual([running.running, running.exitCode], [true, undefined])
  writeFileSync(flag, '')
  let ended
  do ended = (await api.get(path(`/${execId}/result`))).body
  while (ended.running)
  assert.deepEqual(ended, { running: false, exitCode: 0, stdout: 'done\n', stderr: '' })
  assert.equal((await api.get(path('/es-unknown00000/result'))).status, 404)
  assert.equal((await api.get(path(`/${execId}/result?wait=x`))).status, 400)
})

interface Attached {
  socket: WebSocket
  frames: Buffer[]
  /** Of all frames, also those that are no longer kept. */
  bytes: number
  /** The code with which it closed. */
  closed: Promise<number>
  send(stream: number, data?: string | Buffer): void
  until(condition: (frames: Buffer[]) => boolean): Promise<void>
  shows(text: string): Promise<void>
}

/** Keeps the last `framesMax` frames. */
async function attach(execId: string, query = '', kind = 'exec', framesMax = Infinity): Promise<Attached> {
  const url = `${world.origin.replace('http', 'ws')}/api/sandboxes/${id}/${kind}/${execId}?api_key=${world.api.key}${query}`
  const socket = new WebSocket(url)
  const frames: Buffer[] = []
  let changed: () => void = () => {}
  const closed = new Promise<number>((resolve) => {
    socket.on('close', (code) => {
      resolve(code)
      changed()
    })
  })
  const client: Attached = {
    socket,
    frames,
    bytes: 0,
    closed,
    send: (stream, data = '') => socket.send(Buffer.concat([Buffer.of(stream), Buffer.from(data)])),
    async until(condition) {
      while (!condition(frames)) {
        assert.ok(socket.readyState === socket.OPEN, `closed too early after ${frames.length} frames`)
        await new Promise<void>((resolve) => {
          changed = resolve
        })
      }
    },
    shows: (text) => client.until(() => Buffer.concat(frames).includes(text)),
  }
  socket.on('message', (data: Buffer, isBinary: boolean) => {
    assert.ok(isBinary)
    client.bytes += data.length
    frames.push(data)
    if (frames.length > framesMax) frames.shift()
    changed()
  })
  await once(socket, 'open')
  return client
}

const output = (frames: Buffer[], stream: number): string =>
  Buffer.concat(frames.filter((frame) => frame[0] === stream).map((frame) => frame.subarray(1))).toString()

test('exec: a session speaks frames: kept output, the offset reached, live output, and the exit last', async () => {
  const { api } = world
  const cmd = 'echo before; echo problem >&2; read line; echo "got $line"; exit 7'
  const started = await api.post(path(''), { cmd })
  assert.equal(started.status, 201)
  assert.deepEqual(
    [started.body.sandboxID, started.body.command, started.body.args, started.body.running, started.body.exitCode],
    [id, 'sh', ['-c', cmd], true, null],
  )
  const execId = started.body.sessionID as string
  assert.match(execId, /^es-/)
  const first = await attach(execId)
  await first.until((frames) => output(frames, 2) === 'problem\n' && output(frames, 1) === 'before\n')
  await first.until((frames) => frames.some((frame) => frame[0] === 4))
  const listed = (await api.get(path(''))).body.find((item: { sessionID: string }) => item.sessionID === execId)
  assert.deepEqual([listed.running, listed.attachedClients], [true, 1])

  const second = await attach(execId)
  await second.until((frames) => frames.some((frame) => frame[0] === 4))
  const replayed = second.frames.find((frame) => frame[0] === 4)
  assert.equal(replayed?.length, 9)
  assert.equal(replayed?.readBigInt64BE(1), 15n)
  assert.equal(output(second.frames, 1) + output(second.frames, 2), 'before\nproblem\n')

  first.send(0, 'some')
  first.send(0, ' input\n')
  assert.equal(await first.closed, 1000)
  assert.equal(await second.closed, 1000)
  for (const { frames } of [first, second]) {
    assert.equal(output(frames, 1), 'before\ngot some input\n')
    const last = frames.at(-1)
    assert.deepEqual([last?.[0], last?.length, last?.readInt32BE(1)], [3, 5, 7])
  }
  const late = await attach(execId, '&offset=15')
  await late.closed
  assert.equal(output(late.frames, 1), 'got some input\n')
  assert.deepEqual(
    late.frames.map((frame) => frame[0]).filter((kind) => kind !== 1),
    [4, 3],
  )
})

test('exec: an empty frame 0 is the end of input, and unknown frames are ignored', async () => {
  const { body } = await world.api.post(path(''), { cmd: 'cat' })
  const { send, closed, frames, socket } = await attach(body.sessionID)
  socket.send('text')
  socket.send(Buffer.alloc(0))
  send(9, 'nothing')
  send(0, 'abc')
  send(0)
  assert.equal(await closed, 1000)
  assert.equal(output(frames, 1), 'abc')
})

test('exec: megabytes flow both ways, and a client that does not read holds the process up without filling the server', async () => {
  const { body } = await world.api.post(path(''), { cmd: 'cat' })
  const { socket, send, closed, frames, until } = await attach(body.sessionID)
  await until((got) => got.some((frame) => frame[0] === 4))
  const chunk = Buffer.alloc(256 * 1024, 'y')
  socket.pause()
  for (let index = 0; index < 64; index++) send(0, chunk)
  send(0)
  await new Promise((resolve) => setTimeout(resolve, 300))
  socket.resume()
  assert.equal(await closed, 1000)
  const bytes = frames.filter((frame) => frame[0] === 1).reduce((sum, frame) => sum + frame.length - 1, 0)
  assert.ok(bytes <= 64 * chunk.length)
  assert.equal(frames.at(-1)?.[0], 3)
})

test('exec: a process is killed by signal, through the API', async () => {
  const { api } = world
  const { body } = await api.post(path(''), { cmd: 'sleep', args: ['60'] })
  const { closed, frames } = await attach(body.sessionID)
  assert.equal((await api.post(path(`/${body.sessionID}/kill`), { signal: 15 })).status, 204)
  await closed
  assert.equal(frames.at(-1)?.readInt32BE(1), 143)
  assert.equal((await api.post(path(`/${body.sessionID}/kill`), {})).status, 204, 'harmless after the end')
  assert.equal((await api.post(path(`/${body.sessionID}/kill`), { signal: 65 })).status, 400)
  assert.equal((await api.post(path('/es-unknown00000/kill'), {})).status, 404)
})

async function refusedUpgrade(target: string, headers: Record<string, string> = {}): Promise<number> {
  const socket = new WebSocket(`${world.origin.replace('http', 'ws')}${target}`, { headers })
  return await new Promise((resolve, reject) => {
    socket.on('unexpected-response', (_request, response) => {
      resolve(response.statusCode ?? 0)
      socket.terminate()
    })
    socket.on('open', () => reject(new Error('it opened')))
    socket.on('error', () => {})
  })
}

test('exec: a WebSocket is refused before the upgrade: no key, a stranger, unknown ids, bad offsets, other addresses', async () => {
  const { body } = await world.api.post(path(''), { cmd: 'sleep 60' })
  const target = path(`/${body.sessionID}`)
  const key = `api_key=${world.api.key}`
  assert.equal(await refusedUpgrade(target), 401)
  assert.equal(await refusedUpgrade(`${target}?api_key=wrong`), 401)
  assert.equal(await refusedUpgrade(`${target}?api_key=${world.stranger.key}`), 404)
  assert.equal(await refusedUpgrade(`${path('/es-unknown00000')}?${key}`), 404)
  assert.equal(await refusedUpgrade(`/api/sandboxes/sb-unknown00000/exec/es-unknown00000?${key}`), 404)
  assert.equal(await refusedUpgrade(`${target}?${key}&offset=-1`), 400)
  assert.equal(await refusedUpgrade(`${target}?${key}&offset=x`), 400)
  assert.equal(await refusedUpgrade(`/api/sandboxes?${key}`, { 'x-api-key': world.api.key }), 400)
  assert.equal(await refusedUpgrade('/nothing'), 404)
  const plain = await world.api.get(target)
  assert.deepEqual([plain.status, plain.body.code], [400, 'invalid_request'])
  const [listed] = (await world.api.get(path(''))).body.filter(
    (item: { sessionID: string }) => item.sessionID === body.sessionID,
  )
  assert.equal(listed.attachedClients, 0, 'refused upgrades leave nothing attached')
  await world.api.post(path(`/${body.sessionID}/kill`), {})
})

test('exec: a terminal carries raw bytes both ways, replays, resizes and ends', async () => {
  const { api } = world
  const pty = `/api/sandboxes/${id}/pty`
  const started = await api.post(pty, { cols: 90, rows: 30, shell: '/bin/sh' })
  assert.deepEqual([started.status, started.body.sandboxID], [201, id])
  const ptyId = started.body.sessionID as string
  assert.match(ptyId, /^ps-/)
  const { socket, frames, shows } = await attach(ptyId, '', 'pty')
  socket.send('stty size; echo a$((1+1))b\n')
  await shows('30 90')
  await shows('a2b')
  const resized = await api.post(`${pty}/${ptyId}/resize`, { cols: 100, rows: 40 })
  assert.deepEqual([resized.status, resized.body], [200, {}])
  socket.send(Buffer.from('stty size\n'))
  await shows('40 100')
  const second = await attach(ptyId, '', 'pty')
  await second.shows('40 100')
  assert.equal((await api.post(`${pty}/${ptyId}/resize`, { cols: 0, rows: 40 })).status, 400)
  assert.equal((await api.delete(`${pty}/${ptyId}`)).status, 204)
  await second.closed
  assert.ok(frames.length > 0)
  const command = await api.post(pty, { shell: '/bin/sh', args: ['-c', 'echo "$1"; read -r _', 'sh', 'a b'] })
  const third = await attach(command.body.sessionID as string, '', 'pty')
  await third.shows('a b')
  const { body: listed } = await api.get(pty)
  const one = listed.find(({ sessionID }: { sessionID: string }) => sessionID === command.body.sessionID)
  assert.deepEqual([one.command, one.args.at(-1), one.running, one.attachedClients], ['/bin/sh', 'a b', true, 1])
  third.socket.send('\n')
  await third.closed
  assert.equal((await api.post(`${pty}/ps-unknown00000/resize`, { cols: 1, rows: 1 })).status, 404)
})

test('exec client: a client that reads nothing costs a bounded buffer, and is let go for the process and other clients', async (t) => {
  const { machines } = world
  const dialled: Socket[] = []
  const { dial } = machines
  restoring(t, machines, 'dial')
  machines.dial = async (sandboxId) => {
    const connection = await dial.call(machines, sandboxId)
    dialled.push(connection as Socket)
    return connection
  }
  const total = 300 * 1024 * 1024
  const execId = (
    await world.api.post(path(''), { cmd: 'sh', args: ['-c', `read go; head -c ${total} /dev/zero; echo done >&2`] })
  ).body.sessionID as string
  const first = dialled.length
  const deaf = await attach(execId, '', 'exec', 100)
  const deafConnections = dialled.slice(first)
  assert.ok(deafConnections.length > 0)
  deaf.socket.pause()
  const reader = await attach(execId, '', 'exec', 100)
  reader.socket.send(Buffer.from('\0go\n'))
  await reader.closed
  assert.deepEqual([reader.frames.at(-1)?.[0], reader.frames.at(-1)?.readInt32BE(1)], [3, 0])
  const taken = deafConnections.reduce((sum, connection) => sum + connection.bytesRead, 0)
  assert.ok(taken < total / 10, `${taken} bytes were taken from the sandbox for it`)
  deaf.socket.resume()
  await deaf.closed
  assert.equal(deaf.frames.at(-1)?.[0], 1, 'it gets what was sent to it, and no exit')
  assert.ok(deaf.bytes < total / 10)
  const { body } = await world.api.get(`/api/sandboxes/${id}/exec/${execId}/result`)
  assert.deepEqual([body.stdout.length, body.stderr], [1024 * 1024, 'done\n'])
})

test('exec client: maxRunAfterDisconnect ends a process that nobody is attached to, and not before the last one leaves', async () => {
  // It counts from the start on, until the first client is attached, which on a busy machine takes a while.
  const maxRunSeconds = 5
  const command = { cmd: 'sh', args: ['-c', 'echo up; sleep 1000'], maxRunAfterDisconnect: maxRunSeconds }
  const execId = (await world.api.post(path(''), command)).body.sessionID as string
  const one = await attach(execId)
  const two = await attach(execId)
  const state = async () => (await world.api.get(`/api/sandboxes/${id}/exec/${execId}/result?wait=0`)).body
  one.socket.close()
  await one.closed
  await sleep(maxRunSeconds * 1000 + 500)
  assert.equal((await state()).running, true)
  two.socket.close()
  await two.closed
  await eventually(async () => !(await state()).running)
  assert.equal((await state()).exitCode, 137)
  for (const maxRunAfterDisconnect of [-1, 1.5, 'x']) {
    const answer = await world.api.post(`/api/sandboxes/${id}/exec`, { cmd: 'true', maxRunAfterDisconnect })
    assert.deepEqual([answer.status, answer.body.code], [400, 'invalid_request'])
  }
})

test('terminal: it has several clients: each may type, all see it, and one that left comes back by offset', async () => {
  const pty = (await world.api.post(`/api/sandboxes/${id}/pty`, { shell: '/bin/sh' })).body.sessionID as string
  const one = await attach(pty, '', 'pty')
  const two = await attach(pty, '', 'pty')
  one.socket.send('echo fir$((1))st\n')
  await Promise.all([one.shows('fir1st'), two.shows('fir1st')])
  two.socket.send('echo sec$((2))ond\n')
  await Promise.all([one.shows('sec2ond'), two.shows('sec2ond')])
  await sleep(100)
  const { bytes } = one
  one.socket.close()
  await one.closed
  two.socket.send('echo th$((3))ird\n')
  await two.shows('th3ird')
  const again = await attach(pty, `&offset=${bytes}`, 'pty')
  await again.shows('th3ird')
  assert.ok(!Buffer.concat(again.frames).includes('sec2ond'))
  const attachedClients = async () => {
    const terminals = await world.sandboxes.exec.list(world.orgId, id, 'pty')
    return terminals.find((terminal) => terminal.id === pty)?.attachedClients
  }
  // The guest notices by itself that a client has left.
  await eventually(async () => (await attachedClients()) !== 3)
  assert.equal(await attachedClients(), 2)
  const listed = (await world.api.get(`/api/sandboxes/${id}/exec`)).body as { sessionID: string }[]
  assert.ok(!listed.some(({ sessionID }) => sessionID === pty), 'a terminal is no exec session')
  assert.equal((await world.api.post(`/api/sandboxes/${id}/exec/${pty}/kill`, {})).status, 404)
  await world.api.delete(`/api/sandboxes/${id}/pty/${pty}`)
  await Promise.all([two.closed, again.closed])
})
