/** The pages at `/docs` in a browser: search, examples, the key of a signed-in reader, without a script, in the dark and on a phone. */
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { readFileSync } from 'node:fs'
import { after, before, test } from 'node:test'
import type { Browser, Page } from 'playwright-core'
import { AtollServer } from '../e2e/server.ts'
import { visit } from '../e2e/browser.ts'
import { launchBrowser, Visitor } from './dashboard.ts'

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const server = await AtollServer.startForFile()
let browser: Browser
before(async () => {
  browser = await launchBrowser()
})
after(() => browser.close())

/** Rules that the page breaks. */
async function faultsOf(page: Page): Promise<string[]> {
  await page.evaluate(axe)
  return await page.evaluate(async () => {
    type Result = { violations: { id: string; nodes: { html: string }[] }[] }
    const { axe: engine } = globalThis as unknown as { axe: { run(): Promise<Result> } }
    return (await engine.run()).violations.map(({ id, nodes }) => `${id}: ${nodes[0]?.html}`)
  })
}

/** By the cookie of the dashboard, as its form does it. */
async function signIn(page: Page, key: string): Promise<void> {
  const status = await page.evaluate(async (secret) => {
    const init = {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ key: secret }),
    }
    return (await fetch('/api/dashboard/sign-in', init)).status
  }, key)
  assert.equal(status, 200)
}

const example = (page: Page) => page.locator('.code').nth(1)

test('docs: the search is reached by a key, finds sections, and leads to them by arrows and enter', async () => {
  await using visitor = await Visitor.of(browser, server)
  const page = await visitor.open('/docs')
  const asked: string[] = []
  page.on('request', (request) => asked.push(new URL(request.url()).pathname))
  await page.keyboard.press('/')
  await page.keyboard.type('idempotency repeats')
  await page.locator('#results a').first().waitFor()
  assert.ok(asked.includes('/docs/assets/search.json'), 'it is loaded by the first search')
  await page.keyboard.press('ArrowDown')
  assert.match(await page.locator('#results a:focus').innerText(), /The HTTP API › Repeats/)
  await page.keyboard.press('ArrowUp')
  await page.keyboard.press('Enter')
  await page.waitForURL(`${server.url}/docs/use/api#repeats`)
  await page.keyboard.press('Control+k')
  await page.keyboard.type('<img src=x onerror=alert(1)> qqqq')
  await page.getByText('Nothing about using and operating Atoll has').waitFor()
  assert.deepEqual(await faultsOf(page), [])
  await page.keyboard.press('Escape')
  assert.equal(await page.locator('#results').isVisible(), false)
  visitor.assertNoFaults()
})

test('docs: examples have the address of the server, and are copied as they are shown', async () => {
  await using visitor = await Visitor.of(browser, server)
  await visitor.context.grantPermissions(['clipboard-read', 'clipboard-write'])
  const page = await visitor.open('/docs/use/api')
  const text = await example(page).locator('code').innerText()
  assert.ok(text.includes(`"${server.url}/api/sandboxes"`) && text.includes('$ATOLL_API_KEY'), text)
  await example(page).hover()
  await example(page).getByRole('button', { name: 'Copy' }).click()
  await page.getByText('Copied').waitFor()
  assert.equal(await page.evaluate('navigator.clipboard.readText()'), text)
  assert.equal(await page.getByText('Use a short-lived key here').count(), 0, 'the reader is not signed in')
  visitor.assertNoFaults()
})

test('docs: a signed-in reader makes a key for the examples, and revokes it; the page keeps it nowhere', async () => {
  await using visitor = await Visitor.of(browser, server)
  const page = await visitor.open('/docs/use/api')
  await signIn(page, server.key)
  await page.reload()
  await page.getByRole('button', { name: 'Use a short-lived key here' }).click()
  const secret = await page.locator('.key code').innerText()
  assert.match(secret, /^atoll_[0-9a-f]{48}$/)
  assert.ok((await example(page).innerText()).includes(`X-API-Key: ${secret}`))
  const ask = async () => await fetch(`${server.url}/api/whoami`, { headers: { 'x-api-key': secret } })
  const { key } = (await (await ask()).json()) as { key: { scopes: string[]; expiresAt: string } }
  assert.ok(key.scopes.includes('sandbox:write') && !key.scopes.includes('keys'), key.scopes.join())
  assert.ok(Date.parse(key.expiresAt) - Date.now() < 3_601_000, key.expiresAt)
  const kept = await page.evaluate<string>(
    'JSON.stringify([Object.entries(localStorage), Object.entries(sessionStorage), location.href, document.cookie])',
  )
  assert.ok(!kept.includes(secret))
  await page.getByRole('button', { name: 'Revoke it' }).click()
  await page.getByText('The key was revoked.').waitFor()
  assert.equal((await ask()).status, 401)
  assert.ok(!(await page.content()).includes(secret))

  await page.getByRole('button', { name: 'Use a short-lived key here' }).click()
  const second = await page.locator('.key code').innerText()
  await visit(page, `${server.url}/docs/use/sessions`)
  await page.goBack()
  await page.getByRole('button', { name: 'Use a short-lived key here' }).waitFor()
  assert.ok(!(await page.content()).includes(second), 'it is forgotten when the reader leaves')
  visitor.assertNoFaults()
})

test('docs: a reader whose key makes no keys is offered none, and a clock that is wrong does not lengthen one', async () => {
  await using visitor = await Visitor.of(browser, server)
  const page = await visitor.open('/docs/use/api')
  const make = async (body: object) => {
    const headers = { 'x-api-key': server.key, 'content-type': 'application/json' }
    const answer = await fetch(`${server.url}/api/keys`, { method: 'POST', headers, body: JSON.stringify(body) })
    return ((await answer.json()) as { key: string }).key
  }
  await signIn(page, await make({ scopes: ['sandbox:read'] }))
  const known = page.waitForResponse('**/api/whoami')
  await page.reload()
  await (await known).finished()
  assert.equal(await page.getByText('Use a short-lived key here').count(), 0)

  const expiresAt = new Date(Date.now() + 600_000).toISOString()
  await signIn(page, await make({ scopes: ['keys', 'sandbox:read'], expiresAt }))
  await page.clock.setFixedTime(Date.now() + 400 * 86_400_000)
  await page.reload()
  await page.getByRole('button', { name: 'Use a short-lived key here' }).click()
  const secret = await page.locator('.key code').innerText()
  const answer = await fetch(`${server.url}/api/whoami`, { headers: { 'x-api-key': secret } })
  const { key } = (await answer.json()) as { key: { scopes: string[]; expiresAt: string } }
  assert.deepEqual([key.scopes, Date.parse(key.expiresAt)], [['sandbox:read'], Date.parse(expiresAt)])
  visitor.assertNoFaults()
})

test('docs: pages are whole without a script', async () => {
  const context = await browser.newContext({ javaScriptEnabled: false })
  const page = await context.newPage()
  await visit(page, `${server.url}/docs/use/organisations`)
  assert.equal(await page.getByRole('heading', { level: 1 }).innerText(), 'Organisations and keys')
  assert.ok(await page.getByText('$ATOLL_API_KEY').first().isVisible())
  assert.equal(await page.getByRole('searchbox').isVisible(), false)
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Troubleshooting' }).click()
  await page.waitForURL('**/docs/operate/troubleshooting')
  await context.close()
})

test('docs: pages fit a phone and a wide screen, light and dark, and axe finds nothing', async () => {
  for (const options of [{ width: 390, height: 844, isTouch: true }, { width: 1440, isDark: true }, { width: 900 }]) {
    await using visitor = await Visitor.of(browser, server, options)
    for (const path of ['/docs', '/docs/use/sdk', '/docs/operate/operations', '/docs/architecture', '/docs/none']) {
      const page = await visitor.open(path)
      // The longest take it half a minute.
      if (!/operations|architecture/.test(path)) assert.deepEqual(await faultsOf(page), [], path)
      const excess = await page.evaluate<number>('document.documentElement.scrollWidth - innerWidth')
      assert.ok(excess <= 0, `${path} is ${excess} pixels too wide at ${options.width}`)
    }
    visitor.assertNoFaults()
  }
})

test('docs: the lists of pages and of headings open on a phone, and close when one is chosen', async () => {
  await using visitor = await Visitor.of(browser, server, { width: 390, height: 844, isTouch: true })
  const page = await visitor.open('/docs/use/sessions')
  await page.getByRole('button', { name: 'On this page' }).tap()
  await page.locator('#contents').getByRole('link', { name: 'Interrupts' }).tap()
  await page.waitForURL('**/docs/use/sessions#interrupts')
  assert.equal(await page.locator('#contents').isVisible(), false)
  await page.getByRole('button', { name: 'Pages' }).tap()
  await page.getByRole('link', { name: 'Volumes', exact: true }).tap()
  await page.waitForURL('**/docs/use/volumes')
  visitor.assertNoFaults()
})
