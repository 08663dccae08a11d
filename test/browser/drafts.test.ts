/** An answer in the page as the model writes it. */
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { isTurnComplete, readEvents } from '../e2e/event-stream.ts'
import { AtollServer } from '../e2e/server.ts'
import { createSession } from '../e2e/session-client.ts'
import { WritingModel } from '../agent/writing-model.ts'
import { launchBrowser, Visitor } from './dashboard.ts'

const written = ['Coral reefs are **built** by', ' small animals', ' <img src=x onerror=alert(1)>.']
const model = await WritingModel.start(written)
const server = await AtollServer.startForFile({
  env: { ANTHROPIC_BASE_URL: model.baseUrl, ATOLL_MODEL: 'anthropic/some-model', ATOLL_SESSION_CHECKPOINTS: 'none' },
})
const browser = await launchBrowser()
after(() => browser.close())
after(() => model[Symbol.asyncDispose]())

test('dashboard: an answer is seen as it is written, in each tab, and then once', async () => {
  const { id } = await createSession(server, 'Tell me about coral reefs')
  await using visitor = await Visitor.of(browser, server)
  const page = await visitor.signIn('/sessions')
  const followed = page.waitForResponse((response) => /\/events\?.*drafts/.test(response.url()))
  await page.goto(`${server.url}/sessions/${id}`)
  const draft = page.getByLabel('The answer as it is written')
  await page.getByText('Tell me about coral reefs').first().waitFor()
  await followed
  // Whoever follows when the agent begins is told from the beginning.
  await readEvents(server, id, ({ data }) => data.type === 'configured')
  model.writeOn()
  await draft.getByText('Coral reefs are built by', { exact: true }).waitFor()
  assert.equal(await draft.locator('strong').textContent(), 'built')
  model.writeOn()
  await draft.getByText('Coral reefs are built by small animals', { exact: true }).waitFor()
  const late = await visitor.open(`/sessions/${id}`)
  await late.getByLabel('The answer as it is written').getByText('Coral reefs are built by small animals').waitFor()
  model.writeOn()
  await draft.getByText('onerror=alert(1)', { exact: false }).waitFor()
  assert.equal(await page.locator('img[src=x]').count(), 0)
  model.writeOn()
  await readEvents(server, id, isTurnComplete)
  for (const one of [page, late]) {
    await one.getByLabel('The answer as it is written').waitFor({ state: 'detached' })
    const answer = one.getByRole('region', { name: 'Conversation' }).getByText('by small animals')
    await answer.first().waitFor()
    assert.equal(await answer.count(), 1)
  }
  visitor.assertNoFaults()
})
