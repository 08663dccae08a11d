/** A session in the page: its work as it is done, its past, its branches, and a moment of it that others see. */
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import type { Page } from 'playwright-core'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { readEvents, type StreamedEvent } from '../e2e/event-stream.ts'
import { AtollServer } from '../e2e/server.ts'
import { createSession, getSession, lastId, sendMessage } from '../e2e/session-client.ts'
import { launchBrowser, Visitor } from './dashboard.ts'

// Chromium resolves names below `localhost` by itself, as people's browsers do.
const server = await AtollServer.startForFile({ env: { ATOLL_SESSION_CHECKPOINTS: 'turn' } })
const browser = await launchBrowser()
after(() => browser.close())

/** Serves a file, and counts in memory how often it was asked. */
const program = `let n=0;require("http").createServer((q,s)=>s.end("<h1>"+require("fs").readFileSync("page.txt","utf8").trim()+"</h1>")).listen(3000)`
const turnOf = (turn: number) =>
  `run: git init -q 2>/dev/null; echo page ${turn} >page.txt; echo ${turn} >file-${turn}.txt`
const started = `; setsid node -e '${program}' >/dev/null 2>&1 </dev/null & until curl -sf localhost:3000; do sleep 0.05; done`
const isSaved = ({ data }: StreamedEvent) => data.type === 'checkpoint_created'

/** What the live preview shows. */
const preview = (page: Page) => page.frameLocator('iframe').first().locator('h1')

/** A session of so many turns, each with a checkpoint. */
async function story(turns: number): Promise<string> {
  const { id } = await createSession(server, turnOf(1) + started)
  let events = await readEvents(server, id, isSaved)
  for (let turn = 2; turn <= turns; turn += 1) {
    await sendMessage(server, id, turnOf(turn))
    events = [...events, ...(await readEvents(server, id, isSaved, lastId(events)))]
  }
  return id
}

test('dashboard: a session is begun, followed as it works, seen in its preview, and asked for more', async () => {
  await using visitor = await Visitor.of(browser, server)
  const page = await visitor.signIn('/sessions?new=session')
  const dialog = page.getByRole('dialog')
  await dialog.getByRole('textbox', { name: 'Prompt', exact: true }).fill('A page about coral reefs')
  await dialog.getByRole('button', { name: /^Start/ }).click()
  await page.waitForURL(/\/sessions\/session_/)
  const heading = page.frameLocator('iframe').first().getByRole('heading', { level: 1 })
  await heading.filter({ hasText: /coral reefs/i }).waitFor()
  await page.getByLabel('Message to the agent').fill('Add a section about sea turtles')
  await page.getByRole('button', { name: 'Send' }).click()
  const section = page
    .frameLocator('iframe')
    .first()
    .getByText(/sea turtles/i)
    .first()
  await section.waitFor()
  visitor.assertNoFaults()
})

test('dashboard: the slider leads to a turn, its rewind shows what would change, and is undone', async () => {
  const id = await story(3)
  await using visitor = await Visitor.of(browser, server)
  const page = await visitor.signIn(`/sessions/${id}`)
  await preview(page).filter({ hasText: 'page 3' }).waitFor()
  const slider = page.getByRole('slider')
  await slider.focus()
  await page.keyboard.press('Home')
  await page.waitForURL(/turn=/)
  await page.getByText('file-1.txt').first().waitFor()
  await page.getByRole('button', { name: 'Rewind to here' }).click()
  const dialog = page.getByRole('dialog')
  await dialog.getByText('file-3.txt').waitFor()
  await dialog.getByRole('button', { name: 'Rewind', exact: true }).click()
  await dialog.waitFor({ state: 'detached' })
  await preview(page).filter({ hasText: 'page 1' }).waitFor()
  await eventually(async () => (await page.getByLabel('Message to the agent').inputValue()) === turnOf(2), {
    what: 'the prompt that was left can be edited',
  })
  await page.getByRole('button', { name: 'Undo rewind' }).click()
  await preview(page).filter({ hasText: 'page 3' }).waitFor()
  visitor.assertNoFaults()
})

test('dashboard: three variants run side by side, and one is kept', async () => {
  const id = await story(1)
  await using visitor = await Visitor.of(browser, server, { width: 1600, height: 1000 })
  const page = await visitor.signIn(`/sessions/${id}/branch`)
  const messages = page.getByLabel('Message', { exact: true })
  for (let more = 0; (await messages.count()) < 3 && more < 3; more += 1)
    await page.getByRole('button', { name: 'Another variant' }).click()
  for (const [index, box] of (await messages.all()).entries()) await box.fill(turnOf(index + 7))
  await page.getByRole('button', { name: /^Start/ }).click()
  const cards = page.getByRole('article')
  for (const text of ['page 7', 'page 8', 'page 9']) {
    const shown = cards.filter({ hasText: `echo ${text} ` }).frameLocator('iframe')
    await shown.locator('h1').filter({ hasText: text }).waitFor()
  }
  assert.equal(await cards.count(), 3)
  await cards.nth(1).getByRole('button', { name: 'Keep this one' }).click()
  await page.getByRole('alertdialog').getByRole('button', { name: /Keep/ }).click()
  await page.getByRole('alertdialog').waitFor({ state: 'detached' })
  await eventually(
    async () => (await getSession(server, id)).messages.some(({ content }) => /echo page [789] /.test(content)),
    { what: 'its turns are those of the variant' },
  )
  visitor.assertNoFaults()
})

test('dashboard: who has the link of a moment reads it without a key, and nothing of what came later', async () => {
  const id = await story(1)
  await using visitor = await Visitor.of(browser, server)
  const page = await visitor.signIn(`/sessions/${id}`)
  await page.getByRole('button', { name: 'Share' }).first().click()
  await page.getByRole('dialog').getByRole('button', { name: 'Make a link' }).click()
  const link = await page.getByRole('dialog').locator('code').filter({ hasText: '/capsules/' }).innerText()
  await sendMessage(server, id, 'A later secret')
  await using stranger = await Visitor.of(browser, server)
  const seen = await stranger.open(new URL(link).pathname)
  await seen.getByText('page.txt').first().waitFor()
  assert.equal(await seen.getByText('A later secret').count(), 0)
  const asked = await seen.evaluate(() =>
    performance.getEntriesByType('resource').map(({ name }) => new URL(name).pathname),
  )
  assert.deepEqual(
    asked
      .filter((path) => path.startsWith('/api') || (path.startsWith('/v1') && !path.startsWith('/v1/capsules/')))
      .filter((path) => path !== '/api/whoami'),
    [],
  )
  visitor.assertNoFaults()
})
