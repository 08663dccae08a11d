/** Tries on this machine what the default runtime needs, and looks for engines that it could use besides. */
import { resolveHostTool } from '../host/image-folder.ts'
import { resultOf, type CheckReport, type DoctorOptions, type HostCheck } from '../self-test.ts'
import { apparmorCheck } from '../oci/confinement.ts'
import { criuCheck, lazyMemoryCheck } from '../criu/self-test.ts'
import { diskPoolCheck, overlayCheck } from '../disk/self-test.ts'
import { tryDriver } from '../host/self-test.ts'
import { dataFolderCheck, imageChecks, imageFolderCheck, quarantineCheck, runFolderCheck } from './folders.ts'
import { cgroupCheck, containerCheck, kernelCheck, nodeCheck, userNamespaceCheck } from './machine.ts'
import { egressCheck } from '../egress/self-test.ts'
import { dnsmasqCheck, linksCheck, nftablesCheck } from '../network/self-test.ts'
import { runcCheck } from '../oci/self-test.ts'
import { optionalChecks } from './programs.ts'
import { runcFixesCheck } from '../oci/runc-fixes.ts'
import { warmPoolCheck } from './warm-pool.ts'

export { works, type CheckReport, type HostCheck } from '../self-test.ts'
export { harmlessChecks, inspectHost } from './inspect.ts'

/**
 * What a machine must offer before setup or a server changes it. Each check takes some milliseconds and leaves nothing. The
 * container check is first: in a container the results of the others mislead.
 */
const requirements: readonly HostCheck[] = [
  containerCheck,
  kernelCheck,
  userNamespaceCheck,
  cgroupCheck,
  nftablesCheck,
  imageFolderCheck,
  dataFolderCheck,
]

/** What the machine lacks, with advice, one sentence each; empty when a server can start. Checks only what setup has installed so far. */
export async function unmetRequirements(options: DoctorOptions): Promise<string[]> {
  // Setup replaces a hostd that does not speak this server's protocol.
  const hasTool = await resolveHostTool(options.imageDir).then(
    () => true,
    () => false,
  )
  const checks = hasTool ? [...requirements, overlayCheck] : requirements
  const results = await Promise.all(checks.map(async (check) => ({ ...check, ...(await resultOf(check, options)) })))
  const unmet = results.filter(({ state }) => state !== 'works')
  // In a container all other failures follow from the container.
  const reported = unmet[0]?.name === containerCheck.name ? unmet.slice(0, 1) : unmet
  return reported.map(({ name, found, advice }) => `${name}: ${found}${advice === undefined ? '' : ` (${advice})`}`)
}

const hostChecks: readonly HostCheck[] = [
  nodeCheck,
  ...requirements,
  runFolderCheck,
  quarantineCheck,
  runcCheck,
  runcFixesCheck,
  overlayCheck,
  diskPoolCheck,
  linksCheck,
  dnsmasqCheck,
  ...imageChecks,
  criuCheck,
  lazyMemoryCheck,
  apparmorCheck,
  egressCheck,
  warmPoolCheck,
  ...optionalChecks,
]

/**
 * Runs all checks one after the other, with those of other parts of the server. Then it starts, forks and wakes a sandbox with the driver.
 * Yields each result as it comes. Never throws for a failed check.
 */
export async function* checkHost(
  options: DoctorOptions,
  others: readonly HostCheck[] = [],
): AsyncGenerator<CheckReport> {
  for (const check of [...hostChecks, ...others]) {
    yield { name: check.name, required: check.required, ...(await resultOf(check, options)) }
  }
  yield* tryDriver(options)
}
