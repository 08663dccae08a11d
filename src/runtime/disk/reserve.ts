import { readdir } from 'node:fs/promises'
import { CommandError, messageOf } from '../command.ts'
import type { HostTool } from '../hostd/index.ts'
import { readNow } from '../read-now.ts'

/** A chunk of btrfs is 1 GiB or a tenth of the pool, rounded up to 16 MiB. */
const chunkBytesMax = 1024 ** 3
const chunkShare = 1 / 10
const chunkRoundingBytes = 16 * 1024 ** 2
const chunksAhead = 3
/** Long enough for a large pool without blocks, which gets all of its reserve at once. */
const extendTimeoutMs = 120_000
/** Unneeded blocks beyond this are given back; `spareBytesMaxIfShort` when little is left below. */
const spareBytesMax = 1024 ** 3
const spareBytesMaxIfShort = 128 * 1024 ** 2
/** Blocks are taken in steps of this (`hostd/src/reserve.rs`). */
export const stepBytes = 64 * 1024 ** 2
/** For btrfs, addresses from here on are beyond all data: fstrim(8) then trims only free space of the device. */
const beyondAllData = String(2 ** 62)

/** State of the sparse file of a pool. */
export interface ReserveState {
  /** Allocated by btrfs, without blocks in the file system below. */
  unbackedBytes: number
  /** What btrfs can allocate next, with blocks. */
  aheadBytes: number
  /** All that btrfs can allocate in chunks of the usual size. */
  chunkBytes: number
  /** All that btrfs can allocate. */
  freeBytes: number
}

/**
 * Makes the sparse file of the pool as good as a disk. All that btrfs has allocated in the file, and up to `targetBytes` of what it
 * allocates next, has blocks in the file system below (`hostd/src/reserve.rs`). btrfs refuses a write for which it has allocated nothing,
 * so every accepted write finds its blocks, however full the file system below is by then.
 */
export class Reserve {
  readonly #options: { hostd: HostTool; imageFile: string; mountDir: string; fileSystem: string }
  readonly #chunkBytes: number
  readonly targetBytes: number
  /** Undefined before the first `extend`, and where files cannot get blocks before they are written. */
  state: ReserveState | undefined
  #allocated: number | undefined
  #spareBytes = 0
  #spareBytesKept = 0

  /** `fileSystem`: the folder of the pool in `/sys/fs/btrfs`. */
  constructor(options: { hostd: HostTool; imageFile: string; mountDir: string; fileSystem: string; bytes: number }) {
    this.#options = options
    this.#chunkBytes = Math.floor(Math.min(chunkBytesMax, options.bytes * chunkShare + chunkRoundingBytes))
    this.targetBytes = chunksAhead * this.#chunkBytes
  }

  /** Whether at least half of the reserve, or all that btrfs can still allocate, has blocks. */
  get isThere(): boolean {
    return this.state !== undefined && this.state.aheadBytes >= Math.min(this.targetBytes / 2, this.state.chunkBytes)
  }

  /** Whether all of the reserve is there, and nothing that btrfs has allocated lacks blocks. */
  get isWhole(): boolean {
    if (this.state === undefined) return false
    const { unbackedBytes, aheadBytes, chunkBytes } = this.state
    return unbackedBytes === 0 && aheadBytes >= Math.min(this.targetBytes, chunkBytes)
  }

  /** Whether `extend` may have something to do: allocations have changed, or there is space below for what is missing. Cheap. */
  isDue(belowBytes: number, leaveBytes: number): boolean {
    if (this.#allocatedBytes() !== this.#allocated || this.state === undefined) return true
    return !this.isWhole && belowBytes >= leaveBytes + stepBytes
  }

  /** Takes the missing blocks, while more than `leaveBytes` stay below. Throws `CommandError`. */
  async extend(leaveBytes: number): Promise<void> {
    const { hostd, imageFile, mountDir } = this.#options
    const allocated = this.#allocatedBytes()
    const sizes = { aheadBytes: this.targetBytes, chunkBytes: this.#chunkBytes, leaveBytes }
    const request = { op: 'reserve-space', pool: mountDir, file: imageFile, ...sizes } as const
    const told = await hostd.runTool(request, { timeoutMs: extendTimeoutMs })
    const [unbackedBytes = 0, aheadBytes = 0, chunkBytes = 0, freeBytes = 0, spareBytes = 0] = told
      .trim()
      .split(' ')
      .map(Number)
    this.state = { unbackedBytes, aheadBytes, chunkBytes, freeBytes }
    this.#allocated = allocated
    this.#spareBytes = spareBytes
  }

  /** Whether many blocks are no longer needed. */
  hasSpare(isShort: boolean): boolean {
    return this.#spareBytes >= this.#spareBytesKept + (isShort ? spareBytesMaxIfShort : spareBytesMax)
  }

  /** Gives back the unneeded blocks and those of the reserve, and takes the latter anew: nothing else may need them meanwhile. */
  async giveBack(leaveBytes: number): Promise<void> {
    await this.#options.hostd.run([
      'fstrim',
      '--offset',
      beyondAllData,
      '--length',
      beyondAllData,
      this.#options.mountDir,
    ])
    await this.extend(leaveBytes)
    // The kernel trims nothing twice.
    this.#spareBytesKept = this.#spareBytes
  }

  #allocatedBytes(): number {
    const of = (kind: string) => Number(readNow(`${this.#options.fileSystem}/allocation/${kind}/disk_total`) ?? 0)
    return of('data') + of('metadata') + of('system')
  }
}

/** Whether the error says that the file system below gives no blocks in advance, so that there can be no reserve. */
export function isUnsupported(error: unknown): boolean {
  return error instanceof CommandError && /not supported|there is no command/i.test(messageOf(error))
}

/** Errors of the devices of a file system since it was made, by the names of btrfs (`write_errs`, …). */
export async function deviceErrors(fileSystem: string): Promise<Record<string, number>> {
  const sums: Record<string, number> = {}
  for (const device of await readdir(`${fileSystem}/devinfo`).catch(() => [])) {
    const stats = readNow(`${fileSystem}/devinfo/${device}/error_stats`) ?? ''
    for (const [, name = '', count] of stats.matchAll(/^(\w+)_errs (\d+)$/gm))
      sums[name] = (sums[name] ?? 0) + Number(count)
  }
  return sums
}
