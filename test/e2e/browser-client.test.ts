import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { listen } from '../support/listen.ts'
import { launchBrowser, visit } from './browser.ts'
import { isTurnComplete, readEvents } from './event-stream.ts'
import { AtollServer } from './server.ts'
import { createSession, endSession, sendMessage, turnsComplete } from './session-client.ts'

const docPath = join(import.meta.dirname, '../../docs/use/browser-client.md')

test('browser client: the one of the docs survives a restart of the server without a gap or a repeat, and ends with the session', async () => {
  const html = /^```html\n(.*?)^```$/ms.exec(await readFile(docPath, 'utf8'))?.[1] ?? ''
  assert.match(html, /EventSource/)
  await using server = await AtollServer.start()
  const { id } = await createSession(server, 'run: echo one')
  await readEvents(server, id, isTurnComplete)
  const { token } = (await server.json('POST', `/v1/sessions/${id}/tokens`, { user_id: 'ada', scope: 'read' })) as {
    token: string
  }
  const given = `<script>window.atoll = ${JSON.stringify({ url: server.url, sessionId: id, token })}</script>`
  const site = createServer((_request, response) => {
    response.setHeader('Content-Type', 'text/html; charset=utf-8')
    response.end(`<!doctype html>${given}${html}`)
  })
  const port = await listen(site)
  const browser = await launchBrowser()
  try {
    const page = await browser.newPage()
    await page.clock.install()
    await visit(page, `http://127.0.0.1:${port}/`)
    const numbers = async () =>
      await page.$$eval('#log li', (items) => items.map((item) => (item as unknown as { value: number }).value))
    const shows = async (count: number) => {
      while ((await numbers()).length < count) await sleep(50)
    }
    const before = (await readEvents(server, id, isTurnComplete)).length
    await shows(before)
    await server.kill()
    await server.restart()
    await sendMessage(server, id, 'run: echo two')
    const after = await readEvents(server, id, turnsComplete(2))
    assert.ok(after.length > before)
    await shows(after.length)
    assert.deepEqual(
      await numbers(),
      after.map((event) => event.id),
    )

    const refused = page.waitForResponse((response) => response.status() === 401)
    const ended = page.waitForResponse((response) => response.status() === 204)
    await endSession(server, id)
    await Promise.all([ended, refused])
    assert.equal((await numbers()).length, (await readEvents(server, id, () => false)).length)
    let asked = 0
    page.on('request', () => asked++)
    await page.clock.runFor(60_000)
    assert.equal(asked, 0, 'it has stopped asking')
  } finally {
    await browser.close()
    site.close()
  }
})
