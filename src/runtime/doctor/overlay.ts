import { chown, mkdir, realpath, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { run } from '../command.ts'
import { exists } from '../exists.ts'
import { hostToolIn } from '../host/image-folder.ts'
import { oneLine, runSetup, type HostCheck } from './check.ts'
import { openScratch } from './scratch.ts'

const idRangeStart = 1_000_000_000
const idRangeSize = 65_536

/**
 * The root of a sandbox: an overlay over the base image that appears in the sandbox's own range of ids. Before there is a base, over a
 * folder beside it: what matters is the file system of the images.
 */
export const overlayCheck: HostCheck = {
  name: 'idmapped overlay',
  required: true,
  async run({ imageDir }) {
    const tool = hostToolIn(imageDir)
    if (!(await exists(tool))) {
      return { state: 'missing', found: `no ${tool}`, advice: runSetup }
    }
    // What is written lies where the bundles of sandboxes do.
    await using scratch = await openScratch('/run')
    const folder = (name: string): string => join(scratch.path, name)
    for (const name of ['upper', 'work', 'target']) await mkdir(folder(name))
    for (const name of ['upper', 'work']) await chown(folder(name), idRangeStart, idRangeStart)
    await using lower = await lowerIn(imageDir)
    scratch.undo(['umount', '--lazy', folder('target')])
    const mount = ['--target', folder('target'), '--upper', folder('upper'), '--work', folder('work')]
    const ids = ['--range', `${idRangeStart}:${idRangeSize}`, '--lower', `0:${lower.path}`]
    await run([tool, 'overlay', ...mount, ...ids]).catch((cause: unknown) => {
      const advice = 'the images must lie on a file system that takes idmapped mounts, such as ext4, xfs or btrfs'
      throw new Error(`${oneLine(cause)}: ${advice}`, { cause })
    })
    const { uid } = await stat(folder('target/etc'))
    if (uid !== idRangeStart) {
      return {
        state: 'fails',
        found: `the base appears as user ${uid}, not ${idRangeStart}`,
        advice: 'needs Linux 5.19 or newer',
      }
    }
    return { state: 'works', found: 'a base of root appears in the range of a sandbox' }
  },
}

/** The base image, or a folder with something in it. */
async function lowerIn(imageDir: string): Promise<{ path: string } & AsyncDisposable> {
  const base = await realpath(join(imageDir, 'base', 'rootfs')).catch(() => undefined)
  if (base !== undefined) return { path: base, [Symbol.asyncDispose]: async () => {} }
  const scratch = await openScratch(imageDir)
  await mkdir(join(scratch.path, 'etc'))
  return scratch
}
