/** Servers in a sandbox by `sandbox.fetch` and `waitForPort` of this repository's SDK. */
import assert from 'node:assert/strict'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { test } from 'node:test'
import {
  Atoll,
  ConnectionError,
  NotFoundError,
  NothingListeningError,
  RequestTimeoutError,
  Sandbox,
} from '../../sdk/src/index.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { freePort } from '../support/listen.ts'
import { usePreview } from '../support/preview-world.ts'

const redirects: Record<string, [status: number, location: string]> = {}
const preview = usePreview({
  '/echo': (request, response) => void request.pipe(response.setHeader('X-Method', request.method ?? '')),
  '/missing': (_request, response) => void response.writeHead(404).end('my own 404'),
})

async function connected(): Promise<Sandbox> {
  const { origin, api } = preview.world
  return await Sandbox.connect(preview.id, { client: new Atoll({ url: origin, apiKey: api.key }) })
}

function redirect(path: string, status: number, location: string): void {
  redirects[path] = [status, location]
  preview.answers[path] = (_request: IncomingMessage, response: ServerResponse) => {
    const [code, to] = redirects[path] ?? [500, '']
    response.writeHead(code, { location: to }).end()
  }
}

test('sandbox.fetch: takes and gives what fetch does, with an error status of the server as its answer', async () => {
  const sandbox = await connected()
  const answer = await sandbox.fetch(preview.port, '/echo?a=b', {
    method: 'POST',
    body: 'text',
    headers: { 'X-A': 'b' },
  })
  assert.deepEqual([answer.status, await answer.text(), answer.headers.get('x-method')], [200, 'text', 'POST'])
  const streamed = await sandbox.fetch(preview.port, '/echo', { method: 'PUT', body: new Blob(['streamed']).stream() })
  assert.equal(await streamed.text(), 'streamed')
  const missing = await sandbox.fetch(preview.port, '/missing')
  assert.deepEqual([missing.status, await missing.text()], [404, 'my own 404'])
  assert.equal((await sandbox.fetch(preview.port, '/large', { method: 'HEAD' })).status, 200)
  const { headers } = (await (await sandbox.fetch(preview.port, '/headers')).json()) as {
    headers: Record<string, string>
  }
  assert.equal(headers['x-api-key'], undefined)
})

test('sandbox.fetch: no path leaves the port', async () => {
  const sandbox = await connected()
  for (const [path, url] of [
    ['/../../../../../host', '/host'],
    ['/%2e%2e/%2E%2e/x', '/x'],
    ['//evil.example/x', '//evil.example/x'],
    ['\\evil.example', '//evil.example'],
    ['@evil.example', '/@evil.example'],
    ['x?q=../..#hash', '/x?q=../..'],
    ['', '/'],
  ] as const) {
    assert.equal(await (await sandbox.fetch(preview.port, path)).text(), `hello from ${url}`, path)
  }
})

test('sandbox.fetch: redirections are followed within the port, and others are the answer', async () => {
  const sandbox = await connected()
  const text = async (path: string, init: RequestInit = {}) =>
    await (await sandbox.fetch(preview.port, path, init)).text()
  redirect('/a/relative', 302, 'next?x')
  assert.equal(await text('/a/relative'), 'hello from /a/next?x')
  redirect('/absolute', 301, `http://localhost:${preview.port}/there`)
  assert.equal(await text('/absolute'), 'hello from /there')
  redirect('/by-host', 302, `http://${preview.host}/there`)
  assert.equal(await text('/by-host'), 'hello from /there')
  redirect('/kept', 307, '/echo')
  assert.equal(await text('/kept', { method: 'POST', body: 'again' }), 'again')
  redirect('/seen', 303, '/echo')
  const seen = await sandbox.fetch(preview.port, '/seen', { method: 'POST', body: 'dropped' })
  assert.deepEqual([seen.headers.get('x-method'), await seen.text()], ['GET', ''])

  redirect('/away', 302, 'http://127.0.0.1:1/')
  const away = await sandbox.fetch(preview.port, '/away')
  assert.deepEqual([away.status, away.headers.get('location')], [302, 'http://127.0.0.1:1/'])
  assert.equal((await sandbox.fetch(preview.port, '/a/relative', { redirect: 'manual' })).status, 302)
  await assert.rejects(
    sandbox.fetch(preview.port, '/a/relative', { redirect: 'error' }),
    /redirects \/a\/relative to next\?x/,
  )
  redirect('/circle', 302, '/circle')
  await assert.rejects(sandbox.fetch(preview.port, '/circle'), /more than 20 times/)
})

test('sandbox.fetch: errors of Atoll are thrown, and an abort is its reason', async () => {
  const sandbox = await connected()
  await assert.rejects(sandbox.fetch(1, '/'), NothingListeningError)
  await assert.rejects(sandbox.fetch(1, '/', { method: 'HEAD' }), NothingListeningError)
  preview.answers['/waits'] = () => {}
  const stop = new AbortController()
  const reason = new Error('enough')
  const waiting = sandbox.fetch(preview.port, '/waits', { signal: stop.signal })
  await eventually(() => preview.seen.at(-1)?.url === '/waits')
  stop.abort(reason)
  await assert.rejects(waiting, reason)
  const nowhere = new Sandbox(new Atoll({ url: 'http://127.0.0.1:1', apiKey: 'x' }), await sandbox.info())
  await assert.rejects(nowhere.fetch(3000, '/'), ConnectionError)
  const gone = new Sandbox(
    new Atoll({ url: preview.world.origin, apiKey: preview.world.stranger.key }),
    await sandbox.info(),
  )
  await assert.rejects(gone.fetch(3000, '/'), NotFoundError)
})

test('sandbox.waitForPort: ends when a server listens, and throws when none does in time', async (t) => {
  const sandbox = await connected()
  await assert.rejects(sandbox.waitForPort(1, { timeoutMs: 0 }), RequestTimeoutError)
  await assert.rejects(sandbox.waitForPort(1, { signal: AbortSignal.abort(new Error('enough')) }), /enough/)
  const ports = sandbox.ports.bind(sandbox)
  const server = createServer((_request, response) => response.end('up'))
  t.after(() => void server.close())
  const free = await freePort()
  let asked = 0
  sandbox.ports = async (options) => {
    const found = await ports(options)
    asked += 1
    if (asked === 2) server.listen(free, '127.0.0.1')
    return found
  }
  assert.equal((await sandbox.waitForPort(free)).port, free)
  assert.ok(asked > 2)
})
