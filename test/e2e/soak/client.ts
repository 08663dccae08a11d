import { setTimeout as sleep } from 'node:timers/promises'
import type { Random } from './random.ts'
import type { Box, Saving } from './sandbox.ts'
import { type Answer, type CallOptions, call } from './calls.ts'
import type { World } from './world.ts'

const restMsMax = 80
/** How many of the sandboxes half of all is done to, so that clients meet. */
const busyMax = 2

/** One client: does one thing after the other, each chosen by its own random numbers. */
export class Client {
  readonly world: World
  readonly name: string
  readonly random: Random
  #generation = 0

  constructor(world: World, name: string, random: Random) {
    this.world = world
    this.name = name
    this.random = random
  }

  /** The file of a sandbox that this client alone writes. */
  get file(): string {
    return `${this.name}-${this.#generation}`
  }

  /** From now on it writes another file: of the last one nobody knows what is in it. */
  nextFile(): void {
    this.#generation += 1
  }

  async call(box: Box | undefined, method: string, path: string, options?: CallOptions): Promise<Answer | undefined> {
    return await call(this.world, box, method, path, options)
  }

  /** On the path of a sandbox. */
  async ask(box: Box, method: string, path: string, options?: CallOptions): Promise<Answer | undefined> {
    return await this.call(box, method, `/api/sandboxes/${box.id}${path}`, options)
  }

  box(): Box | undefined {
    const { boxes } = this.world
    return this.#any(this.random.next() < 0.5 ? boxes.slice(0, busyMax) : boxes)
  }

  saving(of?: Box): Saving | undefined {
    return this.#any(this.world.savings.filter((saving) => of === undefined || saving.box === of))
  }

  async rest(): Promise<void> {
    await sleep(this.random.between(0, restMsMax), undefined, { signal: this.world.over }).catch(() => {})
  }

  #any<Item>(items: readonly Item[]): Item | undefined {
    return items.length === 0 ? undefined : items[this.random.between(0, items.length - 1)]
  }
}
