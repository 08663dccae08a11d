/** `npm run dashboard:picture`: makes the picture of the README, of a session with its preview. */
import { mkdir } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { isTurnComplete, readEvents, type StreamedEvent } from '../e2e/event-stream.ts'
import { AtollServer } from '../e2e/server.ts'
import { createSession, lastId, sendMessage } from '../e2e/session-client.ts'
import { launchBrowser, Visitor } from './dashboard.ts'

const file = join(import.meta.dirname, '../../docs/images/session.png')
const isSaved = ({ data }: StreamedEvent) => data.type === 'checkpoint_created'

await using server = await AtollServer.start({ env: { ATOLL_SESSION_CHECKPOINTS: 'turn' } })
const { id } = await createSession(server, 'A page about coral reefs')
let events = await readEvents(server, id, isSaved)
for (const message of ['Add a section about sea turtles', 'Add a table of the largest reefs']) {
  await sendMessage(server, id, message)
  events = [...events, ...(await readEvents(server, id, isSaved, lastId(events)))]
}
if (!events.some((event) => isTurnComplete(event))) throw new Error('the agent has ended no turn')

const browser = await launchBrowser()
try {
  await using visitor = await Visitor.of(browser, server, { width: 1360, height: 820 })
  const page = await visitor.signIn(`/sessions/${id}`)
  await page.frameLocator('iframe').first().getByText('largest reefs').first().waitFor()
  await page.mouse.move(0, 0)
  await mkdir(dirname(file), { recursive: true })
  await page.screenshot({ path: file, animations: 'disabled' })
  visitor.assertNoFaults()
} finally {
  await browser.close()
}
