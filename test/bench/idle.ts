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

/** What a sandbox that does nothing takes of the machine's memory, with the kernel's part, against a container of `sleep`. */
export async function idleBench(server: AtollServer, bare: BareRunc): Promise<Comparison> {
  const taken = { atoll: [] as number[], bare: [] as number[] }
  // The first round warms up: what the programs read stays in the page cache.
  for (let round = -1; round < rounds; round += 1) {
    const atoll = await takenByEach(
      server,
      () => startSandbox(server),
      (id) => server.json('DELETE', `/api/sandboxes/${id}`),
    )
    const other = await takenByEach(
      server,
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

async function takenByEach(
  server: AtollServer,
  start: () => Promise<string>,
  remove: (id: string) => Promise<unknown>,
): Promise<number> {
  await sleep(settleMs)
  const before = heldMib(server)
  const ids: string[] = []
  while (ids.length < count) ids.push(await start())
  await sleep(settleMs)
  const taken = heldMib(server) - before
  for (const id of ids) await remove(id)
  return taken / count
}

/**
 * Memory that the kernel cannot take back (proc_meminfo(5)), without that of the server and of this process: their heaps grow and shrink
 * by more. Not `MemAvailable`, which what the page cache keeps, and what a hypervisor takes, changes by more too.
 */
function heldMib({ pid }: AtollServer): number {
  const held = kibIn('/proc/meminfo', ['AnonPages', 'Shmem', 'SUnreclaim', 'KernelStack', 'PageTables', 'Percpu'])
  const heaps = ['self', pid].map((process) => kibIn(`/proc/${process}/status`, ['RssAnon']))
  return (held - heaps.reduce((sum, kib) => sum + kib)) / 1024
}

/** The sum of some fields. */
function kibIn(file: string, fields: readonly string[]): number {
  const lines = readFileSync(file, 'utf8').split('\n')
  const found = lines.map((line) => /^(\w+):\s+(\d+) kB$/.exec(line)).filter((line) => fields.includes(line?.[1] ?? ''))
  return found.reduce((sum, line) => sum + Number(line?.[2]), 0)
}
