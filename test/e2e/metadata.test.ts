/** The metadata service as programs in real sandboxes see it. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { askPreview, askPreviewUntil } from './preview.ts'
import { forkOf, sh, startSandbox, takeCheckpoint } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'

const server = await AtollServer.startForFile()
const base = 'http://169.254.169.254'

async function inside(id: string, path: string, more = ''): Promise<Record<string, unknown>> {
  return JSON.parse(await sh(server, id, `curl -s -m 60 ${more} ${base}${path}`)) as Record<string, unknown>
}

async function nameOf(id: string): Promise<unknown> {
  return (await inside(id, '/v1/status'))['sandboxId']
}

/** The status and the text of an answer, in one line. */
async function refusal(id: string, words: string): Promise<string> {
  return await sh(server, id, `curl -s -m 60 -w '%{http_code}' ${words} | tr '\\n' ' '`)
}

test('metadata: a sandbox learns who it is, after a fork, a hibernation, a restore and a restart of the server too', async () => {
  const id = await startSandbox(server)
  assert.equal(await nameOf(id), id)
  const { region, template } = await inside(id, '/v1/metadata')
  assert.deepEqual([region, template], ['local', 'base'])
  const checkpoint = await takeCheckpoint(server, id, 'full')
  const fork = await forkOf(server, checkpoint)
  assert.deepEqual([await nameOf(fork), await nameOf(id)], [fork, id])
  // A connection that stays open does not keep memory from being saved.
  const held = `import socket, time; s = socket.create_connection(("169.254.169.254", 80)); print(1, flush=True); time.sleep(1000)`
  await server.json('POST', `/api/sandboxes/${fork}/exec`, { cmd: 'python3', args: ['-c', held] })
  await server.json('POST', `/api/sandboxes/${fork}/hibernate`)
  await server.json('POST', `/api/sandboxes/${fork}/wake`)
  assert.equal(await nameOf(fork), fork)
  await server.json('POST', `/api/sandboxes/${id}/checkpoints/${checkpoint}/restore`)
  assert.equal(await nameOf(id), id)
  await server.stop()
  await server.restart()
  assert.deepEqual([await nameOf(fork), await nameOf(id)], [fork, id])
  await Promise.all([id, fork].map((each) => server.json('DELETE', `/api/sandboxes/${each}`)))
})

test('metadata: a sandbox sees its limits and changes them, unless its size is locked', async () => {
  const id = await startSandbox(server, { memoryMB: 1024, diskMB: 2048 })
  const before = await inside(id, '/v1/limits')
  assert.equal(before['memLimit'], 1024 * 1024 * 1024)
  assert.equal(before['diskLimit'], 2048 * 1024 * 1024)
  for (const name of ['cpuPercent', 'memUsage', 'pids', 'netInput', 'netOutput']) {
    assert.equal(typeof before[name], 'number', name)
  }
  const scaled = await inside(id, '/v1/scale', `-d '{"memoryMB": 8192}'`)
  assert.deepEqual(scaled, { ok: true, memoryMB: 8192, cpuPercent: 200 })
  assert.equal((await inside(id, '/v1/limits'))['memLimit'], 8192 * 1024 * 1024)
  assert.equal(((await server.json('GET', `/api/sandboxes/${id}`)) as { memoryMB: number }).memoryMB, 8192)
  await server.json('POST', `/api/sandboxes/${id}/scale`, { memoryMB: 2048 })
  assert.equal((await inside(id, '/v1/limits'))['memLimit'], 2048 * 1024 * 1024)
  await server.json('PUT', `/api/sandboxes/${id}/scaling-lock`, { locked: true })
  assert.match(await refusal(id, `-d '{"memoryMB": 1024}' ${base}/v1/scale`), /is locked 403$/)
  assert.match(await refusal(id, `-d '{"memoryMB": 1}' ${base}/v1/scale`), /^memoryMB must be .* 400$/)
  assert.match(await refusal(id, `${base}/latest/meta-data`), /^unknown path 404$/)
  assert.match(await refusal(id, `-H 'Host: rebound.example' ${base}/v1/status`), / 400$/)
  await server.json('DELETE', `/api/sandboxes/${id}`)
})

test('metadata: neither a preview nor this machine reaches that of a sandbox', async () => {
  const id = await startSandbox(server)
  for (const port of [80, 4181]) {
    const answer = await askPreview(server, `${id}-p${port}.preview.localhost`, '/v1/status')
    assert.deepEqual([answer.status, JSON.parse(answer.body).code], [502, 'nothing_listening'])
  }
  // The program behind a preview may be a proxy that goes where a request says: the preview tells it what the browser is, and it passes that on.
  const proxy = `
import http.server, urllib.error, urllib.request
class Proxy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        try: answer = urllib.request.urlopen(urllib.request.Request("${base}" + self.path, headers=headers))
        except urllib.error.HTTPError as error: answer = error
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"%d " % answer.status + answer.read())
http.server.HTTPServer(("", 8000), Proxy).serve_forever()`
  await server.json('POST', `/api/sandboxes/${id}/exec`, { cmd: 'python3', args: ['-c', proxy] })
  const proxied = await askPreviewUntil(
    server,
    `${id}-p8000.preview.localhost`,
    ({ status }) => status === 200,
    '/v1/status',
  )
  assert.match(proxied.body, /^400 the request is not from inside/)
  const routes = await sh(server, id, 'ip route 2>/dev/null || cat /etc/resolv.conf')
  const gateway = /(?:via|nameserver) (\d+\.\d+\.\d+\.\d+)/.exec(routes)?.[1]
  const answer = await fetch(`http://${gateway}:4181/v1/status`)
  assert.deepEqual([answer.status, await answer.text()], [404, 'not a sandbox\n'])
  await server.json('DELETE', `/api/sandboxes/${id}`)
})

test('metadata: ten thousand requests and more from one sandbox stop neither the API nor the requests of another', async () => {
  const [greedy, other] = await Promise.all([startSandbox(server), startSandbox(server)])
  // Also those count that no listener gets: they are asked all the same.
  const flood = `
import itertools, socket, threading, time
asked = itertools.count()
def work():
    while True:
        try:
            with socket.create_connection(("169.254.169.254", 80), 1) as s:
                while True:
                    s.sendall(b"GET /v1/limits HTTP/1.1\\r\\nHost: 169.254.169.254\\r\\n\\r\\n" * 500)
                    for _ in range(500): next(asked)
                    if not s.recv(1 << 16): break
        except OSError: pass
for _ in range(100): threading.Thread(target=work, daemon=True).start()
while next(asked) < 10_000: time.sleep(0.05)
open("/tmp/asked", "w").close()
time.sleep(1000)`
  await server.json('POST', `/api/sandboxes/${greedy}/exec`, { cmd: 'python3', args: ['-c', flood] })
  for (let round = 0; round < 5; round += 1) assert.equal(await nameOf(other), other)
  await sh(server, greedy, 'while [ ! -e /tmp/asked ]; do sleep 0.1; done')
  assert.equal(await nameOf(other), other)
  await server.json('GET', '/api/sandboxes')
  // It gets what is its own share.
  const answers = `for i in $(seq 60); do curl -s -m 5 -o /dev/null -w '%{http_code}\\n' ${base}/; done | sort | uniq -c`
  const codes = await sh(server, other, answers)
  assert.match(codes, / 200$/m)
  await Promise.all([greedy, other].map((each) => server.json('DELETE', `/api/sandboxes/${each}`)))
})
