/** The dashboard as it is served: its page at `/` and at the addresses of its own, and the files that it loads. */
import assert from 'node:assert/strict'
import { symlink, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { test } from 'node:test'
import { gunzipSync } from 'node:zlib'
import { defaultHttpLimits } from '../../src/http/server/config.ts'
import { readDashboard } from '../../src/http/server/dashboard.ts'
import { routes } from '../../src/http/routes/index.ts'
import { exchange } from '../support/api-client.ts'
import { makeWorld, useWorld } from '../support/world.ts'

const page =
  '<!doctype html><meta property="csp-nonce" nonce="NONCE_OF_THIS_ANSWER"><script type="module" src="/assets/index-a1.js"></script><link rel="stylesheet" href="/assets/index-b2.css">'
const script = 'export const words = "the same words again and again";\n'.repeat(40)
const dashboard = {
  'index.html': page,
  'assets/index-a1.js': script,
  'assets/index-b2.css': 'body{color:red}\n'.repeat(40),
  'assets/icon-c3.svg': '<svg xmlns="http://www.w3.org/2000/svg"/>',
  'assets/font-d4.woff2': 'not compressed\n'.repeat(40),
  'other.html': 'no part of it',
}
const world = useWorld({ dashboard })
const asPage = { accept: 'text/html,application/xhtml+xml,*/*;q=0.8' }

const ask = async (path: string, headers: Record<string, string> = {}, method = 'GET') =>
  await exchange(world.origin + path, { method, headers })

function withoutNonce(text: string): string {
  return text.replace(/nonce="[\w-]+"/, 'nonce="NONCE_OF_THIS_ANSWER"')
}

/** One request as it is written, with a path that a client would put in order. */
async function raw(path: string): Promise<string> {
  const socket = connect(world.port, '127.0.0.1')
  socket.end(`GET ${path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`)
  return (await socket.toArray()).map(String).join('')
}

test('dashboard: a browser gets its page at /, and a program the addresses as before', async () => {
  const { status, headers, text } = await ask('/', asPage)
  assert.deepEqual([status, withoutNonce(text), headers['content-type']], [200, page, 'text/html; charset=utf-8'])
  assert.deepEqual([headers['cache-control'], headers['referrer-policy']], ['no-store', 'no-referrer'])
  assert.deepEqual([headers.vary, headers['x-content-type-options']], ['accept', 'nosniff'])
  const [, nonce = ''] = /nonce="([\w-]+)"/.exec(text) ?? []
  assert.equal(
    headers['content-security-policy'],
    `default-src 'none'; script-src 'self'; style-src 'self' 'nonce-${nonce}'; img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; worker-src 'self'; ` +
      "frame-src http://*.preview.test; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
  )
  assert.ok(nonce.length >= 20 && !(await ask('/', asPage)).text.includes(nonce), 'each answer has a nonce of its own')
  assert.equal((await world.api.get('/', { key: null })).body.docs, '/docs')
  assert.equal((await world.api.get('/', { key: null, headers: { accept: '*/*' } })).body.name, 'atoll')
  const head = await ask('/', asPage, 'HEAD')
  assert.deepEqual([head.status, head.text, head.headers['content-type']], [200, '', headers['content-type']])
})

test('dashboard: its addresses are its page to a browser, and what they were to everything else', async () => {
  for (const path of [
    ...['/sandboxes', '/sessions/session_x', '/images?x=1', '/volumes/a/b', '/webhooks', '/secrets', '/usage/'],
    ...['/audit', '/keys', '/organisations', '/host', '/checkpoints', '/capsules/moment_x', '/sign-in?to=%2F'],
    ...['/sandboxes/..%2f..%2fetc', '/sandboxes/a.js'],
  ]) {
    const answer = await ask(path, asPage)
    assert.deepEqual([answer.status, withoutNonce(answer.text)], [200, page], path)
    assert.equal((await ask(path, asPage, 'HEAD')).status, 200, path)
    for (const [headers, method] of [
      [{}, 'GET'],
      [{ accept: 'application/json' }, 'GET'],
      [asPage, 'POST'],
      [asPage, 'DELETE'],
    ] as const) {
      const other = await ask(path, headers, method)
      assert.deepEqual([other.status, other.body.code], [404, 'not_found'], `${method} ${path}`)
    }
  }
  for (const path of [
    '/sandboxesx',
    '/Sandboxes',
    '/%73andboxes',
    '//sandboxes',
    '/x/sandboxes',
    '/index.html',
    '/other.html',
  ]) {
    assert.equal((await ask(path, asPage)).status, 404, path)
  }
  // The API keeps its own answers.
  assert.equal((await ask('/api/nothing', asPage)).body.code, 'not_found')
  assert.equal((await ask('/v1/sessions', asPage)).status, 401)
})

test('dashboard: its files are kept for ever by browsers, compressed for who takes that', async () => {
  const { status, headers, text } = await ask('/assets/index-a1.js')
  assert.deepEqual([status, text, headers['content-type']], [200, script, 'text/javascript; charset=utf-8'])
  assert.equal(headers['cache-control'], 'public, max-age=31536000, immutable')
  assert.deepEqual([headers.vary, headers['x-content-type-options']], ['accept-encoding', 'nosniff'])
  assert.equal(headers['content-length'], String(script.length))
  const head = await ask('/assets/index-a1.js', {}, 'HEAD')
  assert.deepEqual([head.status, head.text, head.headers['content-length']], [200, '', String(script.length)])
  for (const accepted of ['gzip', 'br, gzip;q=0.5', 'GZIP']) {
    const packed = await ask('/assets/index-a1.js', { 'accept-encoding': accepted })
    assert.equal(packed.headers['content-encoding'], 'gzip', accepted)
    assert.equal(gunzipSync(packed.bytes).toString(), script)
    assert.ok(packed.bytes.length < script.length / 2)
    assert.notEqual(packed.headers.etag, headers.etag)
  }
  for (const accepted of ['', 'br', 'gzip;q=0', 'identity, gzip; q=0.0', 'xgzip']) {
    const whole = await ask('/assets/index-a1.js', { 'accept-encoding': accepted })
    assert.deepEqual([whole.headers['content-encoding'], whole.text], [undefined, script], accepted)
  }
  const unchanged = await ask('/assets/index-a1.js', {
    'if-none-match': `W/${headers.etag}`,
    'accept-encoding': 'gzip',
  })
  assert.deepEqual([unchanged.status, unchanged.text], [304, ''])
  for (const [path, type] of [
    ['/assets/index-b2.css', 'text/css; charset=utf-8'],
    ['/assets/icon-c3.svg', 'image/svg+xml'],
    ['/assets/font-d4.woff2', 'font/woff2'],
  ] as const) {
    assert.equal((await ask(path)).headers['content-type'], type)
  }
  const font = await ask('/assets/font-d4.woff2', { 'accept-encoding': 'gzip' })
  assert.deepEqual([font.headers['content-encoding'], font.headers.vary], [undefined, undefined])
})

test('dashboard: no path leads out of its files', async () => {
  await writeFile(`${world.dataDir}/secret.txt`, 'the secret')
  for (const path of [
    ...[
      '/assets',
      '/assets/',
      '/assets/index-a1',
      '/assets/index-A1.js',
      '/assets/index-a1.js/',
      '/assets//index-a1.js',
    ],
    ...['/assets/../index.html', '/assets/../other.html', '/assets/..%2fother.html', '/assets/%2e%2e/other.html'],
    ...[
      '/assets/..\\other.html',
      '/assets/../../secret.txt',
      '/assets/..%2f..%2fsecret.txt',
      '/assets/%00',
      '/assets/index-a1.js%00',
    ],
    ...['/assets/./index-a1.js', '/assets/%69ndex-a1.js', '/assets/%252e%252e/other.html', '/assets/;/index-a1.js'],
    ...['//assets/index-a1.js', '/ASSETS/index-a1.js', '/assets/constructor', '/assets/__proto__', '/assets/toString'],
  ]) {
    const answer = await raw(path)
    assert.match(answer, /^HTTP\/1\.1 40[04] /, path)
    assert.doesNotMatch(answer, /the secret|no part of it|doctype/)
    assert.doesNotMatch(answer, /immutable/)
  }
  for (const method of ['POST', 'PUT', 'DELETE', 'OPTIONS']) {
    const { status, text } = await ask('/assets/index-a1.js', {}, method)
    assert.ok(status === 404 || (status === 204 && text === ''), method)
  }
  assert.equal((await ask('/assets/index-a1.js?x=1')).text, script)
})

test('dashboard: pages of the server run no file of a tenant', async () => {
  const id = await world.sandbox()
  const file = `/api/sandboxes/${id}/files?path=${world.machines.folder(id)}/x.js`
  await world.api.put(file, Buffer.from('alert(1)'))
  const as = (destination: string) => ({ 'sec-fetch-dest': destination, 'sec-fetch-site': 'same-origin' })
  for (const destination of ['script', 'worker', 'serviceworker', 'style']) {
    const answer = await world.api.get(file, { headers: as(destination) })
    assert.deepEqual([answer.status, answer.headers['x-error-code']], [403, 'forbidden'], destination)
  }
  assert.equal((await world.api.get(file, { headers: as('empty') })).text, 'alert(1)')
  assert.equal((await ask('/assets/index-a1.js', as('script'))).status, 200)
  // Whatever else tenants write has a type that nobody guesses.
  assert.equal((await world.api.get('/api/whoami')).headers['x-content-type-options'], 'nosniff')
})

test('dashboard: its files count for the rate of their address', async () => {
  const limited = await makeWorld({ dashboard, limits: { requestsPerSecond: 0.001, requestBurst: 3 } })
  try {
    const statuses: number[] = []
    for (let count = 0; count < 5; count++)
      statuses.push((await exchange(`${limited.origin}/assets/index-a1.js`)).status)
    assert.deepEqual(statuses, [200, 200, 200, 429, 429])
    assert.ok(defaultHttpLimits.requestBurst > Object.keys(dashboard).length)
  } finally {
    await limited.close()
  }
})

test('dashboard: a server without it says how it is built, and the paths are not in the reference', async () => {
  const bare = await makeWorld()
  try {
    const home = await exchange(`${bare.origin}/`, { headers: asPage })
    assert.match(home.text, /npm run setup/)
    assert.equal((await exchange(`${bare.origin}/sandboxes`, { headers: asPage })).body.code, 'not_found')
  } finally {
    await bare.close()
  }
  assert.deepEqual(
    routes.filter(({ path }) => /^\/(?:assets|sandboxes|sign-in)/.test(path)),
    [],
  )
})

test('dashboard: a server with half of a build serves the API all the same, and says why it has no page', async () => {
  const half = await makeWorld({ dashboard: { 'index.html': page, 'assets/index-b2.css': 'a{}' } })
  try {
    assert.match((await exchange(`${half.origin}/`, { headers: asPage })).text, /npm run setup/)
    assert.equal((await half.api.get('/api/sandboxes')).status, 200)
    const [facts] = half.logs.flatMap((line) => (line.message.startsWith('the dashboard cannot') ? [line.facts] : []))
    assert.ok(facts !== undefined && 'err' in facts)
    assert.match(String(facts.err), /lacks \/assets\/index-a1\.js/)
  } finally {
    await half.close()
  }
})

test('dashboard: a build that is not whole is none, and a link in it leads nowhere', async () => {
  const dir = `${world.dataDir}/dashboard`
  await symlink(`${world.dataDir}/secret.txt`, `${dir}/assets/link.js`)
  const built = await readDashboard(dir, 'https://preview.example.com')
  assert.equal(await built?.answer({ method: 'GET', url: '/assets/link.js', headers: {} }), undefined)
  const { headers } = built?.page() ?? {}
  assert.match(headers?.['content-security-policy'] ?? '', /frame-src https:\/\/\*\.preview\.example\.com;/)
  assert.equal(await readDashboard(`${dir}/assets`, 'http://preview.test'), undefined)
  await writeFile(`${dir}/index.html`, `${page}<script src="/assets/gone-e5.js">`)
  await assert.rejects(readDashboard(dir, 'http://preview.test'), /lacks \/assets\/gone-e5\.js/)
  // The server that runs has what it had.
  assert.equal(withoutNonce((await ask('/', asPage)).text), page)
})
