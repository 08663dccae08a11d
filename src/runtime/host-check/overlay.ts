import { chown, mkdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { run } from '../command.ts'
import { exists } from '../exists.ts'
import { runSetup, type HostCheck } from './check.ts'
import { openScratch } from './scratch.ts'

const idRangeStart = 1_000_000_000
const idRangeSize = 65_536

/** The root of a sandbox: an overlay over a base that appears in the sandbox's own range of ids. */
export const overlayCheck: HostCheck = {
  name: 'idmapped overlay',
  required: true,
  async run({ imageDir }) {
    const tool = join(imageDir, 'mount', 'atoll-mount')
    if (!(await exists(tool))) {
      return { state: 'missing', found: `no ${tool}`, advice: runSetup }
    }
    await using scratch = await openScratch()
    const folder = (name: string): string => join(scratch.path, name)
    for (const name of ['lower', 'upper', 'work', 'target']) await mkdir(folder(name))
    await mkdir(folder('lower/from-base'))
    for (const name of ['upper', 'work']) await chown(folder(name), idRangeStart, idRangeStart)
    scratch.undo(['umount', '--lazy', folder('target')])
    const mount = ['--target', folder('target'), '--upper', folder('upper'), '--work', folder('work')]
    const ids = ['--range', `${idRangeStart}:${idRangeSize}`, '--lower', `0:${folder('lower')}`]
    await run([tool, 'overlay', ...mount, ...ids])
    const { uid } = await stat(folder('target/from-base'))
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
