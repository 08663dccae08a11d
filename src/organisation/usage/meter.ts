import { Semaphore } from '../../lib/async/semaphore.ts'
import { singleFlight } from '../../lib/async/single-flight.ts'
import type { Log } from '../../lib/log.ts'
import type { UsageStore } from './store.ts'
import type { Reading } from './usage.ts'

const flushMs = 60_000
/** Machines of one statement. */
const readingsAtOnce = 500

/**
 * Counts what machines use: their last readings are written each minute, each with what its counters have risen by. A reading that a killed
 * server has not written is contained in the next one, since the counters are those of the machine.
 *
 *     closed ── open ──► open ── close ──► closed
 */
export class Meter {
  readonly #store: Pick<UsageStore, 'countReadings'>
  readonly #log: Log
  /** By sandbox, the newest. */
  readonly #pending = new Map<string, Reading>()
  /** Two transactions that count the same machine would both see the reading before. */
  readonly #writing = new Semaphore({ permits: 1 })
  #timer: NodeJS.Timeout | undefined
  readonly #flushOnce = singleFlight(() => this.#flush())

  constructor(store: Pick<UsageStore, 'countReadings'>, log: Log) {
    this.#store = store
    this.#log = log
  }

  open(): void {
    this.#timer = setInterval(() => void this.flush(), flushMs).unref()
  }

  async close(): Promise<void> {
    clearInterval(this.#timer)
    await this.flush()
  }

  note(reading: Reading): void {
    this.#pending.set(reading.sandboxId, reading)
  }

  /** Writes a reading at once: the machine ends, and its counters with it. Never throws. */
  async noteLast(reading: Reading): Promise<void> {
    this.#pending.delete(reading.sandboxId)
    await this.#write([reading])
  }

  /** Never throws: what could not be written is written by the next. */
  async flush(): Promise<void> {
    await this.#flushOnce()
  }

  async #flush(): Promise<void> {
    const readings = [...this.#pending.values()]
    this.#pending.clear()
    for (let start = 0; start < readings.length; start += readingsAtOnce) {
      await this.#write(readings.slice(start, start + readingsAtOnce))
    }
  }

  async #write(readings: readonly Reading[]): Promise<void> {
    try {
      await this.#writing.use(() => this.#store.countReadings(readings))
    } catch (error) {
      // The counters go on: the next reading of each has all of it, unless its machine has ended.
      for (const reading of readings) {
        if (!this.#pending.has(reading.sandboxId)) this.#pending.set(reading.sandboxId, reading)
      }
      this.#log.warn({ err: error, count: readings.length }, 'the usage of sandboxes could not be written')
    }
  }
}
