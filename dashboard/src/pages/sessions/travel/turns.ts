import type { Message, TurnInfo } from 'atoll-sdk'

/** Ids of the turn and of those before it in its branch. */
export function branchTo(turns: readonly TurnInfo[], messageId: string): ReadonlySet<string> {
  const byId = new Map(turns.map((turn) => [turn.messageId, turn]))
  const branch = new Set<string>()
  for (let turn = byId.get(messageId); turn !== undefined && !branch.has(turn.messageId);) {
    branch.add(turn.messageId)
    turn = byId.get(turn.parentMessageId ?? '')
  }
  return branch
}

/**
 * The number of each turn as a person counts it: its place in its branch, from 1 on. Turns come oldest first; messages tell how many came before those
 * that are read, of the source of a fork too.
 */
export function placesOf(turns: readonly TurnInfo[], messages: readonly Message[]): ReadonlyMap<string, number> {
  const oldest = turns.find(({ left }) => !left)?.messageId
  const begun = messages.filter(({ role, state, left }) => role === 'user' && left !== true && state !== 'cancelled')
  const before = Math.max(
    0,
    begun.findIndex(({ id }) => id === oldest),
  )
  const places = new Map<string, number>()
  for (const { messageId, parentMessageId } of turns)
    places.set(messageId, (places.get(parentMessageId ?? '') ?? before) + 1)
  return places
}

/**
 * What was said up to the end of a turn, in its branch, oldest first. Of all messages of the session, those that a rewind has left too. An answer names no
 * turn, but was written while its turn ran, and no two turns run at a time; that of a turn which came with a fork follows its message.
 */
export function messagesTo(messages: readonly Message[], turns: readonly TurnInfo[], turn: TurnInfo): Message[] {
  const branch = branchTo(turns, turn.messageId)
  const spans = turns.map(({ startedAt, endedAt, messageId }) => ({
    messageId,
    from: Date.parse(startedAt),
    to: endedAt === null ? Infinity : Date.parse(endedAt),
  }))
  const ids = new Set(turns.map(({ messageId }) => messageId))
  const ranAt = (time: number) => spans.find(({ from, to }) => from <= time && time <= to)?.messageId
  let asked: string | undefined
  return messages.filter(({ id, role, state, left, createdAt }) => {
    if (state === 'queued' || state === 'cancelled') return false
    if (role === 'user') asked = id
    const owner = role === 'user' ? id : (ranAt(Date.parse(createdAt)) ?? asked)
    // Else it is of a turn that is not read, or of the source of a fork.
    return owner !== undefined && ids.has(owner) ? branch.has(owner) : left !== true
  })
}
