import { setTimeout as sleep } from 'node:timers/promises'

const triesMax = 600

/** Space of removed disks and dying processes goes a moment later, so a state is awaited, for a bounded time. */
export async function settled<State extends object>(look: () => Promise<State>, wanted: State): Promise<State> {
  for (let tries = 0; tries < triesMax; tries += 1) {
    const now = await look()
    if (JSON.stringify(now) === JSON.stringify(wanted)) return now
    await sleep(100)
  }
  return await look()
}
