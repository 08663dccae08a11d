import assert from 'node:assert/strict'
import { test } from 'node:test'
import { WebSocket } from 'ws'
import { useWorld } from '../support/use-world.ts'

let id: string
const world = useWorld({}, async () => {
  id = await world.sandbox({ envs: { GREETING: 'hello' } })
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
  assert.equal((await api.post(path('/run'), { cmd: 'sleep 30', timeout: 1 })).body.exitCode, 124)
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
})

test('exec: output past 8 MiB is cut, and said to be', async () => {
  const { body } = await world.api.post(path('/run'), { cmd: 'head -c 9000000 /dev/zero | tr "\\0" x' })
  assert.deepEqual([body.truncated, body.exitCode], [true, 0])
  assert.ok(body.stdout.length <= 8 * 1024 * 1024)
})

test('exec: a command in the background has its result read later', async () => {
  const { api } = world
  const started = await api.post(path('/run-async'), { cmd: 'sleep 0.3; echo done' })
  assert.equal(started.status, 202)
  const { execId } = started.body
  const running = (await api.get(path(`/${execId}/result?wait=0`))).body
  assert.deepEqual([running.running, running.exitCode], [true, undefined])
  const ended = (await api.get(path(`/${execId}/result`))).body
  assert.deepEqual(ended, { running: false, exitCode: 0, stdout: 'done\n', stderr: '' })
  assert.equal((await api.get(path('/es-unknown00000/result'))).status, 404)
  assert.equal((await api.get(path(`/${execId}/result?wait=x`))).status, 400)
})

interface Attached {
  socket: WebSocket
  frames: Buffer[]
  closed: Promise<number>
  send(stream: number, data?: string | Buffer): void
  until(condition: (frames: Buffer[]) => boolean): Promise<void>
}

async function attach(execId: string, query = '', kind = 'exec'): Promise<Attached> {
  const url = `${world.origin.replace('http', 'ws')}/api/sandboxes/${id}/${kind}/${execId}?api_key=${world.api.key}${query}`
  const socket = new WebSocket(url)
  const frames: Buffer[] = []
  let told: () => void = () => {}
  socket.on('message', (data: Buffer, isBinary: boolean) => {
    assert.ok(isBinary)
    frames.push(data)
    told()
  })
  const closed = new Promise<number>((resolve) => {
    socket.on('close', (code) => {
      resolve(code)
      told()
    })
  })
  await new Promise<void>((resolve, reject) => {
    socket.on('open', resolve)
    socket.on('error', reject)
  })
  return {
    socket,
    frames,
    closed,
    send: (stream, data = '') => socket.send(Buffer.concat([Buffer.of(stream), Buffer.from(data)])),
    async until(condition) {
      while (!condition(frames)) {
        assert.ok(
          socket.readyState === socket.OPEN || condition(frames),
          `closed too early after ${frames.length} frames`,
        )
        await new Promise<void>((resolve) => {
          told = resolve
        })
      }
    },
  }
}

const output = (frames: Buffer[], stream: number): string =>
  Buffer.concat(frames.filter((frame) => frame[0] === stream).map((frame) => frame.subarray(1))).toString()

test('an exec session speaks frames: kept output, the offset reached, live output, and the exit last', async () => {
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
  const { socket, frames, until } = await attach(ptyId, '', 'pty')
  const text = (got: Buffer[]) => Buffer.concat(got).toString()
  socket.send('stty size; echo a$((1+1))b\n')
  await until((got) => text(got).includes('30 90') && text(got).includes('a2b'))
  const resized = await api.post(`${pty}/${ptyId}/resize`, { cols: 100, rows: 40 })
  assert.deepEqual([resized.status, resized.body], [200, {}])
  socket.send(Buffer.from('stty size\n'))
  await until((got) => text(got).includes('40 100'))
  const second = await attach(ptyId, '', 'pty')
  await second.until((got) => text(got).includes('40 100'))
  assert.equal((await api.post(`${pty}/${ptyId}/resize`, { cols: 0, rows: 40 })).status, 400)
  assert.equal((await api.delete(`${pty}/${ptyId}`)).status, 204)
  await second.closed
  assert.ok(frames.length > 0)
  assert.equal((await api.post(`${pty}/ps-unknown00000/resize`, { cols: 1, rows: 1 })).status, 404)
})
