import type { z } from 'zod'
import { type LogEvent, nameOf } from '../../events/index.ts'
import { defined } from '../../lib/defined.ts'
import type { logEvent } from '../../protocol/log-events.ts'

/** An event of a log on the wire. */
export function logEventView(event: LogEvent): z.input<typeof logEvent> {
  const { number, ts, orgId, type, sandboxId, sessionId, subject, actor, cause, data } = event
  const about = { ...defined({ sandboxId, sessionId }), subject }
  return { number, id: nameOf(event), ts: ts.toISOString(), orgId, type, ...about, actor, cause, data }
}
