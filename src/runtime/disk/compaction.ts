import { stat } from 'node:fs/promises'
import { CommandError, type Run } from '../command.ts'
import { readNow } from '../read-now.ts'

/** With less in all, a full pool could not be emptied: btrfs makes the first chunk of a new file system that small. */
const metadataBytesMin = 64 * 1024 ** 2
/** Chunks of data that are emptier than this are moved together, a few at a time. */
const usagePercent = 75
const chunksAtOnce = 2
/** With so little that is free for chunks of any kind, or a share of it, half-empty ones of data are wanted back. */
const freeBytesMin = 1024 ** 3
const freeShare = 1 / 10
/** Worth the work: a share of what data has, and a bound. */
const slackShare = 1 / 4
const slackBytesMax = 2 * 1024 ** 3
/** It reads and writes whole chunks, so others come first. */
const pauseMs = 10_000
const defaultFirstPauseMs = 60_000
const balanceTimeoutMs = 600_000
/** Longer than it takes to move a chunk away from the end of the device. */
const resizeTimeoutMs = 120_000
/** At the end of the pool's file, beyond its file system: lent where metadata is so full that nothing can be moved. */
export const spareBytes = 64 * 1024 ** 2

export interface CompactionOptions {
  run: Run
  mountDir: string
  imageFile: string
  /** The folder of its file system in `/sys/fs/btrfs`. */
  fileSystem: string
  log: (message: string) => void
  /** Before the first one. A start ends what an earlier server has left running on the pool, and would take it for that. Default: a minute. */
  firstPauseMs?: number | undefined
}

/**
 * Gives space that btrfs has set aside for data, and that data does not use any more, back to all uses. btrfs itself gives back chunks
 * that are empty alone: a pool that was full once stays full of half-empty ones, without room for metadata. To move data takes some metadata
 * too, so where that is full already the file system grows by the spare space of its file meanwhile, and shrinks again with the room made.
 */
export class Compaction {
  readonly #options: CompactionOptions
  #running: Promise<void> | undefined
  #notBefore: number
  #triedAt = ''
  #isClosed = false

  constructor(options: CompactionOptions) {
    this.#options = options
    this.#notBefore = performance.now() + (options.firstPauseMs ?? defaultFirstPauseMs)
  }

  /**
   * Starts what is due, in the background. `freeBytes`: of no chunk; `isShort`: the file system below has little left. It moves data into new
   * chunks before it gives back old ones, so the reserve must be there.
   */
  tend(freeBytes: number, poolBytes: number, isShort: boolean): void {
    if (this.#isClosed || this.#running !== undefined || performance.now() < this.#notBefore) return
    const filters = this.#due(freeBytes, poolBytes, isShort)
    if (filters === undefined) return
    this.#running = this.#balance(filters).finally(() => {
      this.#running = undefined
      this.#notBefore = performance.now() + pauseMs
    })
  }

  async close(): Promise<void> {
    this.#isClosed = true
    if (this.#running === undefined) return
    await this.#options.run(['btrfs', 'balance', 'cancel', this.#options.mountDir]).catch(() => undefined)
    await this.#running
  }

  #due(freeBytes: number, poolBytes: number, isShort: boolean): string | undefined {
    const data = this.#space('data')
    const metadata = this.#space('metadata')
    if (metadata.total < metadataBytesMin && freeBytes >= metadataBytesMin) return '-musage=100'
    const slack = data.total - data.used
    const isWanted = isShort || freeBytes < Math.min(freeBytesMin, poolBytes * freeShare)
    if (!isWanted || slack < Math.min(slackBytesMax, data.total * slackShare)) return undefined
    // Tried like this before, and it has given nothing back.
    const tried = `${data.used} of ${data.total}`
    if (tried === this.#triedAt) return undefined
    this.#triedAt = tried
    return `-dusage=${usagePercent},limit=${chunksAtOnce}`
  }

  #space(kind: string): { total: number; used: number } {
    const number = (name: string) =>
      Number(readNow(`${this.#options.fileSystem}/allocation/${kind}/${name}`) ?? Number.MAX_SAFE_INTEGER)
    return { total: number('total_bytes'), used: number('bytes_used') }
  }

  async #balance(filters: string): Promise<void> {
    const { log } = this.#options
    try {
      await this.#start(filters).catch(async (error: unknown) => {
        const isFull = error instanceof CommandError && /No space left/i.test(error.stderr)
        if (this.#isClosed || !isFull) throw error
        await this.#startWithSpare(filters)
      })
      log(`the disk pool was balanced (${filters})`)
    } catch (error) {
      if (this.#isClosed) return
      const why = error instanceof CommandError ? error.stderr.trim().replaceAll(/\s+/g, ' ') : String(error)
      log(`the disk pool cannot be balanced (${filters}): ${why}`)
    }
  }

  async #start(filters: string): Promise<void> {
    await this.#options.run(['btrfs', 'balance', 'start', filters, this.#options.mountDir], {
      timeoutMs: balanceTimeoutMs,
    })
  }

  async #startWithSpare(filters: string): Promise<void> {
    const { mountDir, imageFile, log } = this.#options
    await this.#options.run(['btrfs', 'filesystem', 'resize', 'max', mountDir])
    try {
      await this.#start(filters)
    } finally {
      await shrinkToSpare(imageFile, mountDir, this.#options.run).catch((error: unknown) => {
        log(`the spare space of the disk pool is not there again before its next mount: ${String(error)}`)
      })
    }
  }
}

/** Sets the file system to the size of its file without the spare space. Throws `CommandError` where what lies there finds no other room. */
export async function shrinkToSpare(imageFile: string, mountDir: string, run: Run): Promise<void> {
  const { size } = await stat(imageFile)
  await run(['btrfs', 'filesystem', 'resize', String(size - spareBytes), mountDir], { timeoutMs: resizeTimeoutMs })
}
