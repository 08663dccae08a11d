import { singleFlight } from '../../lib/async/single-flight.ts'
import { withTimeout } from '../../lib/async/timeout.ts'
import { fails, resultOf, type CheckReport, type DoctorOptions, type HostCheck } from '../self-test.ts'
import { dataFolderCheck, imageChecks, imageFolderCheck, quarantineCheck, runFolderCheck } from './folders.ts'
import { cgroupCheck, containerCheck, kernelCheck, nodeCheck, userNamespaceCheck } from './machine.ts'
import { dnsmasqCheck, linksCheck, nftablesCheck } from '../network/self-test.ts'

/**
 * The checks that may run beside a server: they read, or try something in namespaces that end with the program. None makes a mount,
 * a loop device or a container, writes to a disk, or loads a profile.
 */
export const harmlessChecks: readonly HostCheck[] = [
  containerCheck,
  nodeCheck,
  kernelCheck,
  userNamespaceCheck,
  cgroupCheck,
  nftablesCheck,
  linksCheck,
  dnsmasqCheck,
  imageFolderCheck,
  dataFolderCheck,
  runFolderCheck,
  quarantineCheck,
  ...imageChecks,
]

/** Longer than any check takes on a busy machine. */
const checkTimeoutMsDefault = 10_000

/**
 * Returns a function that runs the checks side by side. A check that fails or hangs gets a row that says so. A check that still hangs at
 * the next call is not started again.
 */
export function inspectHost(
  options: DoctorOptions,
  checks: readonly HostCheck[] = harmlessChecks,
  timeoutMs = checkTimeoutMsDefault,
): () => Promise<CheckReport[]> {
  const started = checks.map((check) => ({ check, result: singleFlight(() => resultOf(check, options)) }))
  return () =>
    Promise.all(
      started.map(async ({ check: { name, required }, result }) => {
        const found = (await withTimeout(timeoutMs, result())) ?? fails(`no result after ${timeoutMs / 1000} seconds`)
        return { name, required, ...found }
      }),
    )
}
