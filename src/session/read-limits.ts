import { Semaphore } from '../lib/async/semaphore.ts'
import type { ViewOptions } from './api.ts'
import type { Artifact, Session } from './session.ts'
import type { SessionStore } from './store.ts'
import { ServiceError } from '../errors.ts'

/** Views up to this size wait in no line: a connection's own buffers take them, however slowly its client reads. */
const smallViewBytes = 64 * 1024
/** Views of the largest size that one organisation, and all together, may have in memory until they were sent. */
const fullViews = { permitsPerKey: 4, permits: 12 }
/** Of one session: a browser that has its token, and takes nothing, holds up that session alone. */
const viewsOfSessionMax = 2

/** Memory for views of sessions, of which each can be megabytes that a client takes as slowly as it likes. */
export class ViewMemory {
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
   * Loads views of these sessions once there is room for them, which is free again when they have been both loaded and sent.
   * Throws an `AbortError` where the client has gone by then: nobody needs them.
   */
  async hold<Views>(
    orgId: string,
    sessions: readonly Session[],
    { sent }: ViewOptions = {},
    load: () => Promise<Views>,
  ): Promise<Views> {
    if (sent === undefined || sessions.length === 0) return await load()
    const history = await this.#store.historyBytes(...sessions.map(({ id }) => id))
    const bytes = sessions.reduce((sum, { artifacts }) => sum + lengthOf(artifacts), history)
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

/** Of one organisation: searches that wait for the one that runs. */
const waitingMax = 8
/** What one takes, about, when it looks into as much as it may. */
const searchSeconds = 1

/** Runs one search of an organisation at a time: each looks into megabytes. */
export class Searches {
  readonly #semaphore = new Semaphore({ permitsPerKey: 1 })

  /** Throws `rate_limited` when too many wait already. */
  async run<Result>(orgId: string, search: () => Promise<Result>): Promise<Result> {
    if (this.#semaphore.users(orgId) > waitingMax) {
      const details = { limit: waitingMax, retryAfterSeconds: searchSeconds * waitingMax }
      throw new ServiceError('rate_limited', `${waitingMax} searches of the organisation wait already`, { details })
    }
    return await this.#semaphore.use(search, { key: orgId })
  }
}
