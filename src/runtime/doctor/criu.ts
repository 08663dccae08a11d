import { realpath } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { run } from '../command.ts'
import { exists } from '../exists.ts'
import type { HostTool } from '../hostd/index.ts'
import { hostToolIn } from '../host/image-folder.ts'
import { runSetup } from './check.ts'
import { dumpAndRestoreAlone } from './criu-alone.ts'
import type { LazyPagesTest } from './criu-alone.ts'
import { dumpAndRestoreContainer } from './criu-container.ts'
import { openCriuPlace } from './criu-place.ts'

export interface CriuSelfTest {
  ok: boolean
  /** Such as `4.2.1`; empty when the program did not say. */
  version: string
  /** Why not, for the client and for `doctor`. */
  reason?: string
  /** Whether restored processes can run before all of their memory is there; absent where nothing works. */
  lazyPages?: LazyPagesTest
}

/** Setup writes it beside a CRIU that it built with the change that lazy memory needs. */
const lazyPagesMark = 'lazy-pages'
export const unfitForLazyPages = 'this CRIU loses the memory of processes that give some of it back meanwhile'

/**
 * Dumps and restores real processes with the CRIU at `criuPath`: by itself, then by runc in a container on the base image of
 * `imageDir`. Without that runc is not asked: in a chroot without control groups it starts nothing. `criu check` is no substitute:
 * 3.17 passes it on kernels on which each of its dumps fails. Nor is CRIU by itself, since runc finds it in its own way.
 * Needs root. Never throws, and leaves no process and no file behind; what a killed one left, the next removes.
 */
export async function criuSelfTest(criuPath: string, imageDir?: string): Promise<CriuSelfTest> {
  let version = ''
  try {
    version = /^Version: (\S+)/m.exec(await run([criuPath, '--version']))?.[1] ?? ''
    if (version === '') throw new Error(`${criuPath} is not CRIU`)
    await using place = await openCriuPlace(imageDir === undefined ? undefined : hostdIn(imageDir))
    const lazyPages = await dumpAndRestoreAlone(criuPath, place)
    if (imageDir !== undefined) await dumpAndRestoreContainer(criuPath, await baseIn(imageDir), place)
    const fit = await exists(join(dirname(criuPath), lazyPagesMark))
    return { ok: true, version, lazyPages: fit ? lazyPages : { ok: false, reason: unfitForLazyPages } }
  } catch (thrown) {
    // What went wrong in the end is of less interest than what did before.
    const error: unknown = thrown instanceof SuppressedError ? thrown.suppressed : thrown
    return { ok: false, version, reason: error instanceof Error ? error.message : String(error) }
  }
}

async function baseIn(imageDir: string): Promise<string> {
  return await realpath(join(imageDir, 'base', 'rootfs')).catch((cause: unknown) => {
    throw new Error(`no base image to try it with: ${runSetup}`, { cause })
  })
}

/** Started by this process: at the start of a server no resident one serves yet. */
function hostdIn(imageDir: string): HostTool {
  return { runTool: (args, options) => run([hostToolIn(imageDir), ...args], options) }
}
