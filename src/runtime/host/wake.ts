import { isServiceError } from '../../errors.ts'
import type { SandboxSpec } from '../../sandbox/ports/runtime-driver.ts'
import { asReported } from '../disk/index.ts'
import { cleanUp } from '../cleanup.ts'
import type { OpenHost } from './context.ts'
import { clearResuming, dropStaleMemory, onDiskAlone } from './fence.ts'
import type { Launcher } from './launcher.ts'

/** CRIU's verdict on images is final for clients, so it is heard twice: a busy machine may have spoilt the first restore. */
const restoresMax = 2

/**
 * Starts a sandbox that does not run, from its saved memory if it has some. A failure before its processes go on keeps that memory; a later
 * one drops it, and the error says so.
 */
export async function wakeSaved(
  host: OpenHost,
  launcher: Launcher,
  spec: SandboxSpec,
  signal?: AbortSignal,
): Promise<void> {
  for (let restores = 1; ; restores += 1) {
    try {
      await wakeOnce(host, launcher, spec, signal)
      return
    } catch (error) {
      if (restores >= restoresMax || !isServiceError(error, 'memory_not_restorable')) throw error
      if (host.inventory.sandbox(spec.id).memory === undefined) throw error
      host.log(`the memory of sandbox ${spec.id} is restored once more: ${error.message}`)
    }
  }
}

async function wakeOnce(host: OpenHost, launcher: Launcher, spec: SandboxSpec, signal?: AbortSignal): Promise<void> {
  const { inventory, running } = host
  const { id } = spec
  const { slot } = inventory.sandbox(id)
  const stop = () => running.stop(host.cgroups, id, slot)
  const dropStale = () => dropStaleMemory(host, inventory.sandbox(id))
  await stop()
  // An earlier wake may have failed without writing that down.
  const record = await dropStale()
  try {
    await launcher.again(host, record, spec, signal)
  } catch (error) {
    await cleanUp(host, id, async () => void (await dropStale()))
    await cleanUp(host, id, async () => {
      await stop()
      // CRIU may set its fence until it has ended.
      await dropStale()
      await clearResuming(inventory.sandboxes, id)
    })
    if (record.memory === undefined || inventory.sandbox(id).memory !== undefined) throw error
    await inventory.removeUnused()
    throw onDiskAlone(host, id, asReported(error))
  }
}
