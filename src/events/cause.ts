import { AsyncLocalStorage } from 'node:async_hooks'
import type { LogActor, LogCause } from '../protocol/log-events.ts'

/** Who acts, and why. */
export interface Acting {
  actor: LogActor
  cause: LogCause
  /** The organisation for which it is done, whose share of the server it takes. Work that begins within has the same, unless it says another. */
  orgId?: string | undefined
}

const byServer: Acting = { actor: { type: 'server' }, cause: 'server' }
const current = new AsyncLocalStorage<Acting>()

/**
 * Runs work on behalf of somebody, whom the log then names for all that the work writes, also later in the background. Work that runs for
 * another reason than its caller's, such as a timer, states its own.
 */
export function acting<Result>(as: Acting, work: () => Result): Result {
  return current.run({ orgId: current.getStore()?.orgId, ...as }, work)
}

/** Like `acting`, for what the server does by itself. */
export function actingAsServer<Result>(cause: LogCause, work: () => Result): Result {
  return current.run({ actor: { type: 'server' }, cause }, work)
}

export function whoActs(): Acting {
  return current.getStore() ?? byServer
}
