/** The temporary folder of one self-test. */
import { mkdtemp, readFile, realpath, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { run } from './command.ts'

export interface Scratch extends AsyncDisposable {
  path: string
  /** Registers a program that runs at the end, the latest first, such as an unmount. */
  defer(argv: readonly [string, ...string[]]): void
}

export async function openScratch(parent: string = tmpdir()): Promise<Scratch> {
  const path = await mkdtemp(join(await realpath(parent), 'atoll-doctor-'))
  const deferred: (readonly [string, ...string[]])[] = []
  return {
    path,
    defer: (argv) => void deferred.push(argv),
    async [Symbol.asyncDispose]() {
      // Ignore a failure: perhaps the mount was never made. A mount that stays is reported below.
      for (const argv of deferred.reverse()) await run(argv).catch(() => undefined)
      // Never remove through a mount: the base image may lie behind it.
      const mounts = await readFile('/proc/self/mounts', 'utf8')
      if (mounts.includes(` ${path}/`)) throw new Error(`${path} is left behind: something is still mounted in it`)
      await rm(path, { recursive: true, force: true })
    },
  }
}

/** The ids of the containers and overlays of self-tests. */
export const idRange = { start: 1_000_000_000, size: 65_536 } as const
