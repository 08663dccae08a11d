import type { Lifecycle } from './lifecycle.ts'
import type { Listener, SystemProcess } from './ports/guest.ts'

/** Lists what runs and listens in a sandbox, whoever started it. Each method wakes the sandbox, since only its guest knows. */
export class Inspection {
  readonly #lifecycle: Lifecycle

  constructor(lifecycle: Lifecycle) {
    this.#lifecycle = lifecycle
  }

  /** By port and address; without the private ports of an agent. */
  async listeners(orgId: string, sandboxId: string): Promise<Listener[]> {
    return await this.#lifecycle.use(orgId, sandboxId, (guest) => guest.listeners())
  }

  /** By pid. */
  async processes(orgId: string, sandboxId: string): Promise<SystemProcess[]> {
    return await this.#lifecycle.use(orgId, sandboxId, (guest) => guest.systemProcesses())
  }

  /** Throws `not_found` for no such process, `forbidden` for PID 1 and what belongs to an agent. */
  async signal(orgId: string, sandboxId: string, pid: number, signal: number): Promise<void> {
    await this.#lifecycle.use(orgId, sandboxId, (guest) => guest.systemSignal(pid, signal))
  }
}
