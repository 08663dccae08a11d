import type { KnownResources } from '../../src/sandbox/ports/runtime-driver.ts'
import type { DriverFixture } from './driver.ts'

/** These are known. Unless it is said what was abandoned, all other things are. */
export async function knowing(fixture: DriverFixture, known: Partial<KnownResources> = {}): Promise<KnownResources> {
  const { sandboxIds = [], checkpointIds = [] } = known
  const recorded = await fixture.recorded()
  const abandoned = {
    sandboxIds: recorded.sandboxIds.filter((id) => !sandboxIds.includes(id)),
    checkpointIds: recorded.checkpointIds.filter((id) => !checkpointIds.includes(id)),
  }
  return { sandboxIds, checkpointIds, abandoned, ...known }
}
