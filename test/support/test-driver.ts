import type {
  DiskReport,
  DriverCapabilities,
  KnownResources,
  ReconcileReport,
  SandboxExit,
  SandboxUsage,
  VolumeSpec,
  VolumeState,
} from '../../src/sandbox/index.ts'

import { FakeDiskTrees } from './fake-disk-trees.ts'
import { FakeStepMounts } from './fake-step-mounts.ts'

/** The parts of a driver that are the same for all machines of the tests: a start finds nothing, and a test says which machine ends. */
export abstract class TestDriver {
  capabilities: DriverCapabilities = { fullCheckpoints: false, fullCheckpointsReason: 'this is a test' }
  readonly checkpoints = new Set<string>()
  /** Volumes and snapshots by id, with what each was made from. */
  readonly volumes = new Map<string, { sizeMb?: number; from?: string | undefined }>()
  /** What a start reports beside nothing. */
  report: Partial<ReconcileReport> = {}
  /** What the last start said that it knows. */
  opened: KnownResources | undefined
  /** How full the disks of the host seem to be. */
  diskReport: DiskReport = { state: 'ok', poolBytes: 0, availableBytes: 0, belowBytes: 0, reserveBytes: 0, errors: {} }
  /** What machines seem to use. */
  readonly usages = new Map<string, SandboxUsage>()
  readonly trees = new FakeDiskTrees()
  readonly stepMounts = new FakeStepMounts((sandboxId) => this.isRunning(sandboxId))
  #exit: (exit: SandboxExit) => void = () => {}

  abstract isRunning(sandboxId: string): boolean

  capabilitiesOf(): DriverCapabilities {
    return this.capabilities
  }

  async open(known: KnownResources): Promise<ReconcileReport> {
    this.opened = known
    return {
      running: [],
      dormant: [],
      lost: [],
      unreachable: [],
      lostCheckpoints: [],
      removed: [],
      quarantined: [],
      takenBack: [],
      forgotten: [],
      lostVolumes: [],
      unknownVolumes: [],
      ...this.report,
    }
  }

  disk(): DiskReport {
    return this.diskReport
  }

  async usage(sandboxId: string): Promise<SandboxUsage | undefined> {
    return this.usages.get(sandboxId)
  }

  async createVolume({ id, sizeMb, from }: VolumeSpec): Promise<void> {
    this.volumes.set(id, { sizeMb, from })
  }

  async deleteVolume(id: string): Promise<void> {
    this.volumes.delete(id)
  }

  async snapshotVolume(volumeId: string, snapshotId: string): Promise<void> {
    this.volumes.set(snapshotId, { from: volumeId })
  }

  async volumeState(id: string): Promise<VolumeState | undefined> {
    return this.volumes.has(id) ? { usedBytes: 4096, generation: 7 } : undefined
  }

  onExit(listener: (exit: SandboxExit) => void): void {
    this.#exit = listener
  }

  exit(exit: SandboxExit): void {
    this.#exit(exit)
  }

  gateway() {
    return { listenHost: '127.0.0.1', listenPort: 0, insideHost: 'gateway.test' }
  }

  metadata() {
    return { listenHost: '127.0.0.1', listenPort: 0 }
  }

  sandboxAt(): undefined {
    return undefined
  }
}
