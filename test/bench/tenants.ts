import { setTimeout as sleep } from 'node:timers/promises'
import { type Axis, axes, Greed } from '../e2e/greed.ts'
import { askPreview } from '../e2e/preview.ts'
import { AtollServer } from '../e2e/server.ts'
import { operatorKey, Tenant } from '../e2e/tenant.ts'
import { type Comparison, summary, timed } from './measure.ts'

const rounds = 60
const creates = 20
const pauseMs = 12
/** Until shares follow what is busy, and caches are what they are under this load. */
const settleMs = 3000

/**
 * The calls of one organisation while another takes all it gets, against the same calls alone before and after. The server has the limits of
 * an installation as shipped.
 */
export async function tenantsBench(): Promise<Comparison[]> {
  await using server = await AtollServer.start({
    env: { ATOLL_OPERATOR_KEY: operatorKey, ATOLL_LOG_LEVEL: 'warn', ATOLL_WARM_POOL: '' },
  })
  await using modest = await Tenant.make(server, 'modest')
  await using greedy = await Tenant.make(server, 'greedy')
  const sandboxId = await modest.sandbox()
  const host = await modest.serve(sandboxId)
  const times = async (count: number, call: () => Promise<unknown>): Promise<number[]> => {
    const all: number[] = []
    for (let round = 0; round < count; round += 1) {
      all.push(await timed(call))
      // A key may ask a hundred times each second.
      await sleep(pauseMs)
    }
    return all
  }
  const measure = async (): Promise<Map<string, number[]>> => {
    const made: string[] = []
    const measured = new Map([
      ['read', await times(rounds, () => modest.json('GET', `/api/sandboxes/${sandboxId}`))],
      ['exec', await times(rounds, () => modest.run(sandboxId, 'true'))],
      ['preview', await times(rounds, () => askPreview(server, host))],
      ['create', await times(creates, async () => made.push(await modest.sandbox()))],
    ])
    await Promise.all(made.map((id) => modest.delete(id)))
    return measured
  }
  await measure()
  const rows: Comparison[] = []
  for (const of of [...axes.map((axis) => [axis] as Axis[]), [...axes]]) {
    const before = await measure()
    const greed = await Greed.begin(greedy, of)
    await sleep(settleMs)
    const during = await measure()
    const answers = await greed.end()
    await sleep(settleMs)
    const after = await measure()
    const name = of.length === 1 ? of[0] : 'all at once'
    console.error(`bench: greed for ${name}: ${JSON.stringify(answers)}`)
    for (const [what, beside] of during) {
      const alone = [before, after].flatMap((half) => half.get(what) ?? [])
      rows.push({
        ...{ what: `${what} beside greed for ${name}`, against: 'alone', rounds: beside.length },
        ...{ atoll: summary(beside), other: summary(alone) },
      })
    }
  }
  return rows
}
