/** Cuts of the power under load, and what they have left. */
import { setTimeout as sleep } from 'node:timers/promises'
import { Random } from '../e2e/soak/random.ts'
import type { CutKind } from '../support/volatile-disk.ts'
import { Ledger } from './ledger.ts'
import { Load } from './load.ts'
import type { Machine } from './machine.ts'
import { verify } from './verify.ts'

/** Changes before a cut. */
const [changesMin, changesMax] = [10, 50]
/** Between those and the cut: it comes in the middle of what is written. */
const writesMax = 200

/** The power of a machine is lost again and again; what one cut has left is there, or is lost, for the next ones. */
export class Trial {
  readonly #machine: Machine
  readonly #seed: number
  readonly #ledger = new Ledger()
  #round = 0

  constructor(machine: Machine, seed: number) {
    this.#machine = machine
    this.#seed = seed
  }

  /** Loads the machine, cuts its power and boots it. Returns what happened in words, and losses that nothing tells. */
  async cut(): Promise<{ words: string; faults: string[] }> {
    const round = (this.#round += 1)
    const random = new Random(this.#seed, `round ${round}`)
    const kind = random.pick<CutKind>(['none', 'prefix', 'subset', 'subset'])
    const changes = random.between(changesMin, changesMax)
    const [ledger, machine] = [this.#ledger, this.#machine]
    const { unflushed, kept, writes, flushes } = await this.#cutUnderLoad(kind, changes, random.between(0, writesMax))
    const acknowledged = ledger.takeCounts()
    await machine.boot()
    const { faults, told } = await verify(machine.server, ledger)
    const disk = `${kind}, ${kept} of ${unflushed} unflushed blocks left, after ${writes} writes and ${flushes} flushes`
    return { words: `cut ${round}: ${disk}; acknowledged ${shown(acknowledged)}; told as lost ${shown(told)}`, faults }
  }

  /** The same with nothing left that was not flushed. Returns what is missed, a refusal to start included. */
  async faultsOfACut(): Promise<string> {
    await this.#cutUnderLoad('none', changesMin, 0)
    this.#ledger.takeCounts()
    try {
      await this.#machine.boot()
      return (await verify(this.#machine.server, this.#ledger)).faults.join('\n')
    } catch (error) {
      return String(error)
    }
  }

  async #cutUnderLoad(kind: CutKind, changes: number, writes: number) {
    const [ledger, round, seed] = [this.#ledger, this.#round, this.#seed]
    const load = new Load(this.#machine.server, ledger, (name) => new Random(seed, `${round} ${name}`), round)
    while (ledger.changes < changes) await sleep(10)
    const cut = await this.#machine.cut(kind, seed + round, writes, () => ledger.close())
    await load.end()
    return cut
  }
}

function shown(counts: Map<string, number>): string {
  return [...counts].map(([kind, count]) => `${kind} ${count}`).join(', ') || 'nothing'
}
