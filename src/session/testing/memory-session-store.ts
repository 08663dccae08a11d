import { ServiceError } from '../../errors.ts'
import type { Message, Session, SessionEvent, StreamEvent } from '../session.ts'
import { weightOf } from '../output-budget.ts'
import { rowPageBytes, streamPageBytes } from '../store.ts'
import type { AddedUsage, RowPage, SessionStore } from '../store.ts'

interface Rows {
  session: Session
  messages: Message[]
  events: SessionEvent[]
  stream: StreamEvent[]
}

/** The store's promises without a database: copies go in and out, and a commit happens whole or not at all. */
export function memorySessionStore(): SessionStore {
  const all = new Map<string, Rows>()
  const rows = (id: string) => all.get(id) ?? { session: undefined, messages: [], events: [], stream: [] }
  const find = (wanted: (session: Session) => boolean) =>
    structuredClone([...all.values()].map(({ session }) => session).find(wanted))
  const byId = (id: string, orgId?: string) =>
    find((session) => session.id === id && (orgId === undefined || session.orgId === orgId))
  const short = (found: Session | undefined): Session | undefined => {
    if (!found) return undefined
    const { systemPrompt: _prompt, ...agentConfig } = found.agentConfig
    return { ...found, agentConfig: { ...agentConfig, skills: {} } }
  }
  return {
    async createSession({ agentConfig: own, ...rest }, messages, event, { configOf = '' } = {}) {
      const agentConfig = rows(configOf).session?.agentConfig ?? own
      const session = { ...rest, agentConfig }
      all.set(session.id, structuredClone({ session, messages: [...messages], events: [event], stream: [] }))
    },
    session: async (id, orgId) => short(byId(id, orgId)),
    async head(id, orgId) {
      const found = byId(id, orgId)
      if (!found) return undefined
      const { agentConfig: _config, artifacts: _artifacts, ...head } = found
      const { stream } = rows(id)
      const streamBytes = stream.reduce((sum, { data }) => sum + weightOf(data), 0)
      return { ...head, lastSequence: stream.length, streamBytes, historyBytes: bytesOf(rows(id)) }
    },
    metered: async (id) => byId(id),
    meteredByGatewayToken: async (hash) => find((session) => session.gatewayTokenHash === hash),
    async instructions(id) {
      const config = byId(id)?.agentConfig
      if (!config) return undefined
      const { systemPrompt, skills } = config
      return { skillPaths: Object.keys(skills), ...(systemPrompt === undefined ? {} : { systemPrompt }) }
    },
    skills: async (id) => byId(id)?.agentConfig.skills ?? {},
    async listSessions({ orgId, userId, search = '', limit, historyBytesMax = Infinity }) {
      const holding = [...all.values()].filter(({ session, messages }) =>
        [session.title, ...messages.map(({ content }) => content)].some((text) => text.includes(search)),
      )
      const sessions = holding.map(({ session }) => session).reverse()
      const mine = sessions.filter((one) => one.orgId === orgId && (userId === undefined || one.userId === userId))
      let bytes = 0
      const fits = ({ id }: Session, index: number) => (bytes += bytesOf(rows(id))) <= historyBytesMax || index === 0
      const beyond = mine.slice(0, limit).findIndex((session, index) => !fits(session, index))
      return { items: structuredClone(mine.slice(0, beyond < 0 ? limit : beyond)) }
    },
    sessionsIn: async (status) =>
      [...all.values()]
        .map(({ session }) => session)
        .filter((session) => session.status === status)
        .map(({ id, orgId, sandboxId }) => ({ id, orgId, sandboxId })),
    async commit(sessionId, change) {
      const now = new Date()
      const old = all.get(sessionId)
      if (!old || (change.when !== undefined && old.session.status !== change.when)) return undefined
      const { session, messages, events, stream } = structuredClone(old)
      Object.assign(session, structuredClone(change.session), { updatedAt: now })
      if (change.usage) addUsage(session, change.usage)
      messages.push(...structuredClone(change.addMessages ?? []))
      for (const { id, state } of change.setMessages ?? []) {
        const message = messages.find((one) => one.id === id)
        if (!message) throw new ServiceError('not_found', `no message ${id}`)
        message.state = state
      }
      events.push(...structuredClone(change.addEvents ?? []))
      const added = structuredClone(change.addStream ?? []).map((data, index) => ({
        sequence: stream.length + index + 1,
        data,
        createdAt: now,
      }))
      stream.push(...added)
      all.set(sessionId, { session, messages, events, stream })
      const { agentConfig: _config, artifacts: _artifacts, ...committed } = session
      return structuredClone({ session: committed, lastSequence: stream.length })
    },
    messages: async (id, page) => structuredClone(paged(rows(id).messages, ({ content }) => content, page)),
    message: async (sessionId, id) => structuredClone(rows(sessionId).messages.find((message) => message.id === id)),
    queuedMessageIds: async (id) =>
      rows(id)
        .messages.filter(({ state }) => state === 'queued')
        .map((message) => message.id),
    firstMessage: async (id, state) => structuredClone(rows(id).messages.find((message) => message.state === state)),
    events: async (id, page) => structuredClone(paged(rows(id).events, ({ message }) => message, page)),
    async eventTypes(id) {
      const types = rows(id).events.map(({ type }) => type)
      return types.filter((type, index) => types.lastIndexOf(type) === index)
    },
    async stream(id, after, limit) {
      const events = rows(id).stream.slice(after, after + limit)
      let bytes = 0
      const last = events.findIndex(({ data }) => (bytes += weightOf(data)) >= streamPageBytes)
      return structuredClone(last < 0 ? events : events.slice(0, last + 1))
    },
    lastSequence: async (id) => rows(id).stream.length,
    historyBytes: async (...ids) => ids.reduce((sum, id) => sum + bytesOf(rows(id)), 0),
    async expiredSessions(endedBefore, limit) {
      const ended = [...all.values()].map(({ session }) => session).filter(({ status }) => status === 'ended')
      const expired = ended.filter(({ updatedAt }) => updatedAt < endedBefore)
      return expired.slice(0, limit).map(({ id }) => id)
    },
    async deleteSessions(ids) {
      for (const id of ids) all.delete(id)
    },
  }
}

function addUsage(session: Session, { costNanoUsd, ...tokens }: AddedUsage): void {
  for (const counter of ['inputTokens', 'cacheReadTokens', 'cacheWriteTokens', 'outputTokens'] as const) {
    session[counter] += tokens[counter]
  }
  if (session.costNanoUsd === undefined || costNanoUsd === undefined) delete session.costNanoUsd
  else session.costNanoUsd += costNanoUsd
}

function bytesOf({ messages, events }: Pick<Rows, 'messages' | 'events'>): number {
  return [...messages, ...events].reduce((sum, one) => sum + Buffer.byteLength(JSON.stringify(one)), 0)
}

function paged<Row extends { id: string }>(all: Row[], textOf: (row: Row) => string, page?: RowPage): Row[] {
  if (page === undefined) return all
  const start = page.after === undefined ? 0 : all.findIndex(({ id }) => id === page.after) + 1
  const some = all.slice(start, start + page.limit)
  let bytes = 0
  const last = some.findIndex((row) => (bytes += Buffer.byteLength(textOf(row))) >= rowPageBytes)
  return last < 0 ? some : some.slice(0, last + 1)
}
