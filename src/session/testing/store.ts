import { randomUUID } from 'node:crypto'
import { openFreshStore } from '../../../test/support/database.ts'
import type { Store } from '../../store/index.ts'
import { Creation } from '../../lib/creation.ts'
import { newId } from '../../lib/id.ts'
import { type Message, type Session, unusedCounters } from '../session.ts'
import type { SessionStore } from '../store.ts'

export const orgId = 'org_1'
const createdAt = new Date()

const { sessions, capsules, idempotency } = await open()

/** A request with an `Idempotency-Key`: its first run, or a repeat, which knows what the earlier ones have made. */
export async function creationOf(key: string): Promise<Creation> {
  const claim = { orgId, key, seed: randomUUID() }
  const begun = await idempotency.begin(claim, 'hash', new Date())
  if (begun.state !== 'claimed') throw new Error(`the key is ${begun.state}`)
  return new Creation({ ...claim, seed: begun.seed }, begun.made, begun.seed)
}

/** Emptied with the sessions. */
export const capsuleStore = capsules

/**
 * The database of this test process, empty but for the organisations `org_1`, `org_2` and `org_3`. A process opens one database and the
 * next call empties it, so one test at a time may use it. Calls wait until it is empty.
 */
export function emptySessionStore(): SessionStore {
  // After the earlier ones, which would end the sessions of this store.
  const emptied = lastEmptied.then(empty)
  lastEmptied = emptied.catch(() => {})
  return new Proxy(sessions, {
    get(target, name) {
      const method = target[name as keyof SessionStore] as (...all: unknown[]) => Promise<unknown>
      return async (...parameters: unknown[]) => {
        await emptied
        const call = method(...parameters)
        inFlight.add(call)
        try {
          return await call
        } finally {
          inFlight.delete(call)
        }
      }
    },
  })
}

let lastEmptied: Promise<void> = Promise.resolve()
const inFlight = new Set<Promise<unknown>>()

/** Waits for the calls of a server that died: PostgreSQL ends what runs before the next server has its lock. */
export async function callsEnded(): Promise<void> {
  await Promise.allSettled(inFlight)
}

async function empty(): Promise<void> {
  for (const { id } of await sessions.sessionsIn('running')) await sessions.commit(id, { session: { status: 'ended' } })
  await sessions.deleteSessions(await sessions.expiredSessions(new Date(Date.now() + 60_000), 1000))
}

/** A session as the service creates it. */
export function sessionOf(fields: Partial<Session> = {}): Session {
  return {
    id: newId('session_'),
    orgId,
    userId: 'u1',
    status: 'running',
    activity: 'idle',
    sandboxId: newId('sb-'),
    title: '',
    framework: '',
    artifacts: [],
    agentConfig: { harness: 'pi', model: 'demo', cwd: '/workspace/app', skills: {}, envs: {} },
    gatewayTokenHash: randomUUID(),
    ...unusedCounters,
    createdAt,
    updatedAt: createdAt,
    ...fields,
  }
}

/** Writes down a session with these messages and its first event. */
export async function insertSession(
  store: SessionStore,
  fields: Partial<Session> = {},
  messages: Message[] = [],
): Promise<Session> {
  const session = sessionOf(fields)
  const event = { type: 'sandbox_ready', level: 'info', message: '', createdAt } as const
  await store.createSession(session, messages, { id: newId('evt_'), ...event })
  return session
}

async function open(): Promise<Store> {
  const store = await openFreshStore()
  for (const id of [orgId, 'org_2', 'org_3']) await store.organisations.insertOrganisation({ id, name: 'test' })
  return store
}
