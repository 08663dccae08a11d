/** The first minute, and a sandbox in the page: its terminal over sleep and restarts, its files. */
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import type { Page } from 'playwright-core'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { sh } from '../e2e/sandbox-calls.ts'
import { AtollServer } from '../e2e/server.ts'
import { isLive, launchBrowser, Visitor } from './dashboard.ts'

const server = await AtollServer.startForFile()
const browser = await launchBrowser()
after(() => browser.close())

const floodBytes = 20_000_000

const screenOf = async (page: Page) => await page.locator('.xterm-rows').innerText()
const shows = async (page: Page, text: string) =>
  await eventually(async () => (await screenOf(page)).includes(text), { what: text, timeoutMs: 400_000 })
/** The shell prints what the line it was given does not hold. */
const sum = async (page: Page, left: number, right: number) => {
  await page.locator('[data-terminal=attached]').waitFor()
  await page.locator('.xterm-helper-textarea').focus()
  await page.keyboard.type(`echo sum-$((${left}+${right}))\n`)
  await shows(page, `sum-${left + right}`)
}

async function create(name: string): Promise<string> {
  return ((await server.json('POST', '/api/sandboxes', { name, timeout: 0 })) as { sandboxID: string }).sandboxID
}

test('dashboard: a wrong key is told, a right one leads where the reader was going, and signing out ends it', async () => {
  await using visitor = await Visitor.of(browser, server)
  const page = await visitor.open('/host')
  await page.getByLabel('API key').fill('atoll_not_a_key')
  await page.getByRole('button', { name: 'Sign in' }).click()
  await page.getByText('The server knows no such key').waitFor()
  await page.getByLabel('API key').fill(server.key)
  await page.getByRole('button', { name: 'Sign in' }).click()
  await page.getByRole('heading', { name: 'Host', level: 1 }).waitFor()
  assert.equal(new URL(page.url()).pathname, '/host')
  const cookies = await visitor.context.cookies()
  assert.deepEqual(
    cookies.map(({ name, httpOnly, sameSite }) => ({ name, httpOnly, sameSite })),
    [{ name: 'atoll_dashboard', httpOnly: true, sameSite: 'Strict' }],
  )
  const kept = await page.evaluate('JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie])')
  assert.ok(!String(kept).includes(server.key))
  await page.getByRole('button', { name: /key default/ }).click()
  await page.getByRole('menuitem', { name: 'Sign out' }).click()
  await page.waitForURL((url) => url.pathname === '/sign-in')
  assert.deepEqual(await visitor.context.cookies(), [])
  visitor.assertNoFaults()
})

test('dashboard: an empty account is one click from a terminal, which goes on over sleep and a restart of the server', async () => {
  await using visitor = await Visitor.of(browser, server)
  const page = await visitor.signIn()
  await page.getByRole('heading', { name: 'Begin here' }).waitFor()
  for (const title of ['A sandbox', 'A session', 'An image']) await page.getByRole('heading', { name: title }).waitFor()
  await page.getByRole('button', { name: 'Create it and open a terminal' }).click()
  await page.waitForURL(/\/sandboxes\/sb-[a-z0-9]+\?tab=terminal/)
  await page.locator('.xterm-rows').waitFor()
  await sum(page, 20, 22)

  await page.getByRole('button', { name: 'Hibernate', exact: true }).click()
  await page.getByText('hibernated', { exact: true }).first().waitFor()
  await page.getByRole('button', { name: 'Wake it' }).click()
  await page.getByText('running', { exact: true }).first().waitFor()
  await sum(page, 300, 33)
  await shows(page, 'sum-42')

  await server.stop()
  await page.locator('[data-live=broken]:visible').first().waitFor()
  await server.restart()
  await isLive(page)
  await sum(page, 4000, 44)
  await page.reload()
  await page.locator('.xterm-rows').waitFor()
  await shows(page, 'sum-42')
  visitor.assertNoFaults()
})

test('dashboard: the list follows what happens elsewhere, and names are text', async () => {
  await using visitor = await Visitor.of(browser, server)
  const page = await visitor.signIn('/sandboxes')
  const id = await create('made-elsewhere')
  const row = page.getByRole('row', { name: /made-elsewhere/ })
  await row.waitFor()
  await server.json('POST', `/api/sandboxes/${id}/hibernate`)
  await row.getByText('hibernated').waitFor()
  const hostile = '<img src=x onerror=alert(1)>'
  await server.json('PUT', `/api/sandboxes/${id}/tags`, { tags: { note: hostile } }).catch(() => undefined)
  await server.json('DELETE', `/api/sandboxes/${id}`)
  await row.waitFor({ state: 'detached' })
  visitor.assertNoFaults()
})

test('dashboard: a file is edited and saved, not over what another has written meanwhile; names are text', async () => {
  const id = await create('files')
  const name = `<img src=x onerror="document.title='xss'">.txt`
  const quoted = `'${name.replaceAll("'", `'\\''`)}'`
  await sh(server, id, `cd /workspace && printf one > ${quoted} && printf two > plain.txt`)
  await using visitor = await Visitor.of(browser, server)
  const page = await visitor.signIn(`/sandboxes/${id}?tab=files`)
  await page.getByRole('treeitem', { name: /<img src=x/ }).waitFor()
  await page.getByRole('treeitem', { name: /plain\.txt/ }).click()
  const editor = page.getByRole('textbox', { name: 'Text of the file' })
  await editor.fill('two and three')
  await page.keyboard.press('Control+s')
  await page.getByText('Saved', { exact: true }).waitFor()
  assert.equal(await sh(server, id, 'cat /workspace/plain.txt'), 'two and three')
  await sh(server, id, 'sleep 1; echo written by another > /workspace/plain.txt')
  await editor.fill('four')
  await page.keyboard.press('Control+s')
  await page
    .getByText(/has changed on the disk/)
    .first()
    .waitFor()
  assert.equal(await sh(server, id, 'cat /workspace/plain.txt'), 'written by another')
  assert.doesNotMatch(await page.title(), /^xss/)
  visitor.assertNoFaults()
})

test('dashboard: a terminal that is flooded stays usable, and keeps a bounded part of it', async () => {
  const id = await create('flooded')
  await using visitor = await Visitor.of(browser, server)
  const page = await visitor.signIn(`/sandboxes/${id}?tab=terminal`)
  await page.getByRole('button', { name: 'Open a terminal' }).click()
  await page.locator('.xterm-rows').waitFor()
  await sum(page, 1, 2)
  await page.keyboard.type(`head -c ${floodBytes} /dev/zero | tr '\\0' x | fold -w 200; echo flood-is-$((40+2))\n`)
  await shows(page, 'flood-is-42')
  await sum(page, 70, 7)
  const session = await visitor.context.newCDPSession(page)
  await session.send('Performance.enable')
  const { metrics } = await session.send('Performance.getMetrics')
  const heap = metrics.find(({ name }) => name === 'JSHeapUsedSize')?.value ?? Infinity
  assert.ok(heap < 300 * 2 ** 20, `${heap} bytes`)
  visitor.assertNoFaults()
})

test('dashboard: a folder of 20 000 files is listed, and its rows are not all in the page', async () => {
  const id = await create('many-files')
  await sh(server, id, 'mkdir /workspace/many && cd /workspace/many && seq -f "file-%05g" 20000 | xargs touch')
  await using visitor = await Visitor.of(browser, server)
  const page = await visitor.signIn(`/sandboxes/${id}?tab=files`)
  await page.getByRole('treeitem', { name: /many/ }).click()
  await page.getByRole('treeitem', { name: /file-00001/ }).waitFor()
  assert.ok((await page.getByRole('treeitem').count()) < 200)
  visitor.assertNoFaults()
})
