import { randomBytes } from 'node:crypto'
import { ServiceError } from '../../src/errors.ts'
import { newId } from '../../src/lib/id.ts'
import { capsuleTokenPrefix } from '../../src/lib/secret.ts'
import type { Capsule, SessionService } from '../../src/session/index.ts'
import type { FakeSessions } from './fake-sessions.ts'

/** Capsules in memory, of sessions in memory. */
export function fakeCapsules(sessions: FakeSessions): SessionService['capsules'] {
  const kept = new Map<string, Capsule>()
  const find = (token: string): Capsule => {
    const capsule = kept.get(token)
    if (capsule === undefined || capsule.revokedAt !== undefined) throw new ServiceError('not_found', 'nothing')
    return capsule
  }
  return {
    create: async (orgId, sessionId, input, options) => {
      await sessions.interrupt(orgId, sessionId, input.userId)
      sessions.asked['capsule'] = input
      const { scope, event = 1 } = input
      const token = capsuleTokenPrefix + (options?.creation?.secret('capsule') ?? randomBytes(32).toString('base64url'))
      const times = { createdAt: new Date(), expiresAt: new Date(Date.now() + 1000) }
      const capsule = { id: newId('mom_'), orgId, sessionId, scope, event, forks: 0, ...times }
      kept.set(token, capsule)
      return { capsule, token, ...(scope === 'fork' ? { isExact: false } : {}) }
    },
    list: async (orgId, sessionId, userId) => {
      await sessions.get(orgId, sessionId, userId)
      return [...kept.values()].filter((one) => one.sessionId === sessionId && one.revokedAt === undefined)
    },
    revoke: async (orgId, sessionId, capsuleId, userId) => {
      await sessions.get(orgId, sessionId, userId)
      const capsule = [...kept.values()].find(({ id }) => id === capsuleId)
      if (capsule?.sessionId !== sessionId) throw new ServiceError('not_found', `no capsule ${capsuleId}`)
      capsule.revokedAt = new Date()
    },
    read: async (token, { limit }) => {
      const capsule = find(token)
      const { session, messages } = await sessions.get(capsule.orgId, capsule.sessionId)
      return { capsule, session, messages: messages.slice(0, limit) }
    },
    events: async (token, { after, limit }) => {
      const { event, sessionId } = find(token)
      const all = sessions.kept.get(sessionId)?.stream ?? []
      const shown = all.filter(({ sequence }) => sequence > after && sequence <= event).slice(0, limit)
      return { events: shown.map(({ sequence: id, data }) => ({ id, text: JSON.stringify(data) })) }
    },
    fork: async (orgId, token, { userId, name }, options) => {
      const { scope, orgId: owner } = find(token)
      if (owner !== orgId) throw new ServiceError('not_found', 'nothing')
      if (scope === 'read') throw new ServiceError('forbidden', 'it may be read, not forked')
      const input = { prompt: 'goes on', userId, ...(name === undefined ? {} : { name }) }
      return await sessions.create(orgId, input, options)
    },
  }
}
