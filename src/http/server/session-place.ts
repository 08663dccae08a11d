import type { z } from 'zod'
import type { sessions } from '../../protocol/http/index.ts'
import type { NamedPlace } from '../../lib/session-place.ts'

/** The schema holds exactly one. */
export function placeOf({ message_id, event_id, checkpoint_id }: z.output<typeof sessions.place>): NamedPlace {
  if (message_id !== undefined) return { messageId: message_id }
  return event_id === undefined ? { checkpointId: checkpoint_id ?? '' } : { eventId: event_id }
}
