import type { Lifecycle, LifecycleContext } from './lifecycle.ts'
import { type Sandbox, specOf } from './sandbox.ts'

type AlignmentContext = Pick<LifecycleContext, 'driver' | 'log'> & { lifecycle: Pick<Lifecycle, 'change'> }

/**
 * Makes the machine of a running sandbox agree with its record, after a change that may have been cut off between the two. The record
 * wins, because it has all that was acknowledged. Only memory that processes use by now stays, and the record then says so. The caller
 * holds the sandbox's lock, or runs at a start. A failure is logged: the sandbox is usable meanwhile, and the next start tries again.
 */
export async function alignMachine({ driver, log, lifecycle }: AlignmentContext, sandbox: Sandbox): Promise<void> {
  const { id: sandboxId } = sandbox
  try {
    const { differences, keptMemoryMb } = await driver.align(specOf(sandbox))
    if (keptMemoryMb !== undefined) await lifecycle.change(sandboxId, { memoryMb: keptMemoryMb })
    if (differences.length === 0) return
    log.warn({ sandboxId, differences, keptMemoryMb }, 'a sandbox was not what its record says')
  } catch (error) {
    log.warn({ err: error, sandboxId }, 'a sandbox could not be brought to its record')
  }
}
