/**
 * Tries on this machine what the default runtime stands on, and looks for what it could use besides: one file per idea,
 * each with a real attempt where a version number proves nothing.
 */
import { readlink } from 'node:fs/promises'
import { join } from 'node:path'
import { userfaultfdIsAllowed } from '../criu/userfaultfd.ts'
import { apparmorCheck } from './apparmor.ts'
import { linksCheck } from './network.ts'
import { runSetup, type CheckReport, type HostCheck, type HostPlaces } from './check.ts'
import { criuSelfTest } from './criu.ts'
import { diskPoolCheck } from './disk-pool.ts'
import { dnsmasqCheck } from './dnsmasq.ts'
import { imageChecks } from './images.ts'
import { nodeCheck } from './node.ts'
import { optionalChecks } from './optional.ts'
import { overlayCheck } from './overlay.ts'
import { runFolderCheck } from './places.ts'
import { quarantineCheck } from './quarantine.ts'
import { requirements, resultOf } from './requirements.ts'
import { runcCheck } from './runc.ts'
import { tryDriver } from './trial.ts'

export type { CheckReport, HostPlaces } from './check.ts'
export { hostToolIn } from '../host/image-folder.ts'
export { unmetRequirements } from './requirements.ts'

/** Checkpoints with memory need it; everything else works without. */
const criuCheck: HostCheck = {
  name: 'CRIU',
  required: false,
  async run({ imageDir }) {
    const lost = 'full checkpoints are unavailable, disk-only ones work'
    const advice = `${lost}; ${runSetup} builds one`
    const result = await criuSelfTest(join(imageDir, 'criu', 'criu'), imageDir)
    if (result.ok) {
      const image = await readlink(join(imageDir, 'criu')).catch(() => 'not an image')
      return { state: 'works', found: `${result.version}, ${image}; runc saved a container and brought it back` }
    }
    const found = `${result.version} ${result.reason ?? ''}`.trim()
    return { state: result.version === '' ? 'missing' : 'fails', found, advice }
  },
}

/** Without it large saved memory is read in full before a sandbox goes on. */
const lazyMemoryCheck: HostCheck = {
  name: 'lazy memory',
  required: false,
  async run({ imageDir }) {
    const { lazyPages } = await criuSelfTest(join(imageDir, 'criu', 'criu'), imageDir)
    if (lazyPages === undefined) return { state: 'missing', found: 'no CRIU that works' }
    if (!lazyPages.ok) return { state: 'fails', found: lazyPages.reason, advice: `${runSetup} builds one that can` }
    const setting =
      (await userfaultfdIsAllowed()) === false ? '; the server will set vm.unprivileged_userfaultfd to 1' : ''
    return { state: 'works', found: `a real restore ended after its processes ran${setting}` }
  },
}

const hostChecks: readonly HostCheck[] = [
  nodeCheck,
  ...requirements,
  runFolderCheck,
  quarantineCheck,
  runcCheck,
  overlayCheck,
  diskPoolCheck,
  linksCheck,
  dnsmasqCheck,
  ...imageChecks,
  criuCheck,
  lazyMemoryCheck,
  apparmorCheck,
  ...optionalChecks,
]

/**
 * Runs all checks, one after the other, then starts, forks and wakes a sandbox by the driver itself, and hands over each
 * result as it comes. Never throws for what a check finds.
 */
export async function* checkHost(places: HostPlaces): AsyncGenerator<CheckReport> {
  for (const check of hostChecks) {
    yield { name: check.name, required: check.required, ...(await resultOf(check, places)) }
  }
  yield* tryDriver(places)
}
