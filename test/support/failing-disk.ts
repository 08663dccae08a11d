/** The pool of a server on a disk that fails when a test says so (`failing-disk.c`); everything else of its data directory is on a good one. */
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, rm, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { poolLabel } from '../../src/runtime/disk/index.ts'
import { HostNames } from '../../src/runtime/host-names.ts'

const run = promisify(execFile)

export class FailingDisk implements AsyncDisposable {
  readonly #folder: string
  readonly #stack: AsyncDisposableStack
  /** For a server whose data is not to be removed (`keepsData`). */
  readonly dataDir: string

  private constructor(folder: string, stack: AsyncDisposableStack) {
    this.#folder = folder
    this.#stack = stack
    this.dataDir = join(folder, 'data')
  }

  /** A pool of this size, empty. */
  static async make(megabytes: number): Promise<FailingDisk> {
    await using stack = new AsyncDisposableStack()
    const folder = await mkdtemp('/var/tmp/atoll-failing-disk-')
    stack.defer(() => rm(folder, { recursive: true }))
    const [program, file, switches] = ['failing-disk', 'disk', 'switches'].map((name) => join(folder, name))
    const disk = new FailingDisk(folder, stack)
    const pool = disk.#pool
    await run('gcc', ['-O1', '-o', program!, join(import.meta.dirname, 'failing-disk.c')])
    await mkdir(switches!)
    await mkdir(disk.dataDir, { mode: 0o700 })
    await writeFile(file!, '')
    await writeFile(pool, '')
    await truncate(file!, megabytes * 1024 * 1024)
    const child = spawn(program!, [file!, pool, switches!], { stdio: ['ignore', 'pipe', 'inherit'] })
    // Nothing can wait for it any more then, whatever it has left without an answer.
    stack.defer(() => ended(child))
    stack.defer(() => run('umount', ['--lazy', pool]).then(() => undefined))
    if ((await Promise.race([once(child.stdout, 'data'), once(child, 'exit')]))[0] === 1)
      throw new Error('the disk cannot be mounted: it needs root and FUSE in the kernel')
    await run('mkfs.btrfs', ['--quiet', '--metadata', 'single', '--label', poolLabel, pool])
    return new FailingDisk(folder, stack.move())
  }

  /** From now on: EIO for all writes, reads or flushes, or no answer to anything. */
  async fail(what: 'write' | 'read' | 'sync' | 'hang'): Promise<void> {
    await writeFile(join(this.#folder, 'switches', what), '')
    if (what === 'read') await this.#dropCache()
  }

  /** The next reads are reads of the disk. */
  async #dropCache(): Promise<void> {
    await run('dd', [`if=${this.#pool}`, 'iflag=nocache', 'count=0'])
  }

  /** Where a server that runs has mounted the pool. */
  get poolDir(): string {
    return new HostNames(this.dataDir).poolDir
  }

  get #pool(): string {
    return join(this.dataDir, 'pool.img')
  }

  async mend(): Promise<void> {
    for (const what of ['write', 'read', 'sync', 'hang'])
      await rm(join(this.#folder, 'switches', what), { force: true })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.mend()
    await this.#stack.disposeAsync()
  }
}

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const exit = once(child, 'exit')
  child.kill('SIGKILL')
  await exit
}
