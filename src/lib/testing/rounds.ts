/** How often the event loop went round while something was done: what holds it lets it go round a few times at the most. */
export async function roundsDuring(work: () => Promise<unknown>): Promise<number> {
  let rounds = 0
  let isOver = false
  const count = () => {
    rounds += 1
    if (!isOver) setImmediate(count)
  }
  setImmediate(count)
  await work()
  isOver = true
  return rounds
}
