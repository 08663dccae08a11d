import { setTimeout as sleep } from 'node:timers/promises'
import type { AtollServer } from '../server.ts'
import type { Host, HostProcess } from '../host.ts'
import type { Random } from './random.ts'

const pauseMsMin = 2000
const pauseMsMax = 4000
const downMsMax = 1500

const weights = { agent: 5, sandbox: 2, server: 2, 'server and agent': 1, 'server and sandbox': 1 }

export type Victim = keyof typeof weights

/** Kills the server, agents and whole sandboxes with SIGKILL, one every few seconds; the server is started again. */
export class Killer {
  /** What was killed, and when, in words. */
  readonly log: string[] = []
  readonly counts: Record<Victim, number> = {
    agent: 0,
    sandbox: 0,
    server: 0,
    'server and agent': 0,
    'server and sandbox': 0,
  }
  readonly #server: AtollServer
  readonly #host: Host
  readonly #random: Random

  constructor(server: AtollServer, host: Host, random: Random) {
    this.#server = server
    this.#host = host
    this.#random = random
  }

  /** Until `signal` aborts; returns with the server running. */
  async run(signal: AbortSignal): Promise<void> {
    for (;;) {
      await sleep(this.#random.between(pauseMsMin, pauseMsMax), undefined, { signal }).catch(() => {})
      if (signal.aborted) return
      await this.#kill(this.#random.weighed(weights))
    }
  }

  async #kill(victim: Victim): Promise<void> {
    const what = { agent: () => this.#host.agents(), sandbox: () => this.#host.guests() }
    if (victim === 'agent' || victim === 'sandbox') {
      if (await this.#killOne(victim, await what[victim]())) this.counts[victim] += 1
      return
    }
    this.#note('server')
    await this.#server.kill()
    this.counts[victim] += 1
    if (victim === 'server and agent') await this.#killOne('agent', await what.agent())
    if (victim === 'server and sandbox') await this.#killOne('sandbox', await what.sandbox())
    await sleep(this.#random.between(0, downMsMax))
    await this.#server.restart()
    this.#note('(the server is back)')
  }

  async #killOne(kind: 'agent' | 'sandbox', processes: readonly HostProcess[]): Promise<boolean> {
    const [first, ...rest] = processes
    if (!first) return false
    const { pid, sandboxId } = this.#random.pick([first, ...rest])
    this.#note(`${kind} of ${sandboxId}`)
    try {
      process.kill(pid, 'SIGKILL')
      return true
    } catch {
      // It has just ended by itself.
      return false
    }
  }

  #note(text: string): void {
    this.log.push(`${new Date().toISOString()} killed ${text}`)
  }
}
