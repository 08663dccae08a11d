import { defined } from '../lib/defined.ts'
import type { FairYield } from '../lib/async/fair-yield.ts'
import { Semaphore } from '../lib/async/semaphore.ts'
import type { GetViewOptions, SessionView, ViewOptions } from './api.ts'
import { previewPort } from './config.ts'
import { readHistories, readHistory } from './history.ts'
import type { SessionDeps } from './service.ts'
import { type Artifact, type Message, type Session, type SessionEvent, sessionCostUsd } from './session.ts'
import type { SessionStore } from './store.ts'

interface ViewsContext extends Pick<SessionDeps, 'store' | 'sandboxes' | 'config'> {
  /** Yields between pages of histories. */
  pages: FairYield
}

/** Sessions as clients see them. */
export class SessionViews {
  readonly #context: ViewsContext
  readonly #memory: ViewMemory

  constructor(context: ViewsContext, historyBytesMax: number) {
    this.#context = context
    this.#memory = new ViewMemory(context.store, historyBytesMax)
  }

  /** With all messages of a branch and all events. */
  async load(orgId: string, session: Session, options?: GetViewOptions): Promise<SessionView> {
    const { store, pages } = this.#context
    return await this.#memory.hold(orgId, [session], options, async () => {
      const { messages, events } = await readHistory(store, pages, session.id, options?.branch)
      return this.make(session, messages, events)
    })
  }

  /** See `load`. */
  async loadAll(orgId: string, sessions: readonly Session[], options?: ViewOptions): Promise<SessionView[]> {
    return await this.#memory.hold(orgId, sessions, options, async () => {
      const ids = sessions.map(({ id }) => id)
      const histories = await readHistories(this.#context.store, this.#context.pages, ids)
      return sessions.map((session, index) => {
        const { messages = [], events = [] } = histories[index] ?? {}
        return this.make(session, messages, events)
      })
    })
  }

  /** Runs `make` when there is room for a view of this session. Its views take no more memory than that. */
  async hold<Views>(session: Session, options: ViewOptions, make: () => Promise<Views>): Promise<Views> {
    return await this.#memory.hold(session.orgId, [session], options, make)
  }

  make(session: Session, messages: Message[], events: SessionEvent[]): SessionView {
    const { sandboxes, config } = this.#context
    const previewUrl = config.previewUrl(sandboxes.previews.hostname(session.sandboxId, previewPort))
    const costUsd = sessionCostUsd(session, config.prices?.get(session.agentConfig.model))
    return { session, messages, events, previewUrl, ...defined({ costUsd }) }
  }
}

/** Views up to this size do not wait: the buffers of a connection take them, however slowly its client reads. */
const smallViewBytes = 64 * 1024
/** Unsent views of the largest size that one organisation, and all together, may have in memory. */
const fullViews = { permitsPerKey: 4, permits: 12 }
/** Unsent views of one session: a browser with its token that reads nothing holds up that session alone. */
const viewsOfSessionMax = 2

/** Bounds the memory of views: each can be megabytes, which a client may read slowly. */
class ViewMemory {
  readonly #store: Pick<SessionStore, 'historyBytes'>
  /** In bytes of unsent views. */
  readonly #unsent: Semaphore
  readonly #unsentOfSession = new Semaphore({ permitsPerKey: viewsOfSessionMax })

  constructor(store: Pick<SessionStore, 'historyBytes'>, historyBytesMax: number) {
    this.#store = store
    this.#unsent = new Semaphore({
      permitsPerKey: fullViews.permitsPerKey * historyBytesMax,
      permits: fullViews.permits * historyBytesMax,
    })
  }

  /**
   * Waits for room for views of these sessions and loads them. The room is free again when they are loaded and sent. Throws an
   * `AbortError` when the client has gone by then.
   */
  async hold<Views>(
    orgId: string,
    sessions: readonly Session[],
    { sent }: ViewOptions = {},
    load: () => Promise<Views>,
  ): Promise<Views> {
    if (sent === undefined || sessions.length === 0) return await load()
    const history = await this.#store.historyBytes(sessions.map(({ id }) => id))
    const bytes = sessions.reduce((sum, { id, artifacts }) => sum + (history.get(id) ?? 0) + lengthOf(artifacts), 0)
    if (bytes <= smallViewBytes) return await load()
    let isOver = false
    const note = () => {
      isOver = true
    }
    const over = sent.then(note, note)
    const [first, ...others] = sessions
    const releaseSession =
      first && others.length === 0 ? await this.#unsentOfSession.acquire({ key: first.id }) : undefined
    const releaseMemory = await this.#unsent.acquire({ key: orgId, weight: bytes })
    try {
      if (isOver) throw new DOMException('the client has gone', 'AbortError')
      return await load()
    } finally {
      void over.then(() => {
        releaseMemory()
        releaseSession?.()
      })
    }
  }
}

function lengthOf(artifacts: readonly Artifact[]): number {
  return artifacts.reduce((sum, { path, summary }) => sum + path.length + summary.length, 0)
}
