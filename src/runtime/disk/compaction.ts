import { stat } from 'node:fs/promises'
import { CommandError, type Run } from '../command.ts'
import { readNow } from '../read-now.ts'

/** Least metadata of a pool. With less, as in the first chunk of a new file system, a full pool could not be emptied. */
const metadataBytesMin = 64 * 1024 ** 2
/** Data chunks with less use than this are merged, a few at a time. */
const usagePercent = 75
const chunksAtOnce = 2
/** Half-empty data chunks are wanted back when less than this, or this share of the pool, is free for chunks of any kind. */
const freeBytesMin = 1024 ** 3
const freeShare = 1 / 10
/** The work is worth it with so much unused space in data chunks: a share of them, at most a bound. */
const slackShare = 1 / 4
const slackBytesMax = 2 * 1024 ** 3
/** Pause between two balances, which read and write whole chunks: others come first. */
const pauseMs = 10_000
const defaultFirstPauseMs = 60_000
const balanceTimeoutMs = 600_000
/** Longer than it takes to move a chunk away from the end of the device. */
const resizeTimeoutMs = 120_000
/** Space at the end of the pool's file, beyond its file system: lent when metadata is so full that nothing can be moved. */
export const spareBytes = 64 * 1024 ** 2

export interface CompactionOptions {
  run: Run
  mountDir: string
  imageFile: string
  /** The folder in `/sys/fs/btrfs` of the pool. */
  fileSystem: string
  log: (message: string) => void
  /** Pause before the first balance: a start ends programs that an earlier server left on the pool, and would end it too. Default: a minute. */
  firstPauseMs?: number | undefined
}

/**
 * Frees space that btrfs has allocated to data and that data does not use any more. btrfs itself frees only empty chunks: a pool that was
 * full once stays full of half-empty ones, without room for metadata. To move data takes some metadata too. Where metadata is full already
 * the file system therefore grows by the spare space of its file, and shrinks again into the room made.
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
   * Starts what is due, in the background. `freeBytes`: bytes of no chunk; `isShort`: the file system below has little left. The reserve
   * must be there, as data moves into new chunks before old ones are freed.
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
    // The same state was balanced before, and nothing was freed.
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

/** Shrinks the file system to its file without the spare space. Throws `CommandError` when the data there finds no other room. */
export async function shrinkToSpare(imageFile: string, mountDir: string, run: Run): Promise<void> {
  const { size } = await stat(imageFile)
  await run(['btrfs', 'filesystem', 'resize', String(size - spareBytes), mountDir], { timeoutMs: resizeTimeoutMs })
}
