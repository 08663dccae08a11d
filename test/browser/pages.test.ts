/** What holds for every page: it follows the log, over cuts and in every tab; it fits a phone; readers of all kinds can use it. */
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { after, before, test } from 'node:test'
import type { Locator, Page } from 'playwright-core'
import { visit } from '../e2e/browser.ts'
import { isTurnComplete, readEvents } from '../e2e/event-stream.ts'
import { AtollServer } from '../e2e/server.ts'
import { createSession } from '../e2e/session-client.ts'
import { Cuttable } from './cuttable.ts'
import { isLive, launchBrowser, Visitor } from './dashboard.ts'

const server = await AtollServer.startForFile()
const browser = await launchBrowser()
const axe = createRequire(import.meta.url).resolve('axe-core/axe.min.js')
const hostileName = 'x'.repeat(50)
const paths = [
  ...['/', '/sandboxes', '/sessions', '/checkpoints', '/images', '/volumes', '/secrets', '/webhooks', '/usage'],
  ...[
    '/audit',
    '/keys',
    '/host',
    '/sandboxes?new=sandbox',
    '/sessions?new=session',
    '/host/no-such-page',
    '/sandboxes/sb-none',
  ],
]
after(() => browser.close())

before(async () => {
  const { sandboxID } = (await server.json('POST', '/api/sandboxes', { name: hostileName, timeout: 0 })) as {
    sandboxID: string
  }
  const session = await createSession(server, `<img src=x onerror="document.title='xss'"> \u202e${'y'.repeat(300)}`)
  await readEvents(server, session.id, isTurnComplete)
  const tabs = [
    '',
    '?tab=files',
    '?tab=ports',
    '?tab=processes',
    '?tab=metrics',
    '?tab=checkpoints',
    '?tab=egress',
    '?tab=log',
  ]
  paths.push(...tabs.map((tab) => `/sandboxes/${sandboxID}${tab}`), `/checkpoints/tree/${sandboxID}`)
  paths.push(`/sessions/${session.id}`, `/sessions/${session.id}/branch`)
})

/** Waits until nothing of the page is being read. */
async function isRead(page: Page): Promise<void> {
  await page.locator('h1').first().waitFor()
  await page.locator('[role=status][aria-label]').first().waitFor({ state: 'detached' })
}

interface Violation {
  id: string
  impact: string
  nodes: { html: string }[]
}

async function seriousViolations(page: Page): Promise<string[]> {
  await page.evaluate(await readFile(axe, 'utf8'))
  const run = 'axe.run(document, { resultTypes: ["violations"] })'
  const { violations } = await page.evaluate<{ violations: Violation[] }>(run)
  return violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .map(({ id, nodes }) => `${id}: ${nodes[0]?.html}`)
}

for (const [name, options] of [
  ['a wide dark window', { isDark: true }],
  ['a phone', { width: 390, height: 844, isTouch: true }],
] as const) {
  test(`dashboard: each page fits ${name}, reads well to all readers, and breaks no rule of its policy`, async () => {
    await using visitor = await Visitor.of(browser, server, options)
    const page = await visitor.signIn()
    const faults: unknown[] = []
    for (const path of paths) {
      await visit(page, server.url + path)
      await isRead(page)
      const over = await page.evaluate('document.documentElement.scrollWidth - document.documentElement.clientWidth')
      const main = await page.evaluate(
        '(() => { const m = document.querySelector("main"); return m.scrollWidth - m.clientWidth })()',
      )
      const violations = await seriousViolations(page)
      if (over !== 0 || main !== 0 || violations.length > 0) faults.push({ path, over, main, violations })
      assert.doesNotMatch(await page.title(), /^xss/)
    }
    assert.deepEqual(faults, [])
    visitor.assertNoFaults()
  })
}

test('dashboard: after a cut it says so, and shows what has happened meanwhile', async () => {
  await using way = await Cuttable.to(server.port)
  await using visitor = await Visitor.of(browser, { url: way.url, key: server.key })
  const page = await visitor.signIn('/sandboxes')
  await page.getByRole('row', { name: new RegExp(hostileName) }).waitFor()
  way.cut()
  await page.locator('[data-live=broken]:visible').first().waitFor()
  await server.json('POST', '/api/sandboxes', { name: 'made-in-the-cut', timeout: 0 })
  await way.mend()
  await isLive(page)
  await page.getByRole('row', { name: /made-in-the-cut/ }).waitFor()
  visitor.assertNoFaults()
})

test('dashboard: a page and a part whose code is not there yet are shown after a cut, without loading the document anew', async () => {
  await using way = await Cuttable.to(server.port)
  await using visitor = await Visitor.of(browser, { url: way.url, key: server.key })
  const page = await visitor.signIn('/sandboxes')
  await page.evaluate('globalThis.isSameDocument = true')
  const isShownAfterCut = async (opener: Locator, shown: Locator) => {
    way.cut()
    await page.locator('[data-live=broken]:visible').first().waitFor()
    const failed = page.waitForEvent('requestfailed', (request) => request.url().includes('/assets/'))
    await opener.first().click()
    await failed
    await way.mend()
    await shown.first().waitFor()
    await isLive(page)
  }
  await isShownAfterCut(page.getByRole('link', { name: 'Volumes' }), page.getByRole('heading', { name: 'Volumes' }))
  await page.getByRole('link', { name: 'Sandboxes' }).first().click()
  await page.getByRole('link', { name: new RegExp(hostileName) }).click()
  const log = page.getByRole('tab', { name: 'Log' })
  await log.waitFor()
  await isShownAfterCut(log, page.getByRole('tabpanel').getByText(/created/i))
  assert.equal(await page.evaluate('globalThis.isSameDocument'), true)
  visitor.assertNoFaults()
})

test('dashboard: all tabs of a browser share one stream of the log, and the next one takes it over', async () => {
  await using visitor = await Visitor.of(browser, server)
  // A tab whose stream breaks opens it again.
  const readers = new Set<Page>()
  visitor.context.on('request', (request) => {
    const url = new URL(request.url())
    if (url.pathname === '/api/events' && url.searchParams.get('follow') !== 'false')
      readers.add(request.frame().page())
  })
  const first = await visitor.signIn('/sandboxes')
  const others = [await visitor.open('/sandboxes'), await visitor.open('/sessions')]
  for (const tab of others) await isLive(tab)
  assert.deepEqual([...readers], [first])
  await first.close()
  await server.json('POST', '/api/sandboxes', { name: 'made-for-the-second', timeout: 0 })
  await others[0]?.getByRole('row', { name: /made-for-the-second/ }).waitFor()
  assert.equal(readers.size, 2)
})

test('dashboard: a key is offered only what it may do', async () => {
  const { key } = (await server.json('POST', '/api/keys', { name: 'narrow', scopes: ['sandbox:read', 'events'] })) as {
    key: string
  }
  await using visitor = await Visitor.of(browser, server)
  const page = await visitor.signIn('/sandboxes', key)
  await page.getByRole('row', { name: new RegExp(hostileName) }).waitFor()
  const pages = await page.getByRole('navigation').getByRole('link').allInnerTexts()
  assert.deepEqual(
    pages.map((text) => text.trim()).filter((text) => ['Sessions', 'Keys', 'Secrets', 'Audit'].includes(text)),
    [],
  )
  assert.equal(await page.getByRole('button', { name: 'New sandbox' }).count(), 0)
  visitor.assertNoFaults()
})
