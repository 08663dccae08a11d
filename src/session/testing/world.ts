import assert from 'node:assert/strict'
import { afterEach } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { type ErrorCode, isServiceError } from '../../errors.ts'
import type { EventBus, ServiceEvent } from '../../events/index.ts'
import { topicOf } from '../../events/in-process-bus.ts'
import { silentLog } from '../../lib/log.ts'
import { eventually } from '../../lib/testing/eventually.ts'
import type { SandboxService } from '../../sandbox/index.ts'
import type { CreateSession } from '../api.ts'
import type { SessionConfig } from '../config.ts'
import { Sessions } from '../service.ts'
import type { Session, StreamEvent } from '../session.ts'
import type { SessionStore } from '../store.ts'
import { FakeSandboxes } from './fake-sandboxes.ts'
import { callsEnded, capsuleStore, emptySessionStore, orgId } from './store.ts'

export { orgId }
const waitMs = 60_000
const checkMs = 10

/** A bus that delivers after the publisher's current work. */
function directBus(): EventBus {
  const listeners = new Set<{ topic: string; listener: (event: ServiceEvent) => void }>()
  return {
    publish(event) {
      const topic = topicOf(event)
      setImmediate(() => {
        for (const one of listeners) if (one.topic === '*' || one.topic === topic) one.listener(event)
      })
    },
    subscribe(topic, listener) {
      const one = { topic, listener }
      listeners.add(one)
      return () => listeners.delete(one)
    },
    async close() {},
  }
}

/** Servers over one store and one set of machines, as after a crash. */
export class World {
  bus = directBus()
  store: SessionStore
  sandboxes = new FakeSandboxes(this.bus)
  #running: Sessions[] = []

  constructor(store: SessionStore = emptySessionStore()) {
    this.store = store
  }

  /** One that will die cannot be closed. */
  serve(config: Partial<SessionConfig> = {}, wrap: Wrap = (port) => port, dying = false): Sessions {
    const service = new Sessions({
      store: wrap(this.store),
      capsules: capsuleStore,
      sandboxes: wrap<SandboxService>(this.sandboxes.service()),
      bus: this.bus,
      signingSecret: 'secret',
      log: silentLog,
      config: {
        defaultModel: 'demo',
        harnesses: ['pi', 'acp:'],
        gatewayUrl: 'http://gateway.test:4180',
        previewUrl: (hostname) => `http://${hostname}:4100`,
        ...config,
        limits: { shortageFirstMs: 1, shortageMaxMs: 10, ...config.limits },
        timings: {
          retryFirstMs: 1,
          retryMaxMs: 10,
          previewPollMs: 5,
          bootStopMs: 2000,
          // A busy machine must not have an agent replaced that a test counts.
          agentStartMs: 60_000,
          ...config.timings,
        },
      },
    })
    if (!dying) this.#running.push(service)
    return service
  }

  async close(): Promise<void> {
    await Promise.all(this.#running.map((service) => service.close()))
  }

  /** Waits until all that a server which died had begun is over, and breaks its connections. */
  async afterDeath(): Promise<void> {
    await callsEnded()
    for (const { sandbox } of this.sandboxes.machines.values()) this.sandboxes.breakConnections(sandbox.id)
  }

  /** Closes the servers. The next ones have an empty store and no sandboxes. */
  async reset(): Promise<void> {
    await this.close()
    this.bus = directBus()
    this.store = emptySessionStore()
    this.sandboxes = new FakeSandboxes(this.bus)
    this.#running = []
  }

  /** Creates a session and waits until it has answered its prompt. */
  async idle(service: Sessions): Promise<Session> {
    const { session } = await service.create(orgId, simple)
    await this.until(session.id, 'idle')
    return (await this.store.session(session.id))!
  }

  /** Sends a message and waits until the session is idle. */
  async turn(service: Sessions, sessionId: string, message: string): Promise<void> {
    await service.sendMessage(orgId, sessionId, { message, userId: 'u1' })
    await this.until(sessionId, 'idle')
  }

  /** A session that has had a turn for each of these messages, with a checkpoint of each. */
  async turns(service: Sessions, texts: readonly string[], fields: Partial<CreateSession> = {}): Promise<Session> {
    const { session } = await service.create(orgId, { ...simple, ...fields, prompt: texts[0] ?? '' })
    await this.saved(session.id, 1)
    for (const [index, message] of texts.slice(1).entries()) {
      await service.sendMessage(orgId, session.id, { message, userId: 'u1' })
      await this.saved(session.id, index + 2)
    }
    return (await this.store.session(session.id))!
  }

  /** Waits until the turns of a session have this many checkpoints, and it is idle. */
  async saved(sessionId: string, count: number): Promise<void> {
    await this.eventually(`${count} checkpoints`, async () => {
      const types = await this.types(sessionId)
      assert.equal(types.filter((type) => type === 'checkpoint_created').length, count)
      assert.equal((await this.store.head(sessionId))?.activity, 'idle')
    })
  }

  /** No checkpoint is left that no session names. */
  async assertCheckpointsNamed(): Promise<void> {
    const kept = [...this.sandboxes.checkpoints.keys()]
    const named = await this.store.knownPoints(kept)
    assert.deepEqual(
      kept.filter((id) => !named.has(id)),
      [],
    )
  }

  /** Hibernates the sandbox and waits until the session has recorded it. */
  async hibernate({ id, sandboxId }: Session): Promise<void> {
    this.sandboxes.set(sandboxId, 'hibernated')
    await this.eventually('the event', async () => {
      assert.equal((await this.eventTypes(id)).at(-1), 'sandbox_hibernated')
    })
  }

  async streamed(sessionId: string): Promise<StreamEvent[]> {
    const events: StreamEvent[] = []
    for (;;) {
      const page = await this.store.stream(sessionId, events.length, 100_000)
      if (page.length === 0) return events
      events.push(...page)
    }
  }

  async types(sessionId: string): Promise<string[]> {
    return (await this.streamed(sessionId)).map(({ data }) => data.type)
  }

  /** The codes of its `error` events. */
  async errors(sessionId: string): Promise<unknown[]> {
    return (await this.#dataOf(sessionId, 'error')).map(({ code }) => code)
  }

  /** How its turns ended. */
  async subtypes(sessionId: string): Promise<unknown[]> {
    return (await this.#dataOf(sessionId, 'result')).map(({ subtype }) => subtype)
  }

  async #dataOf(sessionId: string, type: string): Promise<Record<string, unknown>[]> {
    return (await this.streamed(sessionId)).map(({ data }) => data).filter((data) => data.type === type)
  }

  async eventTypes(sessionId: string): Promise<string[]> {
    return (await this.store.events(sessionId)).map(({ type }) => type)
  }

  /** Waits until the session does this; fails with what it does instead. */
  async until(sessionId: string, activity: string): Promise<void> {
    await this.eventually(`activity ${activity}`, async () => {
      const session = await this.store.session(sessionId)
      assert.equal(session?.activity, activity)
    })
  }

  async eventually<Result>(what: string, check: () => Promise<Result> | Result): Promise<Result> {
    return await eventually(check, { what, timeoutMs: waitMs, pause: () => this.#changed() })
  }

  /** Waits for an event of the bus, or a little: each check reads the database, so they are few. */
  async #changed(): Promise<void> {
    const waited = new AbortController()
    const unsubscribe = this.bus.subscribe('*', () => waited.abort())
    await sleep(checkMs, undefined, { signal: waited.signal }).catch(() => {})
    unsubscribe()
  }
}

/** One world for the tests of a file, as new for each of them. */
export function useWorld(): World {
  const world = new World()
  afterEach(() => world.reset())
  return world
}

/** For `assert.rejects`. */
export function refused(code: ErrorCode): (error: unknown) => boolean {
  return (error) => isServiceError(error, code)
}

export type Wrap = <Port extends object>(port: Port) => Port

export const simple: CreateSession = { prompt: 'a page', userId: 'u1' }

/** Gapless from 1, and for each consumed message one `result` followed by its `turn_complete`. */
export async function assertWhole(world: World, sessionId: string): Promise<void> {
  const events = await world.streamed(sessionId)
  assert.deepEqual(
    events.map(({ sequence }) => sequence),
    events.map((_event, index) => index + 1),
  )
  const messages = await world.store.messages(sessionId)
  const consumed = messages.filter(({ state }) => state === 'consumed').map(({ id }) => id)
  const ends = events.filter(({ data }) => data.type === 'turn_complete' || data.type === 'result')
  assert.deepEqual(
    ends.map(({ data }) => data.type),
    consumed.flatMap(() => ['result', 'turn_complete']),
  )
  assert.deepEqual(
    ends.filter(({ data }) => data.type === 'turn_complete').map(({ data }) => data['message_id']),
    consumed,
  )
}
