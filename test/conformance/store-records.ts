import { newId } from '../../src/lib/id.ts'
import type { Checkpoint } from '../../src/sandbox/checkpoint.ts'
import type { Organisation } from '../../src/organisation/index.ts'
import type { Preview } from '../../src/sandbox/preview.ts'
import type { Sandbox } from '../../src/sandbox/sandbox.ts'
import type { Message, Session, SessionEvent } from '../../src/session/session.ts'
import type { Store } from '../../src/store/index.ts'

/** Records with every required field; tests name what they are about. */
export async function newOrganisation(store: Store): Promise<Organisation> {
  const organisation = { id: newId('org_'), name: 'test' }
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
    envs: {},
    metadata: {},
    tags: {},
    createdAt: now,
    startedAt: now,
    activeAt: now,
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
    sandboxId: sandbox.id,
    name: id,
    kind: 'disk_only',
    status: 'ready',
    sizeBytes: 0,
    sandboxConfig: { image, cpuCount, memoryMb, diskMb, envs },
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
    agentOffset: 0,
    sandboxRestores: 0,
    inputTokens: 0,
    cacheReadTokens: 0,
    cacheWriteTokens: 0,
    outputTokens: 0,
    costNanoUsd: 0,
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
