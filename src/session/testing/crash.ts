import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { assertWhole, orgId, simple, World } from './world.ts'

const pollMs = 5
/** Calls that are no steps of their own: they answer at once and change nothing that outlives the server. */
const uncounted = new Set(['hostname', 'keepAlive', 'close'])

/**
 * A server that dies at its nth call of a port: `before` the call happens or `after` it has happened and nobody hears of
 * it. From then on none of its calls happens or returns.
 */
export class Crash {
  readonly died: Promise<'died'>
  happened = false
  #left: number
  readonly #mode: 'before' | 'after'
  #die!: (value: 'died') => void

  constructor(at: number, mode: 'before' | 'after') {
    this.#left = at
    this.#mode = mode
    this.died = new Promise((resolve) => (this.#die = resolve))
  }

  /** The port as the dying server has it. */
  readonly wrap = <Port extends object>(port: Port): Port =>
    new Proxy(port, {
      get: (target, name) => {
        const value: unknown = Reflect.get(target, name)
        if (typeof value === 'object' && value !== null) return this.wrap(value)
        if (typeof value !== 'function') return value
        const call = value as (...parameters: unknown[]) => unknown
        if (name === Symbol.asyncIterator) return () => this.wrap(call.call(target) as object)
        if (typeof name === 'symbol' || uncounted.has(name)) return call.bind(target)
        return (...parameters: unknown[]) => this.#call(() => call.apply(target, parameters))
      },
    })

  async #call(call: () => unknown): Promise<unknown> {
    if (this.happened) return await forever()
    this.#left -= 1
    if (this.#left > 0) {
      const result = await call()
      if (this.happened) return await forever()
      return isAttachment(result) ? this.wrap(result) : result
    }
    if (this.#mode === 'before') this.die()
    else await Promise.resolve(call()).finally(() => this.die())
    return await forever()
  }

  /** Runs a story on the dying server. Returns whether it died within; if not it dies at the end: it would go on beside the next server. */
  async within(story: () => Promise<unknown>): Promise<boolean> {
    const told = story()
    told.catch(() => {})
    await Promise.race([told, this.died])
    const { happened } = this
    if (!happened) this.die()
    return happened
  }

  /** Waits, in its story, until this holds or it is dead. */
  async until(holds: () => Promise<boolean>): Promise<void> {
    while (!this.happened && !(await holds())) await sleep(pollMs)
  }

  /** At once, between two calls. */
  die(): void {
    this.happened = true
    this.#die('died')
  }
}

/**
 * One session with two messages, on a server that dies at its nth call; another one takes over. Whatever the moment, each
 * accepted message has its turn, each thing the agent said is in the stream once, and one agent ran in one sandbox.
 * Returns false when the first server came to the end without that many calls.
 */
export async function surviveCrash(at: number, mode: 'before' | 'after'): Promise<boolean> {
  const world = new World()
  const { store } = world
  const crash = new Crash(at, mode)
  const first = world.serve({}, crash.wrap, true)
  const happened = await crash.within(async () => {
    const { session } = await first.create(orgId, simple)
    await first.sendMessage(orgId, session.id, { message: 'b', userId: 'u1' })
    await crash.until(async () => (await store.head(session.id))?.activity === 'idle')
  })
  await world.afterDeath()
  const second = world.serve()
  await second.start()
  const [session] = await store.sessionsIn('running')
  if (session) {
    await world.until(session.id, 'idle')
    await assertWhole(world, session.id)
    const accepted = (await store.messages(session.id)).filter(({ role }) => role === 'user')
    assert.ok(accepted.every(({ state }) => state === 'consumed'))
    const said = (await world.streamed(session.id)).filter(({ data }) => data.type === 'assistant')
    assert.deepEqual(
      said.map(({ data }) => (data['message'] as { content: { text: string }[] }).content[0]!.text),
      accepted.flatMap(({ content }) => [`working on ${content}`, `done with ${content}`]),
    )
    const types = await world.types(session.id)
    assert.equal(types.filter((type) => type === 'ready').length, 1)
    assert.equal(types.filter((type) => type === 'configured').length, 1)
    assert.equal(types.includes('error'), false)
    assert.equal(world.sandboxes.agents.length, 1)
    assert.deepEqual([...world.sandboxes.machines.keys()], [session.sandboxId])
    const events = await world.eventTypes(session.id)
    for (const once of ['sandbox_ready', 'agent_ready']) assert.equal(events.filter((type) => type === once).length, 1)
    await second.delete(orgId, session.id)
  } else {
    assert.equal(world.sandboxes.machines.size, 0)
  }
  await world.close()
  return happened
}

function isAttachment(value: unknown): value is object {
  return typeof value === 'object' && value !== null && Symbol.asyncIterator in value
}

function forever(): Promise<never> {
  return new Promise(() => {})
}
