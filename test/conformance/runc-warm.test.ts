/** The driver's promises for sandboxes that wait for their owner with other sizes: nobody can tell them from those of a cold start. */
import type { RuntimeDriver, SandboxSpec } from '../../src/sandbox/ports/runtime-driver.ts'
import { changeConformance } from './driver-changes.ts'
import { isolationConformance } from './driver-isolation.ts'
import { lifeConformance } from './driver-life.ts'
import { limitConformance } from './driver-limits.ts'
import { makeRuncFixture } from './driver-runc-host.ts'
import { driverConformance, type DriverFixture } from './driver.ts'

const prepared = { cpuCount: 2, memoryMb: 512, diskMb: 512 }

/** A driver each of whose creates takes over a sandbox that was prepared before. */
function takingOver(driver: RuntimeDriver): RuntimeDriver {
  const create = (spec: SandboxSpec, signal?: AbortSignal) => {
    if (spec.from !== undefined) return driver.create(spec, signal)
    // What cannot be prepared cannot be created either, and that is what the caller tests.
    const ready = driver.prepare({ ...spec, ...prepared }, signal).catch(() => undefined)
    return ready.then(() => driver.create(spec, signal))
  }
  return new Proxy(driver, {
    get(target, key) {
      if (key === 'create') return create
      const value: unknown = Reflect.get(target, key, target)
      return typeof value === 'function' ? (value.bind(target) as unknown) : value
    },
  })
}

const makeFixture = async (): Promise<DriverFixture> => {
  const fixture = await makeRuncFixture({ subnet: '10.231.144.0/20' })
  return { ...fixture, makeDriver: (options) => takingOver(fixture.makeDriver(options)) }
}

driverConformance('runc, warm', makeFixture, [
  lifeConformance,
  changeConformance,
  limitConformance,
  isolationConformance,
])
