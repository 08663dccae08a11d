import { readlink, realpath } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { messageOf, run } from '../command.ts'
import { userfaultfdIsAllowed } from './userfaultfd.ts'
import { exists } from '../exists.ts'
import { hostToolAt, type HostTool } from '../hostd/index.ts'
import { hostToolIn } from '../host-names.ts'
import { fails, missing, runSetup, works, type HostCheck } from '../self-test.ts'
import { dumpAndRestoreAlone, dumpAndRestoreContainer, type LazyPagesTest } from './trial.ts'
import { openCriuWorkspace } from './trial-workspace.ts'

export interface CriuSelfTest {
  ok: boolean
  /** Such as `4.2.1`; empty when unknown. */
  version: string
  /** Why it fails, for the client and for `doctor`. */
  reason?: string
  /** Whether restored processes can run before all of their memory is there; absent where nothing works. */
  lazyPages?: LazyPagesTest
  /** Whether restored processes still have their POSIX locks on mapped files; absent where nothing works, or without `imageDir`. */
  keepsPosixLocks?: boolean
  /** Whether a restored `eventfd` is still a semaphore (`EFD_SEMAPHORE`); absent where nothing works. */
  keepsSemaphores?: boolean
}

/** Setup writes such a file beside a CRIU for each change with which it built that CRIU. */
const lazyPagesMark = 'lazy-pages'
const semaphoresMark = 'eventfds'
export const unfitForLazyPages = 'this CRIU loses the memory of processes that give some of it back meanwhile'

/**
 * Dumps and restores real processes with the CRIU at `criuPath`: by itself, then by runc in a container on the base image of
 * `imageDir`. Without `imageDir` runc is left out, as it cannot start a container in a chroot without control groups. `criu check` is no
 * substitute: 3.17 passes it on kernels on which all its dumps fail. Nor is CRIU by itself, since runc looks CRIU up on its own.
 * Needs root. Never throws, and leaves no process and no file behind; the next test removes what a killed one left.
 */
export async function criuSelfTest(criuPath: string, imageDir?: string): Promise<CriuSelfTest> {
  let version = ''
  try {
    version = /^Version: (\S+)/m.exec(await run([criuPath, '--version']))?.[1] ?? ''
    if (version === '') throw new Error(`${criuPath} is not CRIU`)
    await using workspace = await openCriuWorkspace(imageDir === undefined ? undefined : hostdIn(imageDir))
    const lazyPages = await dumpAndRestoreAlone(criuPath, workspace)
    const kept = imageDir && (await dumpAndRestoreContainer(criuPath, await baseIn(imageDir), workspace))
    const has = (mark: string) => exists(join(dirname(criuPath), mark))
    const fit = await has(lazyPagesMark)
    const keepsSemaphores = await has(semaphoresMark)
    const lazy = fit ? lazyPages : ({ ok: false, reason: unfitForLazyPages } as const)
    return { ok: true, version, lazyPages: lazy, keepsSemaphores, ...kept }
  } catch (thrown) {
    // The first error is the cause; an error of the clean-up matters less.
    const error: unknown = thrown instanceof SuppressedError ? thrown.suppressed : thrown
    return { ok: false, version, reason: messageOf(error) }
  }
}

/** Not required: only checkpoints with memory need CRIU. */
export const criuCheck: HostCheck = {
  name: 'CRIU',
  required: false,
  async run({ imageDir }) {
    const lost = 'full checkpoints are unavailable, disk-only ones work'
    const advice = `${lost}; ${runSetup} builds one`
    const result = await criuSelfTest(join(imageDir, 'criu', 'criu'), imageDir)
    if (result.keepsPosixLocks === false) {
      const refused = 'full checkpoints and hibernations of sandboxes with such locks (SQLite takes them) are refused'
      return fails(
        `${result.version} loses POSIX locks of mapped files`,
        `${refused}; ${runSetup} builds one that does not`,
      )
    }
    if (result.ok) {
      const image = await readlink(join(imageDir, 'criu')).catch(() => 'not an image')
      return works(`${result.version}, ${image}; runc saved a container and brought it back`)
    }
    const found = `${result.version} ${result.reason ?? ''}`.trim()
    return result.version === '' ? missing(found, advice) : fails(found, advice)
  },
}

/** Without lazy memory a sandbox waits until its saved memory is read in full. */
export const lazyMemoryCheck: HostCheck = {
  name: 'lazy memory',
  required: false,
  async run({ imageDir }) {
    const { lazyPages } = await criuSelfTest(join(imageDir, 'criu', 'criu'), imageDir)
    if (lazyPages === undefined) return missing('no CRIU that works')
    if (!lazyPages.ok) return fails(lazyPages.reason, `${runSetup} builds one that can`)
    const setting =
      (await userfaultfdIsAllowed()) === false ? '; the server will set vm.unprivileged_userfaultfd to 1' : ''
    return works(`a real restore ended after its processes ran${setting}`)
  },
}

async function baseIn(imageDir: string): Promise<string> {
  return await realpath(join(imageDir, 'base', 'rootfs')).catch((cause: unknown) => {
    throw new Error(`no base image to try it with: ${runSetup}`, { cause })
  })
}

/** Runs atoll-hostd as a child: at the start of a server no resident one serves yet. */
function hostdIn(imageDir: string): HostTool {
  return hostToolAt(hostToolIn(imageDir))
}
