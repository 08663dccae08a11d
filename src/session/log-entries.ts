import type { LogEntry } from '../events/index.ts'
import type { Session, SessionActivity } from './session.ts'

/** What the log says of a session: that it was made, what it does from now on, and that its history was deleted. */
export function sessionEntry(
  what: 'created' | SessionActivity | 'deleted',
  { id, sandboxId }: Pick<Session, 'id' | 'sandboxId'>,
): LogEntry {
  return { type: `session.${what}`, subject: id, sessionId: id, sandboxId, data: {} }
}
