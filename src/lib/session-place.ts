/** The end of a message's turn, the number of a stream event, or a checkpoint of the session. */
export type NamedPlace = { messageId: string } | { eventId: number } | { checkpointId: string }

export const placeRule = 'must be a message (msg_…), a checkpoint (cp-…) or the number of an event'

/** Of the id of a message, the id of a checkpoint, or the number of an event. Undefined for what is none. */
export function placeNamed(text: string): NamedPlace | undefined {
  if (/^[1-9]\d{0,9}$/.test(text)) return { eventId: Number(text) }
  if (!/^[\w-]+$/.test(text)) return undefined
  if (text.startsWith('msg_')) return { messageId: text }
  return text.startsWith('cp-') ? { checkpointId: text } : undefined
}
