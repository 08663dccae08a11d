/**
 * Guests are hostile, and one thread reads what all of them send: whoever wants to go on with much waits for its turn here.
 * One goes on each time the process has looked at everything else there is to do, first come, first served, so that guests
 * that flood slow down each other and not the server.
 */
const waiting: (() => void)[] = []

export async function nextTurn(): Promise<void> {
  const turn = Promise.withResolvers<void>()
  if (waiting.push(turn.resolve) === 1) setImmediate(tick)
  await turn.promise
}

function tick(): void {
  waiting.shift()?.()
  if (waiting.length > 0) setImmediate(tick)
}
