import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect as connectHttp2 } from 'node:http2'
import type { IncomingMessage } from 'node:http'
import { Agent, request } from 'node:https'
import { after, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { connect as connectTls } from 'node:tls'
import { WebSocket } from 'ws'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { Caddy } from '../support/caddy.ts'
import { DnsServer } from '../support/dns-server.ts'
import { freePort } from '../support/listen.ts'
import { launchBrowser, visit } from './browser.ts'
import { startSandbox } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'

const customHost = 'shop.example.com'
/** In the sandbox: says what it was asked, streams on `/events`, and greets WebSockets. */
const program = `
const { createServer } = require('node:http')
const { createHash } = require('node:crypto')
const server = createServer((request, response) => {
  if (request.url === '/events') {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.write('data: first\\n\\n')
    return
  }
  response.end(JSON.stringify({ url: request.url, headers: request.headers }))
})
server.on('upgrade', (request, socket) => {
  const key = request.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
  const accept = createHash('sha1').update(key).digest('base64')
  socket.write('HTTP/1.1 101 Switching Protocols\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\nSec-WebSocket-Accept: ' + accept + '\\r\\n\\r\\n')
  socket.write(Buffer.concat([Buffer.of(0x81, 5), Buffer.from('hello')]))
  socket.on('error', () => {})
})
server.listen(3000, '127.0.0.1')
`

const port = await freePort()
const dns = await DnsServer.start()
const atoll = await AtollServer.start({
  env: {
    ATOLL_PUBLIC_URL: `https://api.example.org:${port}`,
    ATOLL_PREVIEW_URL: `https://preview.example.org:${port}`,
    ATOLL_TRUST_PROXY: 'loopback',
    ATOLL_DNS_SERVERS: dns.address,
    ATOLL_LIMITS: '{"sandbox":{"domainCheckMs":100}}',
  },
})
const caddy = await Caddy.start(`127.0.0.1:${atoll.port}`, port)
after(async () => {
  for (const started of [caddy, atoll, dns]) await started[Symbol.asyncDispose]()
})

const id = await startSandbox(atoll)
const ownHost = `${id}-p3000.preview.example.org`
const written = await atoll.fetch(`/api/sandboxes/${id}/files?path=/workspace/server.js`, {
  method: 'PUT',
  body: program,
})
assert.equal(written.status, 204)
await atoll.json('POST', `/api/sandboxes/${id}/exec`, { cmd: 'node', args: ['/workspace/server.js'] })

/** What leads a TLS client to the edge under a name, with trust in its authority alone. */
const edge = (host: string) => ({ host: '127.0.0.1', port, servername: host, ca: caddy.ca, agent: false as const })

async function ask(host: string, path: string, more: Record<string, string> = {}) {
  const outgoing = request({ ...edge(host), path, headers: { ...more, Host: `${host}:${port}` } })
  outgoing.end()
  const [incoming] = (await once(outgoing, 'response')) as [IncomingMessage]
  const text = (await incoming.toArray()).map(String).join('')
  return { status: incoming.statusCode, headers: incoming.headers, text }
}

/** Until the server inside listens. */
async function askUntilServed(host: string) {
  for (;;) {
    const answer = await ask(host, '/')
    if (answer.status === 200) return answer
    await sleep(100)
  }
}

interface Preview {
  sslStatus: string
  customHostname?: string
  verification?: { name: string; value: string }
}

async function previews(): Promise<Preview[]> {
  return (await atoll.json('GET', `/api/sandboxes/${id}/preview`)) as Preview[]
}

test('caddy: a preview answers over https under its own name, and the sandbox learns of it', async () => {
  const { text } = await askUntilServed(ownHost)
  const { headers } = JSON.parse(text)
  assert.equal(headers['x-forwarded-proto'], 'https')
  assert.equal(headers['x-forwarded-host'], `${ownHost}:${port}`)
  assert.equal(headers.host, `${ownHost}:${port}`)
  assert.match(headers['x-forwarded-for'], /^127\.0\.0\.1\b/)
  const claimed = await ask(ownHost, '/', { 'x-forwarded-for': '6.6.6.6', 'x-forwarded-proto': 'http' })
  const seen = JSON.parse(claimed.text).headers
  assert.doesNotMatch(seen['x-forwarded-for'], /6\.6\.6\.6/)
  assert.equal(seen['x-forwarded-proto'], 'https')
})

test('caddy: a preview gets all paths, also those that the API answers to this machine alone', async () => {
  await askUntilServed(ownHost)
  const api = ['/metrics', '/internal/tls-ask?domain=x', '/healthz', '/docs', '/api/sandboxes', '/v1/sessions']
  for (const path of api) {
    const { status, text } = await ask(ownHost, path)
    assert.deepEqual([status, JSON.parse(text).url], [200, path])
  }
})

test('caddy: a custom domain gets its certificate once its record is there, and its status goes from pending to active', async () => {
  await assert.rejects(ask(customHost, '/'), /alert|SSL/, 'it is not registered')
  const body = { port: 3000, domain: customHost }
  const declared = (await atoll.json('POST', `/api/sandboxes/${id}/preview`, body)) as Preview
  assert.equal(declared.sslStatus, 'pending')
  assert.equal((await previews())[0]?.sslStatus, 'pending')
  const { name = '', value = '' } = declared.verification ?? {}
  assert.equal(name, `_atoll.${customHost}`)
  dns.texts.set(name, [['atoll-verification=of-somebody-else'], [value.slice(0, -1)]])
  const { length } = dns.asked
  while (dns.asked.length <= length) await sleep(20)
  await assert.rejects(ask(customHost, '/'), /alert|SSL/, 'it is not proven')

  // As panels of providers store it: an alias elsewhere, and a text in two strings.
  dns.texts.delete(name)
  dns.aliases.set(name, 'proof.example.net')
  dns.texts.set('proof.example.net', [['v=spf1 -all'], [value.slice(0, 30), value.slice(30)]])
  while ((await atoll.fetch(`/internal/tls-ask?domain=${customHost}`)).status !== 200) await sleep(20)
  assert.equal((await previews())[0]?.sslStatus, 'pending', 'it has no certificate yet')
  assert.equal((await ask(customHost, '/path')).status, 200)
  while ((await previews())[0]?.sslStatus !== 'active') await sleep(20)
  assert.deepEqual(
    (await previews()).map(({ customHostname }) => customHostname),
    [customHost],
  )
  const again = (await atoll.json('POST', `/api/sandboxes/${id}/preview`, body)) as { sslStatus: string }
  assert.equal(again.sslStatus, 'active', 'what is served stays served')
})

test('caddy: a preview answers over HTTP/2', async () => {
  const session = connectHttp2(`https://127.0.0.1:${port}`, { servername: ownHost, ca: caddy.ca })
  await once(session, 'connect')
  assert.equal(session.alpnProtocol, 'h2')
  const stream = session.request({ ':authority': ownHost, ':path': '/over-http2' })
  const [headers] = (await once(stream, 'response')) as [Record<string, unknown>]
  assert.equal(headers[':status'], 200)
  assert.equal(JSON.parse((await stream.toArray()).map(String).join('')).url, '/over-http2')
  session.close()
})

test('caddy: events of a preview stream one by one', async () => {
  const outgoing = request({ ...edge(ownHost), path: '/events', headers: { Host: ownHost } })
  outgoing.end()
  const [incoming] = (await once(outgoing, 'response')) as [IncomingMessage]
  assert.equal(String((await once(incoming, 'data'))[0]), 'data: first\n\n')
  incoming.on('error', () => {})
  outgoing.destroy()
})

test('caddy: WebSockets reach a preview', async () => {
  const agent = new Agent({ servername: ownHost, ca: caddy.ca })
  const socket = new WebSocket(`wss://127.0.0.1:${port}/`, { agent, headers: { Host: ownHost } })
  const [message] = (await once(socket, 'message')) as [Buffer]
  assert.equal(String(message), 'hello')
  socket.terminate()
})

test('caddy: the API answers, without the paths for this machine alone', async () => {
  const host = 'api.example.org'
  assert.equal((await ask(host, '/healthz')).status, 200)
  const listed = await ask(host, '/api/sandboxes', { 'x-api-key': atoll.key })
  assert.deepEqual(
    JSON.parse(listed.text).map((sandbox: { sandboxID: string }) => sandbox.sandboxID),
    [id],
  )
  for (const path of ['/internal/tls-ask?domain=api.example.org', '/metrics']) {
    assert.equal((await ask(host, path)).status, 404, path)
    const disguised = { connection: 'x-forwarded-for, x-forwarded-host, via', 'x-forwarded-for': '127.0.0.1' }
    assert.equal((await ask(host, path, disguised)).status, 404, `${path}, with the marks of a proxy taken off`)
  }
  assert.equal((await atoll.fetch('/metrics')).status, 200)
})

test('caddy: unknown names get no certificate', async () => {
  const stoppedId = await startSandbox(atoll)
  await atoll.json('DELETE', `/api/sandboxes/${stoppedId}`)
  for (const name of [
    'evil.example.com',
    'sb-unknown00000-p3000.preview.example.org',
    `${stoppedId}-p3000.preview.example.org`,
    'x.api.example.org',
    'preview.example.org',
  ]) {
    const socket = connectTls({ host: '127.0.0.1', port, servername: name, rejectUnauthorized: false })
    const fate = await new Promise((resolve) => {
      socket.on('secureConnect', () => resolve('a certificate'))
      socket.on('error', (error: NodeJS.ErrnoException) => resolve(error.code))
    })
    socket.destroy()
    assert.match(String(fate), /^ERR_SSL/, name)
  }
})

test('caddy: a browser opens a preview with a token by its form or by a link, and its WebSocket is let in too', async () => {
  await askUntilServed(ownHost)
  const path = `/api/sandboxes/${id}/preview`
  const { previewAuthToken: token } = (await atoll.json('POST', path, {
    port: 3000,
    authConfig: { token: 'auto' },
  })) as { previewAuthToken: string }
  const url = `https://${ownHost}:${port}`
  const browser = await launchBrowser(['--host-resolver-rules=MAP *.example.org 127.0.0.1'])
  try {
    const context = await browser.newContext({ ignoreHTTPSErrors: true })
    const page = await context.newPage()
    // What a form sends is lost, as a visit is, when the network of the machine changes meanwhile.
    const send = async (text: string, shown: string): Promise<void> => {
      await eventually(async () => {
        await visit(page, `${url}/page?a=b`)
        if (await page.locator('input').isVisible()) {
          await page.fill('input', text)
          await page.click('button')
        }
        await page.waitForSelector(shown, { timeout: 20_000 })
      })
    }
    await send('not the token', 'text=not the token of this preview')
    await send(token, 'pre')
    const seen = JSON.parse(await page.innerText('body')) as { url: string; headers: Record<string, string> }
    assert.deepEqual([seen.url, seen.headers['cookie'], page.url()], ['/page?a=b', undefined, `${url}/page?a=b`])
    const [cookie] = await context.cookies(url)
    assert.deepEqual(
      [cookie?.name, cookie?.domain, cookie?.secure, cookie?.httpOnly, cookie?.sameSite],
      ['__Host-atoll-preview', ownHost, true, true, 'Lax'],
    )
    const greeting = await eventually(() =>
      page.evaluate(
        `new Promise((resolve, reject) => {
          const socket = new WebSocket(location.origin.replace('http', 'ws'))
          socket.onmessage = ({ data }) => resolve(data)
          socket.onerror = reject
        })`,
      ),
    )
    assert.equal(greeting, 'hello')

    const linked = await (await browser.newContext({ ignoreHTTPSErrors: true })).newPage()
    const answer = await visit(linked, `${url}/x?token=${token}&y`)
    assert.deepEqual([answer?.status(), linked.url()], [200, `${url}/x?y`])
  } finally {
    await browser.close()
    await atoll.json('POST', path, { port: 3000, authConfig: null })
  }
})
