/** An answer in the page as the model writes it. */
import assert from 'node:assert/strict'
import type { ServerResponse } from 'node:http'
import { after, test } from 'node:test'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { answerEvents, fakeAnthropic } from '../agent/fake-anthropic.ts'
import { isTurnComplete, readEvents, streamEvents } from '../e2e/event-stream.ts'
import { AtollServer } from '../e2e/server.ts'
import { createSession } from '../e2e/session-client.ts'
import { launchBrowser, Visitor } from './dashboard.ts'

const written = ['Coral reefs are **built** by', ' small animals', ' <img src=x onerror=alert(1)>.']
/** How many parts of its answers the model may write, and has written. */
const parts = { granted: 0, used: 0 }
const writeOn = () => void (parts.granted += 1)
const mayWriteOn = async () => {
  await eventually(() => parts.granted > parts.used)
  parts.used += 1
}

const model = await fakeAnthropic((_body, response) => {
  void answer(response)
  return true
})
const server = await AtollServer.startForFile({
  env: { ANTHROPIC_BASE_URL: model.url, ATOLL_MODEL: 'anthropic/some-model', ATOLL_SESSION_CHECKPOINTS: 'none' },
})
const browser = await launchBrowser()
after(() => browser.close())
after(() => model[Symbol.asyncDispose]())

async function answer(response: ServerResponse): Promise<void> {
  const [start, open, , close, ...end] = answerEvents
  const send = (...events: readonly { type: string }[]) => {
    for (const event of events) response.write(`event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`)
  }
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  send(start!, open!)
  for (const text of written) {
    await mayWriteOn()
    send({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } } as { type: string })
  }
  await mayWriteOn()
  send(close!, ...end)
  response.end()
}

test('dashboard: an answer is seen as it is written, in each tab, and then once', async () => {
  const { id } = await createSession(server, 'Tell me about coral reefs')
  await using visitor = await Visitor.of(browser, server)
  const page = await visitor.signIn(`/sessions/${id}`)
  const draft = page.getByLabel('The answer as it is written')
  await page.getByText('Tell me about coral reefs').first().waitFor()
  // Whoever follows when the agent begins is told from the beginning.
  await readEvents(server, id, ({ data }) => data.type === 'configured')
  writeOn()
  await draft.getByText('Coral reefs are built by', { exact: true }).waitFor()
  assert.equal(await draft.locator('strong').textContent(), 'built')
  writeOn()
  await draft.getByText('Coral reefs are built by small animals', { exact: true }).waitFor()
  const late = await visitor.open(`/sessions/${id}`)
  await late.getByLabel('The answer as it is written').getByText('Coral reefs are built by small animals').waitFor()
  writeOn()
  await draft.getByText('onerror=alert(1)', { exact: false }).waitFor()
  assert.equal(await page.locator('img[src=x]').count(), 0)
  writeOn()
  await readEvents(server, id, isTurnComplete)
  for (const one of [page, late]) {
    await one.getByLabel('The answer as it is written').waitFor({ state: 'detached' })
    assert.equal(await one.getByRole('region', { name: 'Conversation' }).getByText('by small animals').count(), 1)
  }
  visitor.assertNoFaults()
})

test('drafts: they are in no stream that did not ask for them, and in none that comes later', async () => {
  const { id } = await createSession(server, 'Tell me more')
  const gone = new AbortController()
  const plain = streamEvents(server, id, { signal: gone.signal })
  const asked = await fetch(`${server.url}/v1/sessions/${id}/events?drafts=true&api_key=${server.key}`)
  const reader = asked.body!.getReader()
  let text = ''
  const more = async () => void (text += Buffer.from((await reader.read()).value ?? []).toString())
  const until = async (pattern: RegExp) => {
    while (!pattern.test(text)) await more()
  }
  await until(/"type":"configured"/)
  for (const part of written) {
    writeOn()
    while (!text.includes(`"text":${JSON.stringify(part)}}`)) await more()
  }
  writeOn()
  await until(/"type":"turn_complete"/)
  await reader.cancel()
  const seen: string[] = []
  for await (const { data } of plain) {
    seen.push(data.type)
    if (data.type === 'turn_complete') break
  }
  gone.abort()
  const again = await readEvents(server, id, isTurnComplete)
  assert.deepEqual(
    again.map(({ data }) => data.type),
    seen,
  )
  assert.ok(!seen.includes('assistant_draft'))
  assert.equal(seen.filter((type) => type === 'assistant').length, 1)
})
