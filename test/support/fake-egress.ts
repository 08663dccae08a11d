import { ServiceError } from '../../src/errors.ts'
import type { DriverEgress } from '../../src/sandbox/index.ts'

/** A host that seems to hold what it is told. It makes no authority: those of these machines would be trusted by the machine of the test. */
export class FakeEgress implements DriverEgress {
  /** Sandboxes whose egress was put in force, in their order. */
  readonly refreshed: string[] = []

  unavailable(): undefined {}

  async refresh(sandboxId: string): Promise<void> {
    this.refreshed.push(sandboxId)
  }

  async makeAuthority(): Promise<never> {
    throw new ServiceError('unavailable', 'a machine of a test has no certificate authority')
  }
}
