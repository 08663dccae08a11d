import assert from 'node:assert/strict'
import { test } from 'node:test'
import { silentLog } from '../lib/log.ts'
import { FairShares, type OrganisationShare } from './fair-shares.ts'
import type { Consumed, SandboxShare } from './ports/runtime-driver.ts'

const unlimited = 1024 ** 4
const usual: OrganisationShare = {
  weight: 100,
  diskBytesPerSecondMax: unlimited,
  networkBytesPerSecondMax: unlimited,
}

/** Sandboxes are named by their organisation and a number: `a1`. */
class World {
  readonly consumed = new Map<string, Consumed>()
  readonly limits = new Map<string, OrganisationShare>()
  shares: ReadonlyMap<string, SandboxShare> = new Map()
  nowMs = 0
  readonly fair = new FairShares({
    driver: {
      shares: {
        consumed: (id) => this.consumed.get(id),
        set: async (shares) => {
          this.shares = shares
        },
      },
    },
    running: () => [...this.consumed.keys()],
    orgOf: async (id) => id.slice(0, 1),
    shareOf: (orgId) => this.limits.get(orgId) ?? usual,
    log: silentLog,
    now: () => this.nowMs,
  })

  constructor(...ids: string[]) {
    for (const id of ids) this.consumed.set(id, { cpuUs: 0, diskBytes: 0 })
  }

  /** A second passes, in which these use a whole processor, and these the disk. */
  async second(ofCpu: string[], ofDisk: string[] = []): Promise<void> {
    this.nowMs += 1000
    for (const [id, { cpuUs, diskBytes }] of this.consumed) {
      const next = {
        cpuUs: cpuUs + (ofCpu.includes(id) ? 1_000_000 : 1000),
        diskBytes: diskBytes + (ofDisk.includes(id) ? 1_000_000 : 0),
      }
      this.consumed.set(id, next)
    }
    await this.fair.look()
  }

  weightsOf(...ids: string[]): (number | undefined)[] {
    return ids.map((id) => this.shares.get(id)?.weight)
  }
}

test('fair shares: the busy sandboxes of an organisation weigh as much together as the one of another', async () => {
  const world = new World('a1', 'a2', 'a3', 'a4', 'b1')
  await world.second([])
  await world.second(['a1', 'a2', 'a3', 'a4', 'b1'])
  assert.deepEqual(world.weightsOf('a1', 'a2', 'a3', 'a4', 'b1'), [250, 250, 250, 250, 1000])
})

test('fair shares: idle sandboxes take nothing from busy ones, and would get their part at once', async () => {
  const world = new World('a1', 'a2', 'a3', 'a4')
  await world.second([])
  await world.second(['a1'])
  assert.deepEqual(world.weightsOf('a1', 'a2', 'a3', 'a4'), [1000, 500, 500, 500])
  await world.second([])
  assert.deepEqual(world.weightsOf('a1', 'a2'), [1000, 1000])
})

test('fair shares: organisations weigh as their limits say', async () => {
  const world = new World('a1', 'b1', 'b2')
  world.limits.set('b', { ...usual, weight: 300 })
  await world.second([])
  await world.second(['a1', 'b1', 'b2'])
  assert.deepEqual(world.weightsOf('a1', 'b1', 'b2'), [1000, 1500, 1500])
})

test('fair shares: a rate of the disk is divided by those that use the disk', async () => {
  const world = new World('a1', 'a2', 'a3', 'b1')
  world.limits.set('a', { ...usual, diskBytesPerSecondMax: 60_000_000 })
  await world.second([])
  await world.second([], ['a1', 'a2'])
  const rates = ['a1', 'a2', 'a3', 'b1'].map((id) => world.shares.get(id)?.diskBytesPerSecond)
  assert.deepEqual(rates, [30_000_000, 30_000_000, 20_000_000, unlimited])
})

test('fair shares: sandboxes of an organisation are in one group of the network, if it has a limit', async () => {
  const world = new World('a1', 'a2', 'b1')
  world.limits.set('a', { ...usual, networkBytesPerSecondMax: 1_000_000 })
  await world.second([])
  const group = { group: 'a', bytesPerSecond: 1_000_000 }
  const networks = ['a1', 'a2', 'b1'].map((id) => world.shares.get(id)?.network)
  assert.deepEqual(networks, [group, group, undefined])
})

test('fair shares: a sandbox that was started anew, with lower counters, counts as idle', async () => {
  const world = new World('a1', 'a2')
  await world.second([])
  await world.second(['a1', 'a2'])
  world.consumed.set('a2', { cpuUs: 0, diskBytes: 0 })
  await world.second(['a1'])
  assert.deepEqual(world.weightsOf('a1', 'a2'), [1000, 500])
})
