/** File systems of a test's own below the data directory of a server, small enough to be filled. */
import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, rm, statfs, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)
const mebibyte = 1024 * 1024

export class SmallDisk implements AsyncDisposable {
  readonly #folder: string
  readonly #stack: AsyncDisposableStack
  /** For the data directory of a server. */
  readonly dataDir: string

  private constructor(folder: string, stack: AsyncDisposableStack) {
    this.#folder = folder
    this.#stack = stack
    this.dataDir = join(folder, 'disk', 'data')
  }

  static async make(megabytes: number): Promise<SmallDisk> {
    await using stack = new AsyncDisposableStack()
    const folder = await mkdtemp('/var/tmp/atoll-small-disk-')
    stack.defer(() => rm(folder, { recursive: true }))
    const file = join(folder, 'disk.img')
    await writeFile(file, '')
    await truncate(file, megabytes * mebibyte)
    await run('mkfs.ext4', ['-q', '-m', '0', '-E', 'nodiscard', file])
    await mkdir(join(folder, 'disk'))
    await run('mount', ['-o', 'loop', file, join(folder, 'disk')])
    stack.defer(() => run('umount', ['--lazy', join(folder, 'disk')]).then(() => undefined))
    const made = new SmallDisk(folder, stack.move())
    await mkdir(made.dataDir)
    return made
  }

  /** Takes all of its space from beside the server but some megabytes; with 0, all that there is. */
  async fill(leaveMegabytes: number): Promise<void> {
    const { bavail, bsize } = await statfs(join(this.#folder, 'disk'))
    // A file needs some space beside its blocks, so the last is written.
    const bytes = bavail * bsize - Math.max(leaveMegabytes, 2) * mebibyte
    if (bytes > 0) await run('fallocate', ['--length', String(bytes), this.#filler])
    if (leaveMegabytes > 0) return
    const full = await run('dd', ['if=/dev/zero', `of=${this.#filler}.last`, 'bs=1k']).catch((error: unknown) => error)
    if (!String(full).includes('No space left')) throw new Error('the disk could not be filled', { cause: full })
  }

  async empty(): Promise<void> {
    for (const file of [this.#filler, `${this.#filler}.last`]) await rm(file, { force: true })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync()
  }

  get #filler(): string {
    return join(this.#folder, 'disk', 'filler')
  }
}
