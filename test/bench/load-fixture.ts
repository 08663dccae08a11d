import { randomBytes } from 'node:crypto'
import { newId } from '../../src/lib/id.ts'
import { sha256 } from '../../src/lib/secret.ts'
import { type Message, type Session, unusedCounters } from '../../src/session/session.ts'
import { openOwnStore } from '../../src/server/installation.ts'
import type { Store } from '../../src/store/index.ts'
import type { AtollServer } from '../e2e/server.ts'

const mib = 1024 * 1024
const messageBytes = 240 * 1024
const smallSessionsCount = 40
/** Nearly all that a session may have: room is left for what the clients send. */
const historyBytes = 30 * mib
const streamEventBytes = 3 * mib
const streamEventsCount = 12
const shortMessagesCount = 80_000
const shortMessageBytes = 200

export interface LargeSessions {
  /** Idle, with a long history. It takes messages. */
  idle: string
  /** Ended, with a long history and large stream events. */
  ended: string
  /** Ended, with as long a history of short messages. */
  talkative: string
}

/** Fills the database of a server that stands still: through the API it would take the agents an hour. */
export async function fillSessions(server: AtollServer, idle: string): Promise<LargeSessions> {
  const store = await openOwnStore({ dataDir: server.dataDir })
  try {
    const orgId = await organisationOf(store, server)
    const { sessions } = store
    const insert = async (messages: Message[]): Promise<string> => {
      const session = endedSession(orgId)
      const event = { id: newId('evt_'), level: 'info', message: 'ended', createdAt: new Date() } as const
      await sessions.createSession(session, messages, { ...event, type: 'session_ended' })
      return session.id
    }
    for (let index = 0; index < smallSessionsCount; index += 1) await insert(messagesOf(mib / 2))
    const ended = await insert(messagesOf(historyBytes))
    for (let index = 0; index < streamEventsCount; index += 1) {
      const text = randomText(streamEventBytes)
      await sessions.commit(ended, {
        addStream: [{ type: 'assistant', message: { role: 'assistant', content: [{ type: 'text', text }] } }],
      })
    }
    for (const message of messagesOf(historyBytes)) await sessions.commit(idle, { addMessages: [message] })
    return {
      idle,
      ended,
      talkative: await insert(messagesOf(shortMessagesCount * shortMessageBytes, shortMessageBytes)),
    }
  } finally {
    await store.close()
  }
}

export async function organisationOf(store: Store, server: Pick<AtollServer, 'key'>): Promise<string> {
  const organisation = await store.organisations.apiKeyByHash(sha256(server.key))
  if (organisation === undefined) throw new Error('the key of the server has no organisation')
  return organisation.orgId
}

export function endedSession(orgId: string): Session {
  const now = new Date()
  return {
    id: newId('session_'),
    orgId,
    userId: 'ada',
    status: 'ended',
    activity: 'ended',
    sandboxId: newId('sb-'),
    title: 'A long talk',
    framework: '',
    artifacts: [],
    agentConfig: { harness: 'pi', model: 'demo', cwd: '/workspace/app', skills: {}, envs: {} },
    gatewayTokenHash: sha256(newId('key_')),
    ...unusedCounters,
    createdAt: now,
    updatedAt: now,
  }
}

function messagesOf(bytes: number, bytesOfOne = messageBytes): Message[] {
  return Array.from({ length: Math.ceil(bytes / bytesOfOne) }, () => textMessage('assistant', randomText(bytesOfOne)))
}

export function textMessage(role: 'user' | 'assistant', content: string): Message {
  const state = role === 'user' ? { state: 'consumed' as const } : {}
  return { id: newId('msg_'), role, content, ...state, createdAt: new Date() }
}

/** Of base64, which a database cannot make much smaller. */
function randomText(length: number): string {
  return randomBytes(Math.ceil((length * 3) / 4))
    .toString('base64')
    .slice(0, length)
}
