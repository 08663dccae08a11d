/**
 * A disk that forgets what was not flushed when its power is cut (`volatile-disk.c`), with ext4 and a folder for all that a server keeps:
 * `pool.img` and the database lie on it.
 *
 *     FUSE file of volatile-disk ── loop device, direct I/O ── ext4 ── data/pool.img ── loop device ── btrfs
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, rm, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface, type Interface } from 'node:readline'
import { promisify } from 'node:util'

const run = promisify(execFile)
const mebibyte = 1024 * 1024

/** What is left of the writes since the last flush: none, the first ones, any blocks of 4 KiB, or all. */
export type CutKind = 'none' | 'prefix' | 'subset' | 'all'

export interface Cut {
  /** Blocks of 4 KiB that were not flushed, and those of them that are left. */
  unflushed: number
  kept: number
  /** Requests that the disk has had since it was attached. */
  writes: number
  flushes: number
}

interface Program {
  child: ChildProcess
  lines: Interface
}

export class VolatileDisk implements AsyncDisposable {
  readonly #folder: string
  #program: Program | undefined
  #loop: string | undefined
  /** For a server whose data is not to be removed (`keepsData`). */
  readonly dataDir: string

  private constructor(folder: string) {
    this.#folder = folder
    this.dataDir = join(folder, 'disk', 'data')
  }

  /** An empty one, attached. */
  static async make(megabytes: number): Promise<VolatileDisk> {
    const disk = new VolatileDisk(await mkdtemp('/var/tmp/atoll-volatile-disk-'))
    try {
      await run('gcc', [
        '-O2',
        '-Wall',
        '-Werror',
        '-o',
        disk.#path('program'),
        join(import.meta.dirname, 'volatile-disk.c'),
      ])
      await mkdir(disk.#path('disk'))
      for (const name of ['content', 'face']) await writeFile(disk.#path(name), '', { mode: 0o600 })
      await truncate(disk.#path('content'), megabytes * mebibyte)
      await run('mkfs.ext4', ['-q', '-m', '0', '-E', 'nodiscard', disk.#path('content')])
      await disk.attach()
      await mkdir(disk.dataDir, { mode: 0o700 })
      return disk
    } catch (error) {
      await disk[Symbol.asyncDispose]()
      throw error
    }
  }

  /** The power is there, with what the last cut has left: the journal of ext4 is replayed. */
  async attach(): Promise<void> {
    const child = spawn(this.#path('program'), [this.#path('content'), this.#path('face')], {
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    this.#program = { child, lines: createInterface(child.stdout) }
    const first = await Promise.race([once(this.#program.lines, 'line'), once(child, 'exit')])
    if (first[0] !== 'mounted') throw new Error('the disk cannot be attached: it needs root and FUSE in the kernel')
    const { stdout } = await run('losetup', ['--find', '--show', '--direct-io=on', this.#path('face')])
    this.#loop = stdout.trim()
    await run('mount', ['-t', 'ext4', '-o', 'nodiscard', this.#loop, this.#path('disk')])
  }

  /**
   * The power is gone after so many more writes, and nothing is answered until `release`. The same seed leaves the same of the same writes.
   */
  async cut(kind: CutKind, seed: number, afterWrites = 0): Promise<Cut> {
    const numbers = (await this.#ask(`cut ${kind} ${seed} ${afterWrites}`)).split(' ').slice(1).map(Number)
    const [unflushed = 0, kept = 0, writes = 0, flushes = 0] = numbers
    return { unflushed, kept, writes, flushes }
  }

  /** After a cut: whoever still runs can write, which leaves nothing, and end. */
  async release(): Promise<void> {
    await this.#ask('release')
  }

  /** From now on it answers flushes and does nothing for them: a disk, or a layer above one, that is broken. */
  async lie(): Promise<void> {
    await this.#ask('lie')
  }

  /** After a cut, once nobody uses it any more. */
  async detach(): Promise<void> {
    await this.#release('')
  }

  /** Flushes all, as an orderly shutdown does. */
  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.#release('--lazy')
    } finally {
      await rm(this.#folder, { recursive: true })
    }
  }

  async #release(how: '' | '--lazy'): Promise<void> {
    const flags = how === '' ? [] : [how]
    if (this.#loop !== undefined) {
      const loop = this.#loop
      this.#loop = undefined
      await run('umount', [...flags, this.#path('disk')]).catch((error: unknown) => {
        if (!String(error).includes('not mounted')) throw error
      })
      await run('losetup', ['--detach', loop])
    }
    if (this.#program === undefined) return
    const { child } = this.#program
    await run('umount', ['--lazy', this.#path('face')])
    this.#program = undefined
    if (child.exitCode !== null || child.signalCode !== null) return
    const exit = once(child, 'exit')
    child.kill('SIGKILL')
    await exit
  }

  async #ask(command: string): Promise<string> {
    if (this.#program === undefined) throw new Error('the disk is not attached')
    const { child, lines } = this.#program
    const answer = once(lines, 'line') as Promise<[string]>
    child.stdin!.write(`${command}\n`)
    return (await answer)[0]
  }

  #path(name: string): string {
    return join(this.#folder, name)
  }
}
