import type { Duplex } from 'node:stream'
import { ServiceError } from '../../src/errors.ts'
import type { Alignment, CheckpointKind, RuntimeDriver, SandboxSpec } from '../../src/sandbox/index.ts'
import { connectLocally, GuestProcess } from '../../src/runtime/guest-client/testing/guest-process.ts'
import { FakeEgress } from './fake-egress.ts'
import { TestDriver } from './test-driver.ts'

/**
 * Machines without walls: each sandbox is the real guest as an ordinary process of this machine. All is real but the container,
 * so paths in a "sandbox" are paths of the machine: tests keep to the guest's own folder.
 */
export class GuestMachines extends TestDriver implements RuntimeDriver {
  readonly name = 'guest-process'
  readonly machines = new Map<string, GuestProcess>()
  readonly egress = new FakeEgress()

  async close(): Promise<void> {
    await Promise.all([...this.machines.values()].map((machine) => machine[Symbol.asyncDispose]()))
    this.machines.clear()
  }

  isRunning(sandboxId: string): boolean {
    return this.machines.has(sandboxId)
  }

  async prepare(spec: SandboxSpec): Promise<void> {
    await this.create(spec)
  }

  async isPrepared(spec: SandboxSpec): Promise<boolean> {
    return this.machines.has(spec.id)
  }

  async create(spec: SandboxSpec): Promise<void> {
    if (spec.image !== 'base') {
      throw new ServiceError('not_found', `no image ${spec.image}`, { details: { field: 'templateID' } })
    }
    if (spec.from && !this.checkpoints.has(spec.from.checkpointId))
      throw new ServiceError('not_found', 'no such checkpoint')
    this.machines.set(spec.id, await GuestProcess.start())
  }

  async hibernate(sandboxId: string): Promise<{ sizeBytes: number }> {
    await this.delete(sandboxId)
    return { sizeBytes: 4096 }
  }

  async wake(spec: SandboxSpec): Promise<void> {
    this.machines.set(spec.id, await GuestProcess.start())
  }

  hasMemory(_sandboxId: string): boolean {
    return false
  }

  isMemoryKept(): boolean {
    return false
  }

  async restore(spec: SandboxSpec, checkpointId: string): Promise<void> {
    if (!this.checkpoints.has(checkpointId)) throw new ServiceError('not_found', 'no such checkpoint')
    await this.restart(spec)
  }

  async restart(spec: SandboxSpec): Promise<void> {
    await this.delete(spec.id)
    await this.wake(spec)
  }

  async resize(): Promise<void> {}

  async align(): Promise<Alignment> {
    return { differences: [] }
  }

  async delete(sandboxId: string): Promise<void> {
    const machine = this.machines.get(sandboxId)
    this.machines.delete(sandboxId)
    this.stepMounts.mounted.delete(sandboxId)
    await machine?.[Symbol.asyncDispose]()
  }

  async checkpoint(sandboxId: string, checkpointId: string, kind: CheckpointKind): Promise<{ sizeBytes: number }> {
    if (kind === 'full') throw new ServiceError('full_checkpoint_unavailable', 'this is a test')
    this.stepMounts.assertNone(sandboxId)
    this.checkpoints.add(checkpointId)
    return { sizeBytes: 4096 }
  }

  async deleteCheckpoint(checkpointId: string): Promise<void> {
    this.checkpoints.delete(checkpointId)
  }

  async dial(sandboxId: string): Promise<Duplex> {
    const machine = this.machines.get(sandboxId)
    if (machine === undefined) throw new ServiceError('unavailable', `sandbox ${sandboxId} does not run`)
    return await machine.dial()
  }

  async connect(sandboxId: string, port: number): Promise<Duplex | undefined> {
    if (!this.machines.has(sandboxId)) throw new ServiceError('unavailable', `sandbox ${sandboxId} does not run`)
    return await connectLocally(port)
  }

  /** A folder of this "sandbox" alone. */
  folder(sandboxId: string): string {
    const machine = this.machines.get(sandboxId)
    if (machine === undefined) throw new Error(`no machine ${sandboxId}`)
    return machine.folder
  }
}
