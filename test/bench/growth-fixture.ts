import type { AtollServer } from '../e2e/server.ts'
import { imageDir } from '../support/images.ts'
import { openStore } from '../../src/store/index.ts'
import { endedSession, organisationOf, textMessage } from './load-fixture.ts'
import { newId } from '../../src/lib/id.ts'

interface Amounts {
  sessions: number
  streamEventsPerSession: number
}

/** Fills the database of a server that stands still with short sessions. */
export async function insertEndedSessions(server: AtollServer, amounts: Amounts): Promise<void> {
  const store = await openStore({ dataDir: server.dataDir, imageDir })
  try {
    const orgId = await organisationOf(store, server)
    for (let index = 0; index < amounts.sessions; index += 1) {
      const session = endedSession(orgId)
      const event = { id: newId('evt_'), level: 'info', message: 'ended', createdAt: new Date() } as const
      const messages = [textMessage('user', `Prompt ${index}`), textMessage('assistant', `Answer ${index}`)]
      await store.sessions.createSession(session, messages, { ...event, type: 'session_ended' })
      const content = [{ type: 'text', text: `A line of session ${index}` }]
      const line = { type: 'assistant', message: { role: 'assistant', content } }
      const addStream = Array.from({ length: amounts.streamEventsPerSession }, () => line)
      await store.sessions.commit(session.id, { addStream })
    }
  } finally {
    await store.close()
  }
}
