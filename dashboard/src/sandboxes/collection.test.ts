import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import type { EventInfo, SandboxInfo } from 'atoll-sdk'
import { SandboxCollection } from './collection.ts'

const stepMs = 50

class World {
  /** Newest first, as the server lists them. */
  readonly sandboxes = new Map<string, SandboxInfo>()
  readonly reads: string[] = []
  lists = 0
  mostAtOnce = 0
  fault: Error | undefined
  /** Told before each item of a list is given. */
  onItem: ((id: string) => void) | undefined
  readonly collection: SandboxCollection
  readonly #t: TestContext
  #atOnce = 0

  constructor(t: TestContext) {
    t.mock.timers.enable({ apis: ['setTimeout'] })
    this.#t = t
    this.collection = new SandboxCollection({ list: () => this.#list(), read: (id) => this.#read(id) })
  }

  /** The newest one comes last. */
  add(...ids: string[]): void {
    const known = [...this.sandboxes.entries()]
    this.sandboxes.clear()
    for (const id of ids.toReversed()) this.sandboxes.set(id, infoOf(id))
    for (const [id, info] of known) this.sandboxes.set(id, info)
  }

  change(id: string, change: Partial<SandboxInfo>): void {
    this.sandboxes.set(id, { ...infoOf(id), ...change })
  }

  happen(type: EventInfo['type'], id: string): void {
    this.collection.take({
      ...{ number: 1, id: 'e', ts: '2026-01-15T10:30:00Z', orgId: 'org', type, subject: id, sandboxId: id },
      ...{ actor: { type: 'key' }, cause: 'request', data: {} },
    })
  }

  async pass(ms: number): Promise<void> {
    for (let passed = 0; passed < ms; passed += stepMs) {
      await new Promise((resolve) => setImmediate(resolve))
      this.#t.mock.timers.tick(stepMs)
    }
    await new Promise((resolve) => setImmediate(resolve))
  }

  async *#list(): AsyncGenerator<SandboxInfo> {
    this.lists += 1
    if (this.fault !== undefined) throw this.fault
    for (const info of [...this.sandboxes.values()]) {
      this.onItem?.(info.sandboxID)
      await Promise.resolve()
      yield info
    }
  }

  async #read(id: string): Promise<SandboxInfo | undefined> {
    this.reads.push(id)
    this.#atOnce += 1
    this.mostAtOnce = Math.max(this.mostAtOnce, this.#atOnce)
    await new Promise((resolve) => setTimeout(resolve, stepMs))
    this.#atOnce -= 1
    return this.sandboxes.get(id)
  }

  get shown(): string {
    return this.collection
      .view()
      .rows.map(({ sandboxID, status }) => (status === 'running' ? sandboxID : `${sandboxID}:${status}`))
      .join(' ')
  }
}

function infoOf(sandboxID: string): SandboxInfo {
  return {
    ...{ sandboxID, status: 'running', region: 'local', workerID: 'w', sandboxDomain: 'd', memoryMB: 1, cpuCount: 1 },
    ...{ templateID: 'base', timeout: 0, onIdle: 'hibernate', maxAgeSeconds: 0, metadata: {}, tags: {} },
    ...{ tagsLastUpdatedAt: null, startedAt: '2026-01-15T10:30:00Z', endAt: null, expiresAt: null, volumes: [] },
  }
}

test('collection of sandboxes: the list is shown in its order, and a new sandbox stands first', async (t) => {
  const world = new World(t)
  world.add('a', 'b')
  assert.equal(world.collection.view().isLoading, true)
  world.collection.open()
  await world.pass(200)
  assert.equal(world.shown, 'b a')
  assert.equal(world.collection.view().isLoading, false)
  world.add('c')
  world.happen('sandbox.created', 'c')
  world.happen('sandbox.ready', 'c')
  await world.pass(600)
  assert.equal(world.shown, 'c b a')
  assert.deepEqual(world.reads, ['c'])
  assert.equal(world.lists, 1)
})

test('collection of sandboxes: an event reads its sandbox alone, once for a burst, a few at a time', async (t) => {
  const world = new World(t)
  const ids = Array.from({ length: 12 }, (_, index) => `s${index}`)
  world.add(...ids)
  world.collection.open()
  await world.pass(200)
  for (const id of ids) world.change(id, { status: 'hibernated' })
  for (let round = 0; round < 5; round += 1) for (const id of ids) world.happen('sandbox.hibernated', id)
  await world.pass(1000)
  assert.deepEqual(world.reads.toSorted(), ids.toSorted())
  assert.equal(world.mostAtOnce, 4)
  assert.equal(world.lists, 1)
  assert.match(world.shown, /^(s\d+:hibernated ?){12}$/)
})

test('collection of sandboxes: one that is stopped leaves without a read, and events that change nothing are passed over', async (t) => {
  const world = new World(t)
  world.add('a', 'b')
  world.collection.open()
  await world.pass(200)
  world.happen('sandbox.stopped', 'a')
  world.happen('sandbox.egress.denied', 'b')
  world.happen('session.working', 'b')
  await world.pass(600)
  assert.equal(world.shown, 'b')
  assert.deepEqual(world.reads, [])
})

test('collection of sandboxes: events about many read the list anew, and not again at once', async (t) => {
  const world = new World(t)
  const ids = Array.from({ length: 100 }, (_, index) => `s${index}`)
  world.add(...ids)
  world.collection.open()
  await world.pass(4000)
  for (let round = 0; round < 20; round += 1) {
    for (const id of ids) world.happen('sandbox.resumed', id)
    await world.pass(200)
  }
  await world.pass(4000)
  assert.deepEqual(world.reads, [])
  assert.ok(world.lists >= 2 && world.lists <= 4, `${world.lists} lists`)
})

test('collection of sandboxes: what an event has told wins over the list that is being read', async (t) => {
  const world = new World(t)
  world.add('a', 'b', 'c')
  world.collection.open()
  await world.pass(4000)
  // The list is read before the change, and given after it.
  world.onItem = (id) => {
    if (id !== 'c') return
    world.collection.put({ ...infoOf('a'), status: 'hibernated' })
    world.collection.put({ ...infoOf('b'), status: 'stopped' })
    world.collection.put(infoOf('d'))
  }
  world.collection.load()
  await world.pass(400)
  assert.equal(world.shown, 'd c a:hibernated')
})

test('collection of sandboxes: what the list no longer has leaves, and a fault keeps what is known', async (t) => {
  const world = new World(t)
  world.add('a', 'b')
  world.collection.open()
  await world.pass(4000)
  world.sandboxes.delete('a')
  world.collection.load()
  await world.pass(4000)
  assert.equal(world.shown, 'b')
  world.fault = new Error('away')
  world.collection.load()
  await world.pass(4000)
  assert.equal(world.shown, 'b')
  assert.equal(world.collection.view().error, world.fault)
  world.fault = undefined
  world.collection.load()
  await world.pass(400)
  assert.equal(world.collection.view().error, undefined)
})
