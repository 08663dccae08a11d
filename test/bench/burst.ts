import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { startSandbox } from '../e2e/sandbox-calls.ts'
import type { AtollServer } from '../e2e/server.ts'
import { BareRunc } from './bare-runc.ts'
import { idleBench } from './idle.ts'
import { type Comparison, median, summary } from './measure.ts'

const burst = 100
const rounds = 2
/** Time in which nothing is asked for, so that what a burst has left to do does not count for the next. */
const pauseMs = 3000
const cycles = 20
/** A tick of /proc/stat. */
const tickMs = 10

interface Machines {
  start(): Promise<string>
  /** Runs `node -v`. */
  use(id: string): Promise<unknown>
  remove(id: string): Promise<unknown>
}

interface Burst {
  allMs: number
  medianMs: number
  firstMs: number
}

/** A hundred at once, each up to the answer of its first program, against as many runcs at once; and the processor time of one. */
export async function burstBench(server: AtollServer): Promise<Comparison[]> {
  await using bare = new BareRunc()
  const sides: Record<'atoll' | 'bare', Machines> = {
    atoll: {
      start: () => startSandbox(server),
      use: (id) => server.json('POST', `/api/sandboxes/${id}/exec/run`, { cmd: 'node', args: ['-v'] }),
      remove: (id) => server.json('DELETE', `/api/sandboxes/${id}`),
    },
    bare: { start: () => bare.start(), use: (id) => bare.exec(id, 'node', '-v'), remove: (id) => bare.remove(id) },
  }
  const bursts: Record<'atoll' | 'bare', Burst[]> = { atoll: [], bare: [] }
  const spent: Record<'atoll' | 'bare', number[]> = { atoll: [], bare: [] }
  const delays: Record<'burst' | 'idle', number[]> = { burst: [], idle: [] }
  for (let round = 0; round < rounds; round += 1) {
    for (const side of ['atoll', 'bare'] as const) {
      await loopDelay(server)
      await sleep(pauseMs)
      if (side === 'atoll') delays.idle.push(await loopDelay(server))
      bursts[side].push(await burstOf(sides[side]))
      if (side === 'atoll') delays.burst.push(await loopDelay(server))
      await sleep(pauseMs)
      spent[side].push(await processorTime(sides[side]))
    }
  }
  const row = (what: string, values: (side: 'atoll' | 'bare') => number[]): Comparison => ({
    what,
    against: 'runc run + runc exec',
    rounds,
    atoll: summary(values('atoll')),
    other: summary(values('bare')),
  })
  return [
    row(`${burst} at once, up to the last answer of node -v`, (side) => bursts[side].map(({ allMs }) => allMs)),
    row(`${burst} at once, the median one`, (side) => bursts[side].map(({ medianMs }) => medianMs)),
    row(`${burst} at once, the median of the first ten`, (side) => bursts[side].map(({ firstMs }) => firstMs)),
    row('processor time of a create and a delete', (side) => spent[side]),
    {
      what: 'delay of the event loop during a burst, 99th percentile',
      against: 'while nothing is asked for',
      rounds,
      atoll: summary(delays.burst),
      other: summary(delays.idle),
    },
    await idleBench(server, bare),
  ]
}

/** Since the last call. An idle loop has some 10 ms: the interval at which it is measured. */
async function loopDelay(server: AtollServer): Promise<number> {
  const metrics = await (await server.fetch('/metrics')).text()
  return Number(/^nodejs_eventloop_lag_p99_seconds (\S+)$/m.exec(metrics)?.[1]) * 1000
}

async function burstOf({ start, use, remove }: Machines): Promise<Burst> {
  const begin = performance.now()
  const ids: string[] = []
  const one = async () => {
    const id = await start()
    ids.push(id)
    await use(id)
    return performance.now() - begin
  }
  const times = (await Promise.all(Array.from({ length: burst }, one))).toSorted((a, b) => a - b)
  await Promise.all(ids.map(remove))
  return { allMs: times.at(-1) ?? 0, medianMs: median(times), firstMs: median(times.slice(0, 10)) }
}

/** Of the whole machine, with what goes on in the background. */
async function processorTime({ start, remove }: Machines): Promise<number> {
  const before = busyTicks()
  for (let cycle = 0; cycle < cycles; cycle += 1) await remove(await start())
  await sleep(pauseMs)
  return ((busyTicks() - before) * tickMs) / cycles
}

/** proc_stat(5): user, nice, system, then idle and iowait, then irq and softirq. */
function busyTicks(): number {
  const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0] = readFileSync('/proc/stat', 'utf8')
    .split('\n', 1)[0]!
    .split(/\s+/)
    .slice(1)
    .map(Number)
  return user + nice + system + irq + softirq
}
