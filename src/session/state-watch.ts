import { ServiceError } from '../errors.ts'
import type { SessionState } from './state.ts'

/** Lets calls wait for a state of one session. */
export class StateWatch {
  readonly #read: () => Promise<SessionState>
  readonly #stopped: AbortSignal
  readonly #watchers = new Set<(state: SessionState) => void>()

  /** `stopped` aborts when the session is driven no more. */
  constructor(read: () => Promise<SessionState>, stopped: AbortSignal) {
    this.#read = read
    this.#stopped = stopped
  }

  /** Called after each change. */
  note(state: SessionState): void {
    for (const look of this.#watchers) look(state)
  }

  /** The state once it is as wanted. Throws `unavailable` after this time, and when the session is driven no more. */
  async until(isWanted: (state: SessionState) => boolean, timeoutMs = Infinity): Promise<SessionState> {
    const { promise, resolve, reject } = Promise.withResolvers<SessionState>()
    const look = (state: SessionState) => {
      if (isWanted(state)) resolve(state)
    }
    const stop = () => reject(new ServiceError('unavailable', 'the session is not driven any more'))
    const late = () => reject(new ServiceError('unavailable', 'the session is still at work'))
    const timer = timeoutMs === Infinity ? undefined : setTimeout(late, timeoutMs).unref()
    this.#watchers.add(look)
    this.#stopped.addEventListener('abort', stop)
    try {
      if (this.#stopped.aborted) stop()
      look(await this.#read())
      return await promise
    } finally {
      clearTimeout(timer)
      this.#watchers.delete(look)
      this.#stopped.removeEventListener('abort', stop)
    }
  }
}
