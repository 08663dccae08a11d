import type { Log } from '../lib/log.ts'
import type { CheckpointRecords } from './checkpoint-records.ts'
import type { SandboxStore } from './ports/sandbox-store.ts'

/** Checkpoints of one query. */
const atOnceMax = 100

interface ExpiryContext {
  store: Pick<SandboxStore, 'expiredCheckpointIds'>
  records: Pick<CheckpointRecords, 'removeExpired'>
  log: Log
}

/**
 * Deletes checkpoints after their time, but none that a start or restore uses, nor those that the store leaves out because rows need them.
 * A use that comes during the deletion waits, and then finds no checkpoint.
 */
export class CheckpointExpiry {
  readonly #context: ExpiryContext
  /** How many use each checkpoint. */
  readonly #uses = new Map<string, number>()
  readonly #removals = new Map<string, Promise<unknown>>()

  constructor(context: ExpiryContext) {
    this.#context = context
  }

  async using<Result>(checkpointId: string, work: () => Promise<Result>): Promise<Result> {
    await this.#removals.get(checkpointId)
    this.#count(checkpointId, 1)
    try {
      return await work()
    } finally {
      this.#count(checkpointId, -1)
    }
  }

  /** Deletes those whose time is over. What is in use, or cannot be deleted, is left to the next call. */
  async deleteExpired(signal: AbortSignal): Promise<void> {
    const { store, records, log } = this.#context
    const now = new Date()
    let after: string | undefined
    do {
      const ids = await store.expiredCheckpointIds({ before: now, after: after ?? '', limit: atOnceMax })
      for (const id of ids) {
        if (signal.aborted) return
        if (this.#uses.has(id)) continue
        const removal = records
          .removeExpired(id, now)
          .catch((error: unknown) => log.warn({ err: error, checkpointId: id }, 'an expired checkpoint stays'))
          .finally(() => this.#removals.delete(id))
        this.#removals.set(id, removal)
        await removal
      }
      after = ids.length === atOnceMax ? ids.at(-1) : undefined
    } while (after !== undefined)
  }

  #count(checkpointId: string, step: 1 | -1): void {
    const uses = (this.#uses.get(checkpointId) ?? 0) + step
    if (uses > 0) this.#uses.set(checkpointId, uses)
    else this.#uses.delete(checkpointId)
  }
}
