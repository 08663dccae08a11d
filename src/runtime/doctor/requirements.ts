import { exists } from '../exists.ts'
import { cgroupCheck } from './cgroup.ts'
import { oneLine, type CheckResult, type HostCheck, type HostPlaces } from './check.ts'
import { containerCheck, kernelCheck, userNamespaceCheck } from './machine.ts'
import { nftablesCheck } from './network.ts'
import { hostToolIn } from '../host/image-folder.ts'
import { overlayCheck } from './overlay.ts'
import { dataFolderCheck, imageFolderCheck } from './places.ts'

/**
 * What a machine must offer before anything of Atoll is made on it. Each takes some milliseconds and leaves nothing. In this
 * order, since in a container the others would mislead.
 */
export const requirements: readonly HostCheck[] = [
  containerCheck,
  kernelCheck,
  userNamespaceCheck,
  cgroupCheck,
  nftablesCheck,
  imageFolderCheck,
  dataFolderCheck,
]

/** What the machine lacks, a sentence each with what to do; empty when a server can start, as far as setup has come. */
export async function unmetRequirements(places: HostPlaces): Promise<string[]> {
  const checks = (await exists(hostToolIn(places.imageDir))) ? [...requirements, overlayCheck] : requirements
  const results = await Promise.all(checks.map(async (check) => ({ ...check, ...(await resultOf(check, places)) })))
  const unmet = results.filter(({ state }) => state !== 'works')
  // Whatever else fails in a container fails because it is one.
  const reported = unmet[0]?.name === containerCheck.name ? unmet.slice(0, 1) : unmet
  return reported.map(({ name, found, advice }) => `${name}: ${found}${advice === undefined ? '' : ` (${advice})`}`)
}

/** Never throws: what a check throws is its result. */
export function resultOf(check: HostCheck, places: HostPlaces): Promise<CheckResult> {
  return check.run(places).catch((error: unknown) => ({ state: 'fails', found: oneLine(error) }))
}
