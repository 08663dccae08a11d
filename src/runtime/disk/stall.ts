import { readdirSync } from 'node:fs'
import { readNow } from '../read-now.ts'

/** Fields of `stat` of a block device (Documentation/block/stat.rst): completed reads, writes, discards and flushes, and what is in flight. */
const completedFields = [0, 4, 11, 15]
const inFlightField = 8

/**
 * Finds how long the disk below a btrfs has had work and has completed nothing. It reads counters of the kernel, so it waits for no disk,
 * and does not mistake a slow one.
 */
export class Stall {
  /** The folder of the btrfs in `/sys/fs/btrfs`. */
  readonly #fileSystem: string
  readonly #now: () => number
  #completed = -1
  #sinceMs: number | undefined

  constructor(fileSystem: string, now: () => number = () => performance.now()) {
    this.#fileSystem = fileSystem
    this.#now = now
  }

  /** How long the stall has lasted, in milliseconds; 0 without one. To be called at short intervals. */
  look(): number {
    let completed = 0
    let isBusy = this.#isCommitting()
    for (const device of this.#devices()) {
      const fields = (readNow(`${this.#fileSystem}/devices/${device}/stat`) ?? '').trim().split(/\s+/).map(Number)
      for (const field of completedFields) completed += fields[field] ?? 0
      isBusy ||= (fields[inFlightField] ?? 0) > 0
    }
    const now = this.#now()
    const isStalled = isBusy && completed === this.#completed
    this.#completed = completed
    // A look after a long time without one says nothing about that time.
    this.#sinceMs = isStalled ? (this.#sinceMs ?? now) : isBusy ? now : undefined
    return this.#sinceMs === undefined ? 0 : now - this.#sinceMs
  }

  /** Whether btrfs commits: a commit waits for a flush, which the kernel does not count as in flight. Older kernels do not tell. */
  #isCommitting(): boolean {
    const [, duration] = /^cur_commit_ms (\d+)$/m.exec(readNow(`${this.#fileSystem}/commit_stats`) ?? '') ?? []
    return Number(duration ?? 0) > 0
  }

  #devices(): string[] {
    try {
      return readdirSync(`${this.#fileSystem}/devices`)
    } catch {
      return []
    }
  }
}
