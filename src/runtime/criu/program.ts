import { access, constants, readFile, realpath, rename, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { ServiceError } from '../../errors.ts'
import { commandEnvironment } from '../command.ts'
import { criuSelfTest, unfitForLazyPages } from './self-test.ts'
import type { LazyPagesTest } from './trial.ts'
import type { OciRuntime } from '../oci/oci-runtime.ts'
import { bootId } from '../process.ts'

/** Shared by all servers of this host, and emptied by a reboot. */
const verdictFile = '/run/atoll-criu.json'

export interface WorkingCriu {
  path: string
  lazyPages: LazyPagesTest
  /** Whether a restored process still has its POSIX locks on files that it has mapped. */
  keepsPosixLocks: boolean
  /** Whether a restored `eventfd` is still a semaphore. */
  keepsSemaphores: boolean
}

interface Verdict extends Omit<WorkingCriu, 'path'> {
  /** Identifies the trial, CRIU, the program of the OCI runtime and the boot. */
  identity: string
}

/** The number of the trial. Raise it when a trial finds out other things. */
const trial = 3

export type CriuProgram = WorkingCriu | { path: undefined; reason: string }

/**
 * The CRIU of an image folder, with whether it works on this kernel: it must have dumped and restored real processes once since the boot,
 * by itself and through the OCI runtime's program. Never throws.
 */
export async function findCriu(imageDir: string, { program }: Pick<OciRuntime, 'program'>): Promise<CriuProgram> {
  const path = await realpath(`${imageDir}/criu/criu`).catch(() => undefined)
  if (path === undefined) return { path, reason: `CRIU is not installed in ${imageDir}: run npm run setup` }
  const identity = JSON.stringify([trial, await fileOf(path), await fileOf(await pathOf(program)), bootId()])
  const known = await verdictOn(identity)
  if (known !== undefined) return { path, ...known }
  const result = await criuSelfTest(path, imageDir)
  const { ok, reason = '', lazyPages, keepsPosixLocks = false, keepsSemaphores = false } = result
  if (!ok || lazyPages === undefined)
    return { path: undefined, reason: `CRIU does not work on this machine: ${reason}` }
  const keeps = { keepsPosixLocks, keepsSemaphores }
  // Remember success alone: a failure may be mended without a reboot.
  if (lazyPages.ok || lazyPages.reason === unfitForLazyPages) {
    const temporary = `${verdictFile}.${process.pid}`
    await writeFile(temporary, JSON.stringify({ identity, lazyPages, ...keeps } satisfies Verdict), {
      mode: 0o600,
    })
      .then(() => rename(temporary, verdictFile))
      .catch(() => undefined)
  }
  return { path, lazyPages, ...keeps }
}

/** Throws `full_checkpoint_unavailable` where none works. */
export function assertCriu({ criu }: { criu: CriuProgram }): WorkingCriu {
  if (criu.path !== undefined) return criu
  throw new ServiceError('full_checkpoint_unavailable', criu.reason)
}

async function verdictOn(identity: string): Promise<Omit<WorkingCriu, 'path'> | undefined> {
  try {
    const { identity: of, ...verdict } = JSON.parse(await readFile(verdictFile, 'utf8')) as Verdict
    return of === identity ? verdict : undefined
  } catch {
    return undefined
  }
}

async function fileOf(path: string | undefined) {
  if (path === undefined) return undefined
  const { dev, ino, size, mtimeMs } = await stat(path)
  return { path, dev, ino, size, mtimeMs }
}

/** The file that a command starts. */
async function pathOf(program: string): Promise<string | undefined> {
  for (const folder of (commandEnvironment()['PATH'] ?? '').split(':')) {
    const path = join(folder, program)
    const isProgram = await access(path, constants.X_OK).then(
      () => true,
      () => false,
    )
    if (isProgram) return await realpath(path)
  }
  return undefined
}
