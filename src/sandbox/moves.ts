import { Semaphore } from '../lib/async/semaphore.ts'
import { KeyedMutex } from '../lib/async/mutex.ts'
import { type Sandbox, demandAlive } from './sandbox.ts'
import { serverStops } from './starts.ts'

/**
 * The order of moves. Those of one sandbox come one after the other: each has its lock. What is much work for the driver has
 * one of the turns of its organisation besides.
 *
 * | move               | waits for a turn | operations on the sandbox       | what cuts its wait for a turn off |
 * |--------------------|------------------|---------------------------------|-----------------------------------|
 * | create, wake       | with the lock    | wait, from the call on          | a deletion, the end of the server |
 * | hibernate, replace | without the lock | wait, once it has turn and lock | the end of the server             |
 * | checkpoint         | with the lock    | go on                           | the end of the server             |
 * | resize             | not at all       | go on                           |                                   |
 * | delete, exit       | not at all       | wait, and find what is recorded |                                   |
 *
 * So who holds a lock may wait for a turn, and nobody who has a turn waits for a lock: that would be a deadlock.
 */
export class Moves {
  readonly turns: Semaphore
  readonly #locks = new KeyedMutex()
  /** Sandboxes that are in a move right now. */
  readonly #moving = new Set<string>()
  readonly #closing = new AbortController()

  /** `turnsAtOnce` is for each organisation. */
  constructor(turnsAtOnce: number) {
    this.turns = new Semaphore({ permitsPerKey: turnsAtOnce })
  }

  /** Aborts when the server ends. */
  get closing(): AbortSignal {
    return this.#closing.signal
  }

  async run<Result>(sandboxId: string, work: () => Promise<Result>): Promise<Result> {
    return await this.#locks.run(sandboxId, async () => {
      this.#moving.add(sandboxId)
      try {
        return await work()
      } finally {
        this.#moving.delete(sandboxId)
      }
    })
  }

  /** A move that has its turn before its lock: while it waits, the sandbox can be used and deleted. */
  async runInTurn<Result>(sandbox: Sandbox, work: () => Promise<Result>): Promise<Result> {
    demandAlive(sandbox)
    for (;;) {
      const release = await this.turns.acquire({ key: sandbox.orgId, signal: this.closing })
      try {
        this.closing.throwIfAborted()
        if (!this.#locks.isLocked(sandbox.id)) return await this.run(sandbox.id, work)
      } finally {
        release()
      }
      await this.#locks.settled(sandbox.id)
    }
  }

  /** Keeps the sandbox from moving during work that holds up no operation. */
  async still<Result>(sandboxId: string, work: () => Promise<Result>): Promise<Result> {
    return await this.#locks.run(sandboxId, work)
  }

  /** Resolves when a move under way has ended, with those that wait for it. */
  async settled(sandboxId: string): Promise<void> {
    if (this.#moving.has(sandboxId)) await this.#locks.settled(sandboxId)
  }

  /** Resolves when all moves have ended. Those that wait for a turn without a signal of their own give up. */
  async close(): Promise<void> {
    this.#closing.abort(serverStops())
    await this.#locks.allSettled()
  }
}
