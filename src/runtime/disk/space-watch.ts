import { statfs } from 'node:fs/promises'
import { dirname } from 'node:path'
import { assertDiskTakesData, type DiskReport } from '../../sandbox/ports/runtime-driver.ts'
import type { HostTool } from '../hostd/index.ts'
import { Compaction } from './compaction.ts'
import { isReadOnly, readOnlyReason } from './mounts.ts'
import { deviceErrors, isUnsupported, Reserve, stepBytes } from './reserve.ts'
import { Stall } from './stall.ts'

/** Interval of the looks: long with much space, short with little, as if space could shrink by so much a second. */
const lookMsMax = 1_000
const lookMsMin = 100
const shrinkBytesPerSecond = 8 * 1024 ** 3
/** A disk fails when it does not tell its space, or completes no request, for this long. */
const answerMs = 30_000
const noAnswerReason = `the disk has not answered for ${answerMs / 1000} seconds`
/** Space is low below this share of the file system below the pool, or below a bound; see {@link lowBytesOf}. */
const lowShare = 1 / 16
const lowBytesMax = 1024 ** 3
/** The same for the pool itself. */
const poolLowShare = 1 / 64
const poolLowBytesMax = 128 * 1024 ** 2

export interface SpaceWatchOptions {
  hostd: HostTool
  imageFile: string
  mountDir: string
  log: (message: string) => void
}

export interface Freezer {
  /** Freezes all sandboxes. Called at each look while the disk is full; harmless for frozen ones. */
  freeze: () => Promise<void>
  /** Thaws all sandboxes. Returns earlier, as it does not wait for work on a sandbox. */
  thaw: () => void
}

/**
 * Watches the space of the pool and of the file system below it, on which its sparse file grows.
 *
 *     ok ◄──► low        little is left: what makes more data is refused
 *     low ◄──► full      the reserve is used up: sandboxes are frozen before a write that btrfs has taken finds no block
 *     any ──► failing    btrfs is read-only after an error of the disk, or the disk does not answer
 */
export class SpaceWatch {
  readonly #options: SpaceWatchOptions
  #freezer: Freezer | undefined
  #reserve: Reserve | undefined
  #compaction: Compaction | undefined
  #stall: Stall | undefined
  #fileSystem = ''
  #hasReserve = true
  /** The last logged reason why the reserve cannot be extended. */
  #reserveFault = ''
  #timer: NodeJS.Timeout | undefined
  #isOpen = false
  #looking: Promise<void> = Promise.resolve()
  /** Time since the last look that ended. A timer adds it up, so that a pause of this process or the machine does not count. */
  #silentMs = 0
  #silence: NodeJS.Timeout | undefined
  #report: DiskReport = { state: 'ok', poolBytes: 0, availableBytes: 0, belowBytes: 0, reserveBytes: 0, errors: {} }
  #errorsBefore: Record<string, number> = {}

  constructor(options: SpaceWatchOptions) {
    this.#options = options
  }

  /** Whether sandboxes are frozen now. */
  get isFull(): boolean {
    return this.#report.state === 'full'
  }

  get report(): DiskReport {
    if (!this.#isOpen || this.#silentMs < answerMs) return this.#report
    return { ...this.#report, state: 'failing', reason: noAnswerReason }
  }

  /** For operations that write data. Throws `no_capacity` with the reason while the disk takes none. */
  assertTakesData(): void {
    assertDiskTakesData({ disk: () => this.report })
  }

  /** For operations that write to free space. Throws `no_capacity` while sandboxes are frozen or cannot write, not while space is low. */
  assertRuns(): void {
    if (this.report.state !== 'low') this.assertTakesData()
  }

  /** Starts the watch of a mounted pool. Returns after the first look, and throws for no fault of the disk. */
  async open(fileSystem: string, freezer: Freezer): Promise<void> {
    this.#freezer = freezer
    const { hostd, imageFile, mountDir, log } = this.#options
    const { blocks, bsize } = await statfs(mountDir)
    this.#fileSystem = fileSystem
    this.#reserve = new Reserve({ hostd, imageFile, mountDir, fileSystem, bytes: blocks * bsize })
    this.#compaction = new Compaction({ run: hostd.run, mountDir, imageFile, fileSystem, log })
    this.#stall = new Stall(fileSystem)
    this.#errorsBefore = await deviceErrors(fileSystem)
    this.#isOpen = true
    this.#silence = setInterval(() => (this.#silentMs += lookMsMax), lookMsMax)
    await this.#look()
    this.#schedule()
  }

  /** Ends the watch. Frozen sandboxes stay frozen. */
  async close(): Promise<void> {
    this.#isOpen = false
    clearTimeout(this.#timer)
    clearInterval(this.#silence)
    await this.#looking
    await this.#compaction?.close()
    this.#report = { ...this.#report, state: 'ok' }
  }

  #schedule(): void {
    if (!this.#isOpen) return
    const { state, availableBytes } = this.#report
    const shrinkMs = (availableBytes / shrinkBytesPerSecond) * 1000
    const delayMs = state === 'ok' ? Math.min(lookMsMax, Math.max(lookMsMin, shrinkMs)) : lookMsMin
    this.#timer = setTimeout(() => {
      this.#looking = this.#look().finally(() => this.#schedule())
    }, delayMs)
  }

  async #look(): Promise<void> {
    const { imageFile, mountDir, log } = this.#options
    const before = this.#report
    try {
      const next = await this.#measure(dirname(imageFile), mountDir)
      this.#silentMs = 0
      this.#report = next
      if (next.state !== before.state) {
        const told = `the disk is ${next.state}${next.reason === undefined ? '' : `: ${next.reason}`}`
        log(next.state === 'full' ? `${told}; sandboxes are frozen until there is space` : told)
      }
      if (next.state === 'full') await this.#freezer?.freeze()
      else if (before.state === 'full') this.#freezer?.thaw()
      this.#tellErrors(next.errors)
      const isWhole = this.#reserve?.isWhole ?? false
      if ((next.state === 'ok' || next.state === 'low') && isWhole)
        this.#compaction?.tend(this.#reserve?.state?.freeBytes ?? 0, next.poolBytes, next.state === 'low')
    } catch (error) {
      log(`the space of the disk cannot be watched: ${String(error)}`)
    }
  }

  async #measure(belowDir: string, mountDir: string): Promise<DiskReport> {
    const below = await statfs(belowDir)
    const pool = await statfs(mountDir)
    const lowBytes = lowBytesOf(below)
    const poolBytes = pool.blocks * pool.bsize
    const poolAvailable = pool.bavail * pool.bsize
    let belowBytes = below.bavail * below.bsize
    // The rest is for the database.
    const leaveBytes = Math.floor(lowBytes / 2)
    const isStalled = (this.#stall?.look() ?? 0) >= answerMs
    // A failing disk gives no blocks, or makes the call wait.
    const isFailing = isStalled || this.#report.state === 'failing'
    if (!isFailing && (await this.#tendReserve(belowBytes, leaveBytes))) {
      const after = await statfs(belowDir)
      belowBytes = after.bavail * after.bsize
    }
    const aheadBytes = this.#reserve?.state?.aheadBytes ?? 0
    const report = {
      poolBytes,
      availableBytes: Math.min(poolAvailable, belowBytes + aheadBytes),
      belowBytes,
      reserveBytes: aheadBytes,
      errors: await deviceErrors(this.#fileSystem),
    }
    if (isStalled) return { ...report, state: 'failing', reason: noAnswerReason }
    if (await isReadOnly(mountDir)) {
      return { ...report, state: 'failing', reason: readOnlyReason }
    }
    const reason = `the file system of the data directory is full: ${mebibytes(belowBytes)} MB are left`
    if (this.#isShort(belowBytes, leaveBytes)) return { ...report, state: 'full', reason }
    if (belowBytes < lowBytes) return { ...report, state: 'low', reason }
    if (poolAvailable < Math.min(poolLowBytesMax, poolBytes * poolLowShare)) {
      return { ...report, state: 'low', reason: `the disk pool is full: ${mebibytes(poolAvailable)} MB are left` }
    }
    return { ...report, state: 'ok' }
  }

  /** Whether a write that btrfs takes may find no block. */
  #isShort(belowBytes: number, leaveBytes: number): boolean {
    if (!this.#hasReserve || this.#reserve?.state === undefined) return belowBytes < leaveBytes
    if (this.#reserve.state.unbackedBytes > 0 && belowBytes < leaveBytes / 2) return true
    return !this.#reserve.isThere && belowBytes < leaveBytes + stepBytes
  }

  /** Extends the reserve, or gives blocks back. Returns whether blocks may have changed. */
  async #tendReserve(belowBytes: number, leaveBytes: number): Promise<boolean> {
    if (!this.#hasReserve || !this.#reserve?.isDue(belowBytes, leaveBytes)) return false
    try {
      await this.#reserve.extend(leaveBytes)
      this.#reserveFault = ''
      if (this.#reserve.hasSpare(this.#report.state !== 'ok')) await this.#giveBack(this.#reserve, leaveBytes)
    } catch (error) {
      if (!isUnsupported(error)) {
        this.#tellReserveFault(String(error))
        return true
      }
      this.#hasReserve = false
      this.#options.log(
        `the disk pool has no reserve: its file cannot get blocks before they are written (${String(error)})`,
      )
    }
    return true
  }

  /** Only logs: a disk that fails gives no blocks either, and must not hide what btrfs and the file system below tell of it. */
  #tellReserveFault(fault: string): void {
    if (fault !== this.#reserveFault) this.#options.log(`the reserve of the disk pool cannot be extended: ${fault}`)
    this.#reserveFault = fault
  }

  /** Gives blocks back. With little space below, others may take them before the reserve is there again, so sandboxes are frozen meanwhile. */
  async #giveBack(reserve: Reserve, leaveBytes: number): Promise<void> {
    const { state } = this.#report
    if (state === 'low') await this.#freezer?.freeze()
    try {
      await reserve.giveBack(leaveBytes)
    } finally {
      if (state === 'low') this.#freezer?.thaw()
    }
  }

  #tellErrors(errors: Record<string, number>): void {
    const grown = Object.entries(errors).filter(([name, count]) => count > (this.#errorsBefore[name] ?? 0))
    this.#errorsBefore = errors
    if (grown.length === 0) return
    const counts = grown.map(([name, count]) => `${name} ${count}`).join(', ')
    this.#options.log(`the disk below the pool fails: data of sandboxes may be lost (errors so far: ${counts})`)
  }
}

/** With less left on the file system below the pool, new work is refused. */
export function lowBytesOf({ blocks, bsize }: { blocks: number; bsize: number }): number {
  return Math.min(lowBytesMax, blocks * bsize * lowShare)
}

function mebibytes(bytes: number): number {
  return Math.floor(bytes / 2 ** 20)
}
