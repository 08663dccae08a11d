/** Databases, child processes and records for the tests of stores. */
import pg from 'pg'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { defined } from '../../src/lib/defined.ts'
import { newId } from '../../src/lib/id.ts'
import type { Image } from '../../src/image/index.ts'
import type { Organisation } from '../../src/organisation/index.ts'
import type { Checkpoint } from '../../src/sandbox/checkpoint-records.ts'
import type { Preview } from '../../src/sandbox/preview.ts'
import type { Sandbox } from '../../src/sandbox/sandbox.ts'
import { type Message, type Session, type SessionEvent, unusedCounters } from '../../src/session/session.ts'
import { databaseLockKey } from '../../src/store/lock.ts'
import type { Store } from '../../src/store/index.ts'
import { execute } from '../support/database.ts'

export { execute, freshDatabase, openFreshStore } from '../support/database.ts'

/** Reads a list to its end, page by page. */
export async function allPages<Item>(
  list: (page: { cursor?: string }) => Promise<{ items: Item[]; nextCursor?: string }>,
): Promise<Item[][]> {
  const pages: Item[][] = []
  let cursor: string | undefined
  do {
    const page = await list(defined({ cursor }))
    pages.push(page.items)
    cursor = page.nextCursor
  } while (cursor !== undefined)
  return pages
}

export function idsOf(records: readonly { id: string }[]): string[] {
  return records.map(({ id }) => id)
}

export async function newOrganisation(store: Store): Promise<Organisation> {
  const organisation = { id: newId('org_'), name: 'test', isDefault: false, limits: {}, createdAt: new Date() }
  await store.organisations.insertOrganisation(organisation)
  return organisation
}

export function sandboxOf(orgId: string, fields: Partial<Sandbox> = {}): Sandbox {
  const now = new Date('2026-01-15T10:30:00.123Z')
  return {
    id: newId('sb-'),
    orgId,
    status: 'running',
    image: 'base',
    cpuCount: 1,
    memoryMb: 1024,
    diskMb: 10_240,
    timeoutSeconds: 300,
    onIdle: 'hibernate',
    envs: {},
    metadata: {},
    tags: {},
    volumes: [],
    createdAt: now,
    startedAt: now,
    activeAt: now,
    isAutoscaled: false,
    autoscaleMinMb: 0,
    autoscaleMaxMb: 0,
    isScalingLocked: false,
    restores: 0,
    ...fields,
  }
}

export function checkpointOf(sandbox: Sandbox, fields: Partial<Checkpoint> = {}): Checkpoint {
  const { image, cpuCount, memoryMb, diskMb, envs } = sandbox
  const id = newId('cp-')
  return {
    id,
    orgId: sandbox.orgId,
    owner: 'client',
    sandboxId: sandbox.id,
    name: id,
    kind: 'disk_only',
    status: 'ready',
    sizeBytes: 0,
    sandboxConfig: { image, cpuCount, memoryMb, diskMb, envs },
    volumes: [],
    createdAt: new Date('2026-01-15T10:31:00.456Z'),
    ...fields,
  }
}

export function patchOf(checkpointId: string, script = 'true') {
  return {
    id: newId('pa-'),
    checkpointId,
    script,
    description: '',
    strategy: 'on_wake' as const,
    createdAt: new Date('2026-01-15T10:32:00.789Z'),
  }
}

export function imageOf(orgId: string, fields: Partial<Image> = {}): Image {
  const now = new Date('2026-02-03T04:05:06.789Z')
  return {
    id: newId('img-'),
    orgId,
    contentHash: newId('pa-'),
    layerHashes: [],
    status: 'building',
    manifest: { base: 'base', steps: [] },
    memoryMb: 1024,
    isDetached: false,
    isPublic: false,
    createdAt: now,
    lastUsedAt: now,
    ...fields,
  }
}

/** Where clients reach a preview. */
export const previewUrl = 'http://preview.test'

export function previewOf(sandbox: Sandbox, port: number, fields: Partial<Preview> = {}): Preview {
  return {
    id: newId('pv-'),
    orgId: sandbox.orgId,
    sandboxId: sandbox.id,
    port,
    sslStatus: 'disabled',
    createdAt: new Date('2026-01-15T10:33:00.001Z'),
    ...fields,
  }
}

export function sessionOf(orgId: string, fields: Partial<Session> = {}): Session {
  const now = new Date('2026-01-15T10:34:00.002Z')
  return {
    id: newId('session_'),
    orgId,
    userId: 'user-1',
    status: 'running',
    activity: 'starting',
    sandboxId: newId('sb-'),
    title: 'A page',
    framework: '',
    artifacts: [],
    agentConfig: { harness: 'pi', model: 'demo', cwd: '/workspace/app', skills: {}, envs: {} },
    gatewayTokenHash: newId('key_'),
    ...unusedCounters,
    createdAt: now,
    updatedAt: now,
    ...fields,
  }
}

export function messageOf(content: string, fields: Partial<Message> = {}): Message {
  return {
    id: newId('msg_'),
    role: 'user',
    content,
    state: 'queued',
    createdAt: new Date('2026-01-15T10:35:00.003Z'),
    ...fields,
  }
}

export function eventOf(message: string, fields: Partial<SessionEvent> = {}): SessionEvent {
  return {
    id: newId('evt_'),
    type: 'session_started',
    level: 'info',
    message,
    createdAt: new Date('2026-01-15T10:36:00.004Z'),
    ...fields,
  }
}

/** A stored session with its first message and event. */
export async function newSession(store: Store, orgId: string, fields: Partial<Session> = {}): Promise<Session> {
  const session = sessionOf(orgId, fields)
  await store.sessions.createSession(session, [messageOf('hello')], eventOf('started'))
  return session
}

export async function newSandbox(store: Store, fields: Partial<Sandbox> = {}): Promise<Sandbox> {
  const sandbox = sandboxOf((await newOrganisation(store)).id, fields)
  await store.sandboxes.insertSandbox(sandbox)
  return sandbox
}

/** Terminates connections on the server, by their application name. */
export async function cutConnections(url: string, applicationName: string): Promise<void> {
  const name = pg.escapeLiteral(applicationName)
  const named = `select pid from pg_stat_activity where datname = current_database() and application_name = ${name}`
  await execute(url, `select pg_terminate_backend(pid) from (${named}) as named`)
}

/** A connection that waits for the lock of the database in PostgreSQL's queue, ahead of every caller that polls. */
export async function queueForLock(url: string): Promise<{ locked: Promise<unknown>; end: () => Promise<void> }> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid')
  const locked = client.query('select pg_advisory_lock($1)', [databaseLockKey])
  const waiting = `select 1 from pg_locks where pid = ${rows[0]?.pid} and locktype = 'advisory' and not granted`
  const watcher = new pg.Client({ connectionString: url })
  await watcher.connect()
  await eventually(async () => (await watcher.query(waiting)).rowCount !== 0)
  await watcher.end()
  return { locked, end: () => client.end() }
}
