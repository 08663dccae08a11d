import { readdir, rename } from 'node:fs/promises'
import { exists } from '../exists.ts'
import type { HostTool } from '../hostd/index.ts'

/** Templates begin at multiples of this. Each takes a third of a second more to make than the one below. */
const step = 16_384
/** Bound of the templates: a program that makes and removes files all day must not keep the host busy with ever higher ones. */
const inodeMax = 1_048_576
const makeTimeoutMs = 120_000

/**
 * Empty subvolumes whose next inode number is high. Overlay assumes that layers on one file system share inode numbers, but each btrfs
 * subvolume starts anew: a file could have the number of one in a layer below, and `mv` and `cp` would take the two for one. So a disk over
 * layers starts as a snapshot of a template whose numbers are above those of all layers.
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
   * Path of a template whose snapshots give new files `inode` or a higher number. Undefined above `inodeMax`, and when the template cannot be
   * made, as in a full pool.
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

  /** Path of the highest template whose snapshots give a new file no number above `inode`, from which the caller counts up. */
  async below(inode: number): Promise<string | undefined> {
    const from = Math.floor(Math.min(inode, inodeMax) / step) * step
    return from === 0 ? undefined : this.above(from)
  }

  /** Removes the draft that a dead server, or a failed call, has left. */
  async removeDraft(): Promise<void> {
    if (await exists(this.#draft)) await this.#hostd.run(['btrfs', 'subvolume', 'delete', this.#draft])
  }

  get #draft(): string {
    return `${this.#folder}/draft`
  }

  async #make(from: number): Promise<string> {
    const path = `${this.#folder}/${from}`
    if (await exists(path)) return path
    const draft = this.#draft
    await this.removeDraft()
    const below = Math.max(...(await readdir(this.#folder)).map(Number).filter((start) => start < from))
    await this.#hostd.run(
      below > 0
        ? ['btrfs', 'subvolume', 'snapshot', `${this.#folder}/${below}`, draft]
        : ['btrfs', 'subvolume', 'create', draft],
    )
    await this.#hostd.runTool({ op: 'raise-inode-numbers', dir: draft, from }, { timeoutMs: makeTimeoutMs })
    await rename(draft, path)
    return path
  }
}
