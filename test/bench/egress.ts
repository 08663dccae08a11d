import { join } from 'node:path'
import { imageDir } from '../support/images.ts'
import type { Order, Path } from './egress-client.ts'
import { EgressPlace, read, secret, spliced } from './egress-world.ts'
import { type Comparison, summary } from './measure.ts'

const rounds = 5
const transferBytes = 1024 * 1024 * 1024
const requests = 1000
const connections = 1000

/** The egress proxy against a connection past it, by the packet rules of a sandbox with a list. It needs the installed program alone. */
export async function egressBench(): Promise<Comparison[]> {
  await using place = await EgressPlace.make(join(imageDir, 'egress', 'atoll-egress'))
  const rows: Comparison[] = []
  const compare = async (what: string, against: string, name: string, measure: (path: Path) => Promise<number>) => {
    const [atoll, other]: [number[], number[]] = [[], []]
    for (let round = -1; round < rounds; round += 1) {
      const [through, past] = [await measure(place.through(name)), await measure(place.direct())]
      if (round < 0) continue
      atoll.push(through)
      other.push(past)
    }
    rows.push({ what, against, rounds, atoll: summary(atoll), other: summary(other) })
  }
  const transfer = (kind: 'download' | 'upload') => async (path: Path) => {
    const [ms = Number.NaN] = await place.order({ do: kind, path, bytes: transferBytes })
    return ms
  }
  await compare('1 GiB down, let through', '1 GiB down, past the proxy', spliced, transfer('download'))
  await compare('1 GiB down, read', '1 GiB down, past the proxy', read, transfer('download'))
  await compare('1 GiB up, let through', '1 GiB up, past the proxy', spliced, transfer('upload'))
  await compare('1 GiB up, searched for placeholders', '1 GiB up, past the proxy', secret, transfer('upload'))
  const slowest = (kept: boolean) => async (path: Path) =>
    percentile99(await place.order({ do: 'ask', path, count: requests, kept }))
  for (const [name, how] of [
    [spliced, 'let through'],
    [read, 'read'],
    [secret, 'with a secret'],
  ] as const) {
    await compare(`99th percentile of requests, ${how}`, 'past the proxy', name, slowest(true))
    await compare(`99th percentile of new connections, ${how}`, 'past the proxy', name, slowest(false))
  }
  for (const [name, how] of [
    [spliced, 'let through'],
    [read, 'read'],
  ] as const) {
    rows.push(await memoryRow(place, name, how))
  }
  return rows
}

async function memoryRow(place: EgressPlace, name: string, how: string): Promise<Comparison> {
  // What a process has used once it keeps.
  await place.restart()
  const before = await place.memory()
  const hold: Order = { do: 'hold', path: place.through(name), count: connections }
  await place.order(hold)
  const during = await place.memory()
  await place.order({ do: 'release' })
  return {
    what: `the proxy with ${connections} connections, ${how}`,
    against: 'without',
    unit: 'MiB',
    rounds: 1,
    atoll: summary([during]),
    other: summary([before]),
  }
}

function percentile99(times: readonly number[]): number {
  const sorted = times.toSorted((a, b) => a - b)
  return sorted[Math.ceil(sorted.length * 0.99) - 1] ?? Number.NaN
}
