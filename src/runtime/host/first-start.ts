import { ServiceError } from '../../errors.ts'
import type { SandboxSpec } from '../../sandbox/ports/runtime-driver.ts'
import { mayBeWarm } from '../../sandbox/ports/warm-start.ts'
import { allDone, cleanUp } from '../cleanup.ts'
import { diskOf } from '../disk/index.ts'
import { bootId } from '../process.ts'
import { removeFence } from './fence.ts'
import type { Launcher } from './launcher.ts'
import type { Limits } from './limits.ts'
import type { Machine } from './machine.ts'
import { basedOn, newGeneration, type SandboxRecord, withoutMemory } from './records.ts'
import type { RunningSandboxes } from './running.ts'

interface FirstStartOptions extends Pick<Machine, 'inventory' | 'images' | 'pool' | 'network' | 'egress' | 'log'> {
  running: RunningSandboxes
  limits: Limits
  launcher: Launcher
}

/** Makes sandboxes, with an owner or warm, and removes them. */
export class FirstStart {
  readonly #options: FirstStartOptions

  constructor(options: FirstStartOptions) {
    this.#options = options
  }

  /** A cold start. A failure leaves nothing. */
  async start(spec: SandboxSpec, kind: Pick<SandboxRecord, 'warm'>, signal: AbortSignal | undefined): Promise<void> {
    const { id } = spec
    const { inventory, images, launcher } = this.#options
    signal?.throwIfAborted()
    const current = await images.current(spec.image)
    const disk = await inventory.freshDisk(id)
    // Nothing awaits from here to `put`: no other call can claim the same numbers or remove the checkpoint's layers.
    if (inventory.sandboxes.get(id) !== undefined) throw new ServiceError('conflict', `sandbox ${id} exists`)
    const from = spec.from === undefined ? undefined : inventory.checkpoint(spec.from.checkpointId)
    const record: SandboxRecord = {
      id,
      ...disk,
      ...inventory.claim(),
      ...(from === undefined
        ? { ...current, layers: [], generation: newGeneration() }
        : basedOn(spec.from?.memory === false ? withoutMemory(from) : from, current, bootId())),
      ...kind,
    }
    const recorded = inventory.sandboxes.put(record)
    try {
      await recorded
      await launcher.first(record, spec, signal)
    } catch (error) {
      await cleanUp(this.#options, id, () => this.remove(id))
      throw error
    }
  }

  /** Gives a warm sandbox the limits and the egress of its owner and ends its wait in its record. Returns false for an unfit one, which is removed. */
  async takeOver(spec: SandboxSpec, signal: AbortSignal | undefined): Promise<boolean> {
    const { inventory, limits, egress } = this.#options
    const { id } = spec
    try {
      signal?.throwIfAborted()
      const fits = await this.isFit(spec)
      const { warm: has, ...record } = inventory.sandbox(id)
      if (fits) {
        const isSized = spec.cpuCount === has?.cpuCount && spec.memoryMb === has.memoryMb
        await allDone([
          ...(isSized ? [] : [limits.limitProcesses(spec)]),
          ...(spec.diskMb === has?.diskMb ? [] : [limits.limitDisk(record, spec.diskMb)]),
          inventory.sandboxes.put(record),
          egress.refresh(id),
        ])
        await limits.show(spec)
        return true
      }
    } catch (error) {
      await cleanUp(this.#options, id, () => this.remove(id))
      throw error
    }
    await this.remove(id)
    return false
  }

  /** Whether a warm sandbox runs, from the images and the checkpoint that a start would take now. */
  async isFit(spec: SandboxSpec): Promise<boolean> {
    const { inventory, images, running } = this.#options
    const { id, image, from } = spec
    if (!mayBeWarm(spec)) return false
    const record = inventory.sandbox(id)
    const current = await images.current(image)
    if (!running.isUp(id) || current.guest !== record.guest || current.agent !== record.agent) return false
    if (from === undefined) return record.layers.length === 0 && record.base === current.base
    const { base, layers } = inventory.checkpoint(from.checkpointId)
    return base === record.base && layers[0]?.checkpointId === record.layers[0]?.checkpointId
  }

  /** Ends a sandbox and removes everything of it, its record last. Harmless for an unknown id. */
  async remove(id: string): Promise<void> {
    const { inventory, running, pool, network } = this.#options
    const record = inventory.sandboxes.get(id)
    if (record === undefined) return
    await running.stop(id, undefined)
    // Its processes have closed their connections by now.
    network.release(record.slot)
    await pool.remove(diskOf(record))
    await removeFence(pool, record)
    await inventory.sandboxes.remove(id)
    await inventory.removeUnused()
  }
}
