import { readdirSync } from 'node:fs'
import { readNow } from '../read-now.ts'

/** Fields of `stat` of a block device (Documentation/block/stat.rst): completed reads, writes, discards and flushes, and what is in flight. */
const completedFields = [0, 4, 11, 15]
const inFlightField = 8

/**
 * Since when the disk below a btrfs has had something to do and has completed nothing. It looks at counters of the kernel, so it waits
 * for no disk, and a disk that is only slow goes on counting.
 */
export class Stall {
  /** Its folder in `/sys/fs/btrfs`. */
  readonly #fileSystem: string
  readonly #now: () => number
  #completed = -1
  #sinceMs: number | undefined

  constructor(fileSystem: string, now: () => number = () => performance.now()) {
    this.#fileSystem = fileSystem
    this.#now = now
  }

  /** To be called again and again: how long that has been so, in milliseconds; 0 when it is not. */
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

  /** A flush is not in flight in the eyes of the kernel, but a commit waits for it. Older kernels do not tell. */
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
