/**
 * What a browser lets pages of previews do to the API and to each other, where all are one site: API and previews are names below
 * `atoll.localhost`. A page of the API's own host stands in for the dashboard.
 */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import type { Browser, BrowserContext, Page } from 'playwright-core'
import { Atoll, Sandbox } from '../../sdk/src/index.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { launchBrowser, visit } from '../e2e/browser.ts'
import { freePort } from '../support/listen.ts'
import { AtollServer } from '../e2e/server.ts'

const port = await freePort()
const server = await AtollServer.startForFile({
  port,
  env: { ATOLL_PREVIEW_URL: `http://preview.atoll.localhost:${port}`, ATOLL_API_HOSTS: 'api.atoll.localhost' },
})
const client = new Atoll({ url: server.url, apiKey: server.key })
const api = `http://api.atoll.localhost:${port}`
let browser: Browser
let context: BrowserContext
let guarded: Sandbox

/** A page that shows what it gets of its own server, by `fetch` and by a WebSocket. */
const inside = `
import { createHash } from 'node:crypto'
import { createServer } from 'node:http'
const server = createServer((request, response) => {
  if (request.url === '/data') return response.end('data')
  response.setHeader('Content-Type', 'text/html')
  response.end(\`<title>inside</title><a href="/next">next</a><p id=address>\${request.url}</p><p id=data></p><p id=socket></p><script>
    fetch('/data').then(async (answer) => { document.querySelector('#data').textContent = await answer.text() })
    const socket = new WebSocket(location.origin.replace('http', 'ws') + '/socket')
    socket.onopen = () => { document.querySelector('#socket').textContent = 'open' }
  </script>\`)
})
server.on('upgrade', (request, socket) => {
  const text = request.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
  const accept = createHash('sha1').update(text).digest('base64')
  socket.write('HTTP/1.1 101 x\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Accept: ' + accept + '\\r\\n\\r\\n')
})
server.listen(3000)
`

before(async () => {
  browser = await launchBrowser(['--host-resolver-rules=MAP *.localhost 127.0.0.1'])
  context = await browser.newContext()
  guarded = await Sandbox.create({ client, previewToken: 'auto' })
  await guarded.files.write('/workspace/inside.mjs', inside)
  await guarded.spawn('node /workspace/inside.mjs')
  await guarded.waitForPort(3000)
})
after(() => browser.close())

/** A page of the API's host, signed in. */
async function signedIn(): Promise<Page> {
  const page = await context.newPage()
  await visit(page, `${api}/healthz`)
  const status = await page.evaluate(async (key) => {
    const headers = { 'content-type': 'application/json' }
    const init = { method: 'POST', headers, body: JSON.stringify({ key }) }
    return [(await fetch('/api/dashboard/sign-in', init)).status, (await fetch('/api/whoami')).status]
  }, server.key)
  assert.deepEqual(status, [200, 200])
  return page
}

/** Puts a frame into the page, and returns what it shows once `isShown`. */
async function frameIn(page: Page, url: string) {
  await page.evaluate(`
    const frame = document.createElement('iframe')
    frame.setAttribute('sandbox', 'allow-scripts allow-same-origin allow-forms')
    frame.src = ${JSON.stringify(url)}
    document.body.replaceChildren(frame)`)
  return page.frameLocator('iframe')
}

async function visitUrl(): Promise<string> {
  return (await guarded.visitPreview(3000)).url
}

test('origins: a guarded preview is shown in a frame by a visit, with its calls and WebSockets, and its address has no token', async () => {
  const page = await signedIn()
  const frame = await frameIn(page, await visitUrl())
  await frame.getByText('data', { exact: true }).waitFor()
  await frame.getByText('open', { exact: true }).waitFor()
  assert.equal(await frame.locator('#address').innerText(), '/')
  await frame.getByText('next').click()
  await frame.getByText('/next').waitFor()
  const [, inner] = page.frames()
  assert.equal(new URL(inner?.url() ?? '').search, '')
  await inner?.evaluate('location.reload()')
  await frame.getByText('data', { exact: true }).waitFor()
})

test('origins: no page frames a guarded preview by the cookies of its visitor alone', async () => {
  const opened = await context.newPage()
  await visit(opened, await visitUrl())
  await opened.getByText('data', { exact: true }).waitFor()
  const plain = opened.url()
  assert.equal(new URL(plain).search, '')
  for (const top of [
    `${api}/healthz`,
    `http://sb-0000000000000000-p3000.preview.atoll.localhost:${port}/`,
    `http://127.0.0.1:${port}/healthz`,
  ]) {
    const page = await context.newPage()
    await visit(page, top)
    await frameIn(page, plain)
    await eventually(() => page.frames()[1]?.url().startsWith('chrome-error:') === true, { what: top })
  }
})

test('origins: the page of a preview does nothing by the session of the browser, which is sent with its calls', async () => {
  await signedIn()
  const evil = await context.newPage()
  await visit(evil, await visitUrl())
  await evil.getByText('data', { exact: true }).waitFor()
  const count = (await Array.fromAsync(Sandbox.list({ client }))).length
  const statuses: (readonly [method: string, status: number, sent: boolean])[] = []
  context.on('requestfinished', (request) => {
    void (async () => {
      // Those of the page of the server may still be on their way.
      if (request.frame().page() !== evil) return
      const answer = await request.response()
      if (request.url().startsWith(`${api}/api/`) && answer !== null)
        statuses.push([request.method(), answer.status(), (await request.allHeaders())['cookie'] !== undefined])
    })()
  })
  const seen = await evil.evaluate(`(async (origin) => {
    const read = await fetch(origin + '/api/sandboxes', { credentials: 'include' }).then(() => 'read', () => 'refused')
    const { type } = await fetch(origin + '/api/sandboxes', { method: 'POST', mode: 'no-cors', credentials: 'include', body: '{}' })
    const socket = await new Promise((resolve) => {
      const made = new WebSocket(origin.replace('http', 'ws') + '/api/sandboxes/sb-1/pty/ps-1')
      made.onopen = () => resolve('open')
      made.onerror = () => resolve('refused')
    })
    return [read, type, socket]
  })(${JSON.stringify(api)})`)
  assert.deepEqual(seen, ['refused', 'opaque', 'refused'])
  await evil.evaluate(`
    const form = document.createElement('form')
    form.method = 'post'
    form.action = ${JSON.stringify(`${api}/api/sandboxes`)}
    document.body.append(form)
    form.submit()`)
  await evil.getByText('"code":"forbidden"').waitFor()
  await eventually(() => statuses.some(([method, status, sent]) => method === 'POST' && status === 403 && sent))
  assert.ok(
    statuses.every(([, status]) => status === 403 || status === 204),
    JSON.stringify(statuses),
  )
  assert.equal((await Array.fromAsync(Sandbox.list({ client }))).length, count)
})

test('origins: a page of the server runs no file of a sandbox', async () => {
  const page = await signedIn()
  await guarded.files.write('/workspace/evil.js', 'document.title = "run"')
  const loaded = await page.evaluate(`(async (path) => {
    const script = document.createElement('script')
    script.src = path
    const end = new Promise((resolve) => {
      script.onload = () => resolve('loaded')
      script.onerror = () => resolve('refused')
    })
    document.body.append(script)
    return [await end, (await fetch(path)).status]
  })(${JSON.stringify(`/api/sandboxes/${guarded.id}/files?path=/workspace/evil.js`)})`)
  assert.deepEqual(loaded, ['refused', 200])
  assert.notEqual(await page.title(), 'run')
})
