import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { startSandbox } from '../e2e/sandbox-calls.ts'
import type { AtollServer } from '../e2e/server.ts'
import type { BareRunc } from './bare-runc.ts'
import { type Comparison, summary } from './measure.ts'

const count = 50
const rounds = 3
/** The warm pool fills again meanwhile, and the kernel frees what has ended. */
const settleMs = 8000

/** What a sandbox that does nothing takes of the machine's memory, with the kernel's part and the server's, against a container of `sleep`. */
export async function idleBench(server: AtollServer, bare: BareRunc): Promise<Comparison> {
  const taken = { atoll: [] as number[], bare: [] as number[] }
  // The first round warms up: what the programs read stays in the page cache.
  for (let round = -1; round < rounds; round += 1) {
    const atoll = await takenByEach(
      () => startSandbox(server),
      (id) => server.json('DELETE', `/api/sandboxes/${id}`),
    )
    const other = await takenByEach(
      () => bare.start(),
      (id) => bare.remove(id),
    )
    if (round < 0) continue
    taken.atoll.push(atoll)
    taken.bare.push(other)
  }
  return {
    what: 'memory of an idle sandbox',
    against: 'a container of sleep',
    unit: 'MiB',
    rounds,
    atoll: summary(taken.atoll),
    other: summary(taken.bare),
  }
}

async function takenByEach(start: () => Promise<string>, remove: (id: string) => Promise<unknown>): Promise<number> {
  await sleep(settleMs)
  const before = availableMib()
  const ids: string[] = []
  while (ids.length < count) ids.push(await start())
  await sleep(settleMs)
  const taken = before - availableMib()
  for (const id of ids) await remove(id)
  return taken / count
}

/** proc_meminfo(5): what can be had without swapping, so without what the page cache can give back. */
function availableMib(): number {
  const kib = /^MemAvailable:\s+(\d+) kB$/m.exec(readFileSync('/proc/meminfo', 'utf8'))?.[1]
  return Number(kib) / 1024
}
