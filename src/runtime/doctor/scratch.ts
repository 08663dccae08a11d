import { mkdtemp, readFile, realpath, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { run } from '../command.ts'

/** A folder for one check, and what undoes its mounts and namespaces, latest first. */
export interface Scratch extends AsyncDisposable {
  path: string
  /** Registers a program to run at the end, whatever happens until then. */
  undo(argv: readonly [string, ...string[]]): void
}

export async function openScratch(parent: string = tmpdir()): Promise<Scratch> {
  const path = await mkdtemp(join(await realpath(parent), 'atoll-doctor-'))
  const steps: (readonly [string, ...string[]])[] = []
  return {
    path,
    undo: (argv) => void steps.push(argv),
    async [Symbol.asyncDispose]() {
      for (const argv of steps.reverse()) {
        // What was never made cannot be undone; what stays in spite of this is told below.
        await run(argv).catch(() => undefined)
      }
      // A removal must never go through a mount: behind it may lie the base image.
      const mounts = await readFile('/proc/self/mounts', 'utf8')
      if (mounts.includes(` ${path}/`)) throw new Error(`${path} is left behind: something is still mounted in it`)
      await rm(path, { recursive: true, force: true })
    },
  }
}
