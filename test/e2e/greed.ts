import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import type { Tenant } from './tenant.ts'

/** What an organisation can take too much of. */
export const axes = ['requests', 'creates', 'exec', 'cpu', 'disk', 'network', 'streams', 'builds', 'log'] as const
export type Axis = (typeof axes)[number]

/** Answers by axis. `failed` has statuses of 500 and more, and broken connections. */
export type Answers = Record<string, { served: number; refused: number; failed: number }>

/** What the process of a greedy client is given. */
export interface GreedyOrder {
  url: string
  key: string
  axes: readonly Axis[]
}

/**
 * An organisation that takes as much as it gets, whatever it is told, from a process of its own. That has the lowest priority: it stands for a
 * client that is elsewhere.
 */
export class Greed {
  readonly #child: ChildProcess

  private constructor(child: ChildProcess) {
    this.#child = child
  }

  /** Resolves when it has had an answer on each axis. */
  static async begin({ server, key }: Tenant, of: readonly Axis[]): Promise<Greed> {
    const child = fork(`${import.meta.dirname}/greedy-client.ts`)
    const order: GreedyOrder = { url: server.url, key, axes: of }
    child.send(order)
    await Promise.race([once(child, 'message'), ended(child)])
    return new Greed(child)
  }

  /** Returns when it has removed what it had. */
  async end(): Promise<Answers> {
    const answered = once(this.#child, 'message')
    this.#child.send('end')
    const [answers] = (await Promise.race([answered, ended(this.#child)])) as [Answers]
    const exited = once(this.#child, 'exit')
    this.#child.disconnect()
    await exited
    return answers
  }
}

async function ended(child: ChildProcess): Promise<never> {
  const [status] = (await once(child, 'exit')) as [number | null]
  throw new Error(`the greedy client ended with ${status}`)
}
