import { readFile, writeFile } from 'node:fs/promises'
import { run } from '../command.ts'
import { exists } from '../exists.ts'

/** Above the height of any tree of btrfs. */
const noTreeIsHigher = '8'
const rootVolume = '5'

/** The counting of btrfs behind the limits of subvolumes (qgroups, btrfs-quota(8)). */
export class Quota {
  readonly #mountDir: string
  /** The kernel's view of it, from Linux 5.9 on. */
  readonly #folder: string

  private constructor(mountDir: string, uuid: string) {
    this.#mountDir = mountDir
    this.#folder = `/sys/fs/btrfs/${uuid}/qgroups`
  }

  static async of(mountDir: string): Promise<Quota> {
    const shown = await run(['btrfs', 'filesystem', 'show', mountDir])
    return new Quota(mountDir, /uuid: ([0-9a-f-]{36})/.exec(shown)?.[1] ?? '')
  }

  /**
   * Newer kernels stop counting, and with it every limit, when a subvolume with a high tree is removed; a sandbox could
   * bring that about with millions of files. Removing one takes longer with this, and the limits hold.
   */
  async keepCounting(): Promise<void> {
    const file = `${this.#folder}/drop_subtree_threshold`
    if (await exists(file)) await writeFile(file, noTreeIsHigher)
    await this.recount()
  }

  /** Counts again, in the kernel's background, if the kernel says that it has lost count. */
  async recount(): Promise<void> {
    const lost = await readFile(`${this.#folder}/inconsistent`, 'utf8').catch(() => '0')
    // Fails when a count is under way, which is as good.
    if (lost.trim() === '1') await run(['btrfs', 'quota', 'rescan', this.#mountDir]).catch(() => undefined)
  }

  /** A group outlives its subvolume. One that still counts something is being emptied; removing it would lose count. */
  async removeStale(): Promise<void> {
    const subvolumes = await run(['btrfs', 'subvolume', 'list', this.#mountDir])
    const living = new Set([...subvolumes.matchAll(/^ID (\d+) /gm)].map((match) => match[1]))
    const groups = await run(['btrfs', 'qgroup', 'show', '--raw', this.#mountDir])
    for (const [, id = rootVolume, referenced, exclusive] of groups.matchAll(/^0\/(\d+)\s+(\d+)\s+(\d+)/gm)) {
      if (id === rootVolume || living.has(id) || referenced !== '0' || exclusive !== '0') continue
      await run(['btrfs', 'qgroup', 'destroy', `0/${id}`, this.#mountDir]).catch(() => undefined)
    }
  }
}
