import { after, before } from 'node:test'
import { makeWorld } from './world.ts'
import type { World, WorldOptions } from './world.ts'

/**
 * A world for all tests of a file: made before the first test, closed after the last. `setUp` runs once it is made; hooks at the
 * top level of a file run concurrently, so a second `before` would not wait.
 */
export function useWorld(options?: WorldOptions, setUp?: () => Promise<void>): World {
  const world = {} as World
  before(async () => {
    Object.assign(world, await makeWorld(options))
    await setUp?.()
  })
  after(() => world.close())
  return world
}
