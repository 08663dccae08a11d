import { readdir, rename } from 'node:fs/promises'
import { run } from '../command.ts'
import { exists } from '../exists.ts'
import type { HostTool } from '../hostd/index.ts'

/** InodeTemplates begin at multiples of it. To make one takes a third of a second more than the one below it did. */
const step = 16_384
/** A program that makes and removes files all day must not keep the host at work: above it there are no templates. */
const inodeMax = 1_048_576
const makeTimeoutMs = 120_000

/**
 * Empty subvolumes that number their files from higher up. Overlay takes all layers on one file system to number files
 * together, but each subvolume of btrfs begins anew: a file above could have the inode number of another one below, and
 * `mv` and `cp` would take the two for one. So what stands on layers begins as a snapshot of a seed above all of them.
 */
export class InodeTemplates {
  /** Absolute. */
  readonly #folder: string
  readonly #hostd: HostTool
  readonly #log: (message: string) => void
  #making: Promise<unknown> = Promise.resolve()

  constructor(folder: string, hostd: HostTool, log: (message: string) => void) {
    this.#folder = folder
    this.#hostd = hostd
    this.#log = log
  }

  /**
   * Path of a seed whose snapshots give new files `inode` or a higher number; undefined when it would have to be too high, and
   * when it cannot be made, as in a full pool.
   */
  async above(inode: number): Promise<string | undefined> {
    const from = Math.ceil(inode / step) * step
    if (from > inodeMax) return undefined
    const made = this.#making.then(() => this.#make(from))
    this.#making = made.catch(() => undefined)
    return made.catch((error: unknown) => {
      this.#log(`files of a fork may have the inode numbers of others: ${String(error)}`)
      return undefined
    })
  }

  async #make(from: number): Promise<string> {
    const path = `${this.#folder}/${from}`
    if (await exists(path)) return path
    const draft = `${this.#folder}/draft`
    // Of a server that died.
    if (await exists(draft)) await run(['btrfs', 'subvolume', 'delete', draft])
    const below = Math.max(...(await readdir(this.#folder)).map(Number).filter((start) => start < from))
    await run(
      below > 0
        ? ['btrfs', 'subvolume', 'snapshot', `${this.#folder}/${below}`, draft]
        : ['btrfs', 'subvolume', 'create', draft],
    )
    await this.#hostd.runTool(['number', '--dir', draft, '--from', String(from)], { timeoutMs: makeTimeoutMs })
    await rename(draft, path)
    return path
  }
}
