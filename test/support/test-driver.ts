import type {
  DriverCapabilities,
  KnownResources,
  ReconcileReport,
  SandboxExit,
  SandboxUsage,
} from '../../src/sandbox/index.ts'

/** The parts of a driver that are the same for all machines of the tests: a start finds nothing, and a test says which machine ends. */
export abstract class TestDriver {
  capabilities: DriverCapabilities = { fullCheckpoints: false, fullCheckpointsReason: 'this is a test' }
  readonly checkpoints = new Set<string>()
  /** What a start reports beside nothing. */
  report: Partial<ReconcileReport> = {}
  /** What the last start said that it knows. */
  opened: KnownResources | undefined
  /** What machines seem to use. */
  readonly usages = new Map<string, SandboxUsage>()
  #exit: (exit: SandboxExit) => void = () => {}

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

  async usage(sandboxId: string): Promise<SandboxUsage | undefined> {
    return this.usages.get(sandboxId)
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

  sandboxAt(): undefined {
    return undefined
  }
}
