/**
 * `node growth-fixture.ts DATA_DIR KEY SESSIONS EVENTS`: fills the database of a server that stands still with short sessions, each with so
 * many stream events. A process of its own: the memory of a database would slow each program that the bench starts.
 */
import { openOwnStore } from '../../src/server/installation.ts'
import { endedSession, organisationOf, textMessage } from './load-fixture.ts'
import { newId } from '../../src/lib/id.ts'

const [dataDir = '', key = '', ...counts] = process.argv.slice(2)
const [sessions = 0, streamEvents = 0] = counts.map(Number)
const store = await openOwnStore({ dataDir })
try {
  const orgId = await organisationOf(store, { key })
  for (let index = 0; index < sessions; index += 1) {
    const session = endedSession(orgId)
    const event = { id: newId('evt_'), level: 'info', message: 'ended', createdAt: new Date() } as const
    const messages = [textMessage('user', `Prompt ${index}`), textMessage('assistant', `Answer ${index}`)]
    await store.sessions.createSession(session, messages, { ...event, type: 'session_ended' })
    const content = [{ type: 'text', text: `A line of session ${index}` }]
    const line = { type: 'assistant', message: { role: 'assistant', content } }
    await store.sessions.commit(session.id, { addStream: Array.from({ length: streamEvents }, () => line) })
  }
} finally {
  await store.close()
}
