/**
 * What every `RuntimeDriver` promises, as tests. A driver's own test file makes a fixture and adds what only its host shows.
 */
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import type { KnownResources, ReconcileReport, RuntimeDriver } from '../../src/sandbox/ports/runtime-driver.ts'
import type { Guest } from '../../src/sandbox/ports/guest.ts'
import { checkpointConformance } from './driver-checkpoints.ts'
import { connectionConformance } from './driver-connections.ts'
import { isolationConformance } from './driver-isolation.ts'
import { knowing } from './driver-known.ts'
import { lifeConformance } from './driver-life.ts'
import { changeConformance } from './driver-changes.ts'
import { limitConformance } from './driver-limits.ts'
import { dumpFaultConformance, memoryFaultConformance } from './driver-memory-faults.ts'
import { memoryFenceConformance } from './driver-memory-fence.ts'
import { memoryConformance } from './driver-memory.ts'
import { quarantineConformance } from './driver-quarantine.ts'
import { volumeConformance } from './driver-volumes.ts'

export interface DriverFixture {
  /** A driver over the fixture's data; a later one over the same data is what a restarted server has. */
  makeDriver(options?: { mayQuarantineMany?: boolean }): RuntimeDriver
  /** What the data hold records of, in force. */
  recorded(): Promise<{ sandboxIds: string[]; checkpointIds: string[] }>
  /** Spoils the record of a sandbox while no driver is open, and returns what mends it, wherever it lies by then. */
  spoilRecord(sandboxId: string): Promise<() => Promise<void>>
  guest(driver: RuntimeDriver, sandboxId: string): Guest
  /** Everything of these data's sandboxes that can be seen on the host, as sorted lines; the disk pool's file apart. */
  trace(): Promise<string[]>
  /** Spoils the saved memory of a hibernated sandbox or of a checkpoint, and returns what mends it. */
  spoilMemory(id: string): Promise<() => Promise<void>>
  /** Makes nonsense of it, as a fault of the disk would, so that it looks whole; returns what mends it. */
  garbleMemory(id: string): Promise<() => Promise<void>>
  /** What is recorded of the saved memory of a hibernated sandbox or of a checkpoint. */
  memoryOf(id: string): Promise<{ resuming?: string; unflushed?: string } | undefined>
  /** Changes that while no driver is open, wherever the record lies. */
  changeMemory(id: string, change: { resuming?: string; unflushed?: string }): Promise<void>
  /**
   * Makes saved memory that of a processor with instructions that no processor of this machine has; returns what mends it.
   * Undefined where nobody notes the processor.
   */
  otherProcessor(id: string): Promise<(() => Promise<void>) | undefined>
  /** Makes saved memory what ARM64 leaves, where CRIU notes no processor. The next driver over the data believes it. */
  forgetProcessor(id: string): Promise<void>
  /** Leaves room for less than 64 MiB on the disk of the sandboxes, and returns what gives the rest back. */
  fillDisk(): Promise<() => Promise<void>>
  /** Ends a sandbox from outside, as a fault of the host would. */
  crash(sandboxId: string): Promise<void>
  /** Gives the folder of the guest's socket to root inside, who has it for a moment while memory is restored. */
  giveSocketFolder(sandboxId: string): Promise<void>
  /** Makes the guest of a sandbox stand still for good, as one that is caught in a loop. */
  hang(sandboxId: string): Promise<void>
  /** Listening TCP endpoints that no sandbox may reach: the host's own, private networks. */
  forbidden(): readonly { address: string; port: number }[]
  /** A unix socket of the host on which something listens, and how many connections it has had. */
  hostSocket(): { path: string; connections: number }
  /** Runs a driver in a process of its own that opens, then makes and removes sandboxes, or saves one, until it is killed. */
  startVictim(known: {
    sandboxIds: readonly string[]
    cycled?: string
    imported?: string
    mounting?: string
  }): Promise<{ kill: () => Promise<void> }>
  dispose(): Promise<void>
}

/** What the tests share: one open driver, and guests of its sandboxes. */
export interface DriverUnderTest {
  fixture: DriverFixture
  driver: RuntimeDriver
  guest: (sandboxId: string) => Guest
  /** Takes the driver through a restart of its server; see `knowing`. */
  restart: (known: Partial<KnownResources>, options?: { mayQuarantineMany?: boolean }) => Promise<ReconcileReport>
}

type Part = (under: () => DriverUnderTest) => void

const everything: readonly Part[] = [
  lifeConformance,
  quarantineConformance,
  checkpointConformance,
  memoryConformance,
  dumpFaultConformance,
  memoryFaultConformance,
  memoryFenceConformance,
  connectionConformance,
  changeConformance,
  limitConformance,
  isolationConformance,
  volumeConformance,
]

/** `parts` are those of the port that a second fixture of a driver shows in another light. */
export function driverConformance(
  name: string,
  makeFixture: () => Promise<DriverFixture>,
  parts: readonly Part[] = everything,
): void {
  describe(`the ${name} driver`, () => {
    let fixture: DriverFixture
    let driver: RuntimeDriver
    let idle: string[]

    before(async () => {
      fixture = await makeFixture()
      driver = fixture.makeDriver()
      await driver.open(await knowing(fixture))
      idle = await fixture.trace()
    })

    after(async () => {
      // What a failed test left must not stay on the machine.
      await driver.close()
      await driver.open(await knowing(fixture))
      await driver.close()
      const left = await fixture.trace()
      await fixture.dispose()
      assert.deepEqual(left, [], 'a closed driver without sandboxes leaves nothing')
    })

    const under = (): DriverUnderTest => ({
      fixture,
      driver,
      guest: (sandboxId) => fixture.guest(driver, sandboxId),
      restart: async (known, options) => {
        await driver.close()
        driver = fixture.makeDriver(options)
        return driver.open(await knowing(fixture, known))
      },
    })

    for (const part of parts) part(under)

    test('after all sandboxes and checkpoints are removed the host is as before them', async () => {
      assert.deepEqual(await fixture.trace(), idle)
    })
  })
}
