import { after, before } from 'node:test'
import { makeWorld } from './world.ts'
import type { World, WorldOptions } from './world.ts'

/** A world for all tests of a file: made before the first test, closed after the last. */
export function useWorld(options?: WorldOptions): World {
  const world = {} as World
  before(async () => void Object.assign(world, await makeWorld(options)))
  after(() => world.close())
  return world
}
