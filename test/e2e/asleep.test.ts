/** Activity, hibernation, waking and sizes of real sandboxes. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { get, type IncomingMessage } from 'node:http'
import { readdir, readFile } from 'node:fs/promises'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { WebSocket } from 'ws'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { askPreview } from './preview.ts'
import { groupsOf, processesOf } from './sandbox-insides.ts'
import { sh, startSandbox } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'
import { Terminal } from './sockets.ts'

const server = await AtollServer.startForFile()

const create = (timeout: number) => startSandbox(server, { timeout })

/** Neither wakes it nor counts as activity. */
async function status(id: string): Promise<string> {
  return ((await server.json('GET', `/api/sandboxes/${id}`)) as { status: string }).status
}

async function start(id: string, cmd: string, args: string[]): Promise<string> {
  const body = { cmd, args }
  return ((await server.json('POST', `/api/sandboxes/${id}/exec`, body)) as { sessionID: string }).sessionID
}

/** Reads an exec session from an offset until `enough`; returns its output and the offset reached. */
async function follow(id: string, execId: string, offset: number, enough: (output: string) => boolean) {
  const path = `/api/sandboxes/${id}/exec/${execId}?api_key=${server.key}&offset=${offset}`
  const socket = new WebSocket(`ws://127.0.0.1:${server.port}${path}`)
  const closed = once(socket, 'close')
  let output = ''
  // Frames that arrive together are emitted in one turn of the event loop: each needs to be taken as it comes.
  socket.on('message', (frame: Buffer) => {
    if (frame[0] === 1 && !enough(output)) output += frame.subarray(1).toString()
    if (enough(output)) socket.close()
  })
  await closed
  return { output, offset: offset + Buffer.byteLength(output) }
}

const hostOf = (id: string, port: number) => `${id}-p${port}.preview.localhost`
const page = (id: string, port: number) => askPreview(server, hostOf(id, port))

/** Asks for a page that does not end, and returns when the first of it has come. */
async function begin(id: string, port: number): Promise<void> {
  const request = get({ host: '127.0.0.1', port: server.port, headers: { Host: hostOf(id, port) } })
  const [answer] = (await once(request, 'response')) as [IncomingMessage]
  await once(answer, 'data')
  for (const one of [request, answer]) one.on('error', () => undefined)
}

test('hibernate: it leaves no process, no control group and no memory; exec sessions go on by offset', async () => {
  const id = await create(0)
  const script = 'i=0; while true; do i=$((i+1)); echo line $i; sleep 0.05; done'
  const loop = await start(id, 'bash', ['-c', script])
  const hold = await start(id, 'python3', [
    '-c',
    'b = bytearray(b"x" * (64 << 20)); print("held", flush=True); input()',
  ])
  await follow(id, hold, 0, (output) => output.includes('held'))
  const first = await follow(id, loop, 0, (output) => output.includes('line 3\n'))
  const pids = await processesOf(id)
  assert.ok(pids.length >= 3)
  assert.ok((await groupsOf(id)).length > 0)

  const hibernated = (await server.json('POST', `/api/sandboxes/${id}/hibernate`)) as {
    status: string
    sizeBytes: number
  }
  assert.equal(hibernated.status, 'hibernated')
  assert.ok(hibernated.sizeBytes > 64 << 20)
  assert.deepEqual(await server.json('POST', `/api/sandboxes/${id}/hibernate`), hibernated, 'a repeat says the same')
  assert.deepEqual(await processesOf(id), [])
  assert.deepEqual(await groupsOf(id), [])
  const mounts = (await readFile('/proc/self/mountinfo', 'utf8')).split('\n')
  assert.deepEqual(
    mounts.filter((line) => line.includes(id) && line.includes(' - tmpfs ')),
    [],
    'nor a file system in memory',
  )
  const left = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')))
  assert.ok(!left.join().includes('while true'))

  const rest = await follow(id, loop, first.offset, (output) => output.split('\n').length > 5)
  const lines = (first.output + rest.output).split('\n').slice(0, -1)
  assert.deepEqual(
    lines,
    lines.map((_, index) => `line ${index + 1}`),
    'no line is missing and none came twice',
  )
  await server.json('DELETE', `/api/sandboxes/${id}`)
})

test('lifetimes: an age that is reached ends a command and a hibernated sandbox, an idle one can stop; the host keeps nothing', async () => {
  const startedAt = performance.now()
  const [busy, asleep] = [await startSandbox(server), await startSandbox(server)]
  const idle = await startSandbox(server, { timeout: 1, onIdle: 'stop' })
  const exec = await start(busy, 'sleep', ['1000'])
  const followed = follow(busy, exec, 0, () => false)
  await server.json('POST', `/api/sandboxes/${asleep}/hibernate`)
  const pids = await processesOf(busy)
  assert.ok(pids.length > 1)
  // Of some seconds from now on, however long this has taken.
  const maxAgeSeconds = Math.ceil((performance.now() - startedAt) / 1000) + 10
  for (const id of [busy, asleep]) await server.json('PATCH', `/api/sandboxes/${id}`, { maxAgeSeconds })
  await followed
  for (const [id, reason] of [
    [busy, 'expired'],
    [asleep, 'expired'],
    [idle, 'idle'],
  ] as const) {
    const ended = await eventually(async () => {
      const read = (await server.json('GET', `/api/sandboxes/${id}`)) as { status: string; reason?: string }
      assert.equal(read.status, 'stopped')
      return read
    })
    assert.equal(ended.reason, reason)
    await eventually(async () => (await processesOf(id)).length === 0)
    await eventually(
      async () => !(await readdir(server.dataDir, { recursive: true })).some((name) => name.includes(id)),
    )
  }
})

test('hibernate: a sandbox does at its timeout, and a preview request wakes it', async () => {
  const id = await create(0)
  await server.fetch(`/api/sandboxes/${id}/files?path=/srv/index.html`, { method: 'PUT', body: 'still here' })
  await sh(
    server,
    id,
    'cd /srv && setsid python3 -m http.server 8000 >/dev/null 2>&1 & while ! curl -s localhost:8000; do sleep 0.1; done',
  )
  await server.json('POST', `/api/sandboxes/${id}/timeout`, { timeout: 1 })
  while ((await status(id)) !== 'hibernated') await sleep(50)
  assert.deepEqual(await processesOf(id), [])
  const [one, two] = await Promise.all([page(id, 8000), page(id, 8000)])
  assert.deepEqual([one.status, one.body, two.body], [200, 'still here', 'still here'])
  await server.json('DELETE', `/api/sandboxes/${id}`)
})

test('hibernate: an attached client, a running exec session and an open preview each prevent it', async () => {
  const ids = await Promise.all([create(1), create(1), create(1), create(1)])
  const [client, session, preview, idle] = ids
  const pty = (await server.json('POST', `/api/sandboxes/${client}/pty`, { shell: '/bin/sh' })) as { sessionID: string }
  const terminal = await Terminal.open(server, client, pty.sessionID)
  const sleeper = await start(session, 'sleep', ['1000'])
  const serve = `import http.server, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"begun\\n"); self.wfile.flush(); time.sleep(1000)
http.server.HTTPServer(("127.0.0.1", 8000), Handler).serve_forever()`
  // Detached from every exec session, so that only the request counts.
  const listens = `until bash -c '</dev/tcp/127.0.0.1/8000' 2>/dev/null; do sleep 0.1; done`
  await sh(server, preview, `setsid python3 -c '${serve}' >/dev/null 2>&1 & ${listens}`)
  await begin(preview, 8000)
  while ((await status(idle)) !== 'hibernated') await sleep(50)
  await sleep(1500)
  for (const id of [client, session, preview]) assert.equal(await status(id), 'running')
  assert.ok(terminal.isOpen)
  terminal.close()
  await server.json('DELETE', `/api/sandboxes/${client}/pty/${pty.sessionID}`)
  await server.json('POST', `/api/sandboxes/${session}/exec/${sleeper}/kill`, {})
  for (const id of [client, session]) while ((await status(id)) !== 'hibernated') await sleep(50)
  await Promise.all(ids.map((id) => server.json('DELETE', `/api/sandboxes/${id}`)))
})

test('scale: it changes memory and CPU of the same processes at once, and wakes a hibernated sandbox', async () => {
  const id = await create(0)
  const sleeper = await start(id, 'sleep', ['1000'])
  const pids = await processesOf(id)
  const scale = async (memoryMB: number) => {
    const scaled = (await server.json('POST', `/api/sandboxes/${id}/scale`, { memoryMB })) as Record<string, unknown>
    assert.equal(scaled['memoryMB'], memoryMB)
    return scaled['cpuPercent']
  }
  assert.deepEqual(await limitsOf(id), { memoryMb: 1024, cpus: 1 })
  assert.equal(await scale(8192), 200)
  assert.deepEqual(await limitsOf(id), { memoryMb: 8192, cpus: 2 })
  assert.deepEqual(await processesOf(id), pids)
  for (const memoryMb of [512, 2048]) {
    await server.json('POST', `/api/sandboxes/${id}/hibernate`)
    await scale(memoryMb)
    assert.equal(await status(id), 'running')
    assert.deepEqual(await limitsOf(id), { memoryMb, cpus: 2 })
  }
  const sessions = (await server.json('GET', `/api/sandboxes/${id}/exec`)) as { sessionID: string; running: boolean }[]
  assert.equal(sessions.find(({ sessionID }) => sessionID === sleeper)?.running, true)
  await server.json('DELETE', `/api/sandboxes/${id}`)
})

/** What the kernel holds its processes to, in either version of control groups. */
async function limitsOf(id: string): Promise<{ memoryMb: number; cpus: number }> {
  const groups = await groupsOf(id)
  const read = async (file: string) => {
    const texts = await Promise.all(groups.map((group) => readFile(`${group}/${file}`, 'utf8').catch(() => '')))
    return texts.find((text) => text !== '')?.trim()
  }
  const memory = (await read('memory.max')) ?? (await read('memory.limit_in_bytes'))
  const [quota, period] =
    (await read('cpu.max'))?.split(' ') ?? (await Promise.all([read('cpu.cfs_quota_us'), read('cpu.cfs_period_us')]))
  return { memoryMb: Number(memory) / 1024 / 1024, cpus: Number(quota) / Number(period) }
}
