/** The counts of an inventory against a look at all records, over whatever happens to these. */
import assert from 'node:assert/strict'
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { test } from 'node:test'
import fc from 'fast-check'
import { isServiceError } from '../../errors.ts'
import { type DiskPool, layerOf } from '../disk/index.ts'
import { exists } from '../exists.ts'
import type { HostTool } from '../hostd/index.ts'
import { checkpointMemory, Inventory, savedMemory } from './inventory.ts'
import { basedOn, type CheckpointRecord, type SandboxRecord } from './records.ts'
import { checkpointRecord, memoryOf, sandboxRecord } from './testing/records.ts'

const slots = 6
const folders = ['layers', 'memory/checkpoints', 'memory/saved']
const kinds = [
  ...['create', 'fork', 'restore', 'restore', 'save', 'forget', 'delete', 'checkpoint', 'checkpoint', 'fullCheckpoint'],
  ...['failedCheckpoint', 'deleteCheckpoint', 'quarantine', 'quarantineCheckpoint', 'spoil', 'takeBack', 'expire'],
  ...['unwritable', 'stick', 'unstick', 'hold', 'release', 'removeUnused', 'reload', 'atOnce'],
] as const

interface Step {
  kind: (typeof kinds)[number]
  /** Which of those that there are. */
  one: number
  other: number
}

const anyStep = fc.record({ kind: fc.constantFrom(...kinds), one: fc.nat(20), other: fc.nat(20) })

/** A data directory whose pool is plain folders, and what has been done to it. */
class World {
  readonly #pool: Pick<DiskPool, 'path' | 'list' | 'remove'>
  readonly inventory: Inventory
  /** Folders that cannot be removed now. */
  readonly #stuck = new Set<string>()
  readonly #held: { record: SandboxRecord; release: () => void }[] = []
  #ids = 0

  constructor(dataDir: string) {
    const path = (relative: string) => `${dataDir}/pool/${relative}`
    const remove = async (relative: string) => {
      if (this.#stuck.has(relative)) throw new Error('took too long')
      await rm(path(relative), { recursive: true, force: true })
    }
    this.#pool = { path, list: (relative) => readdir(path(relative)), remove }
    const hostd: HostTool = {
      run: () => assert.fail('no program is run'),
      runTool: async (request) => {
        assert.ok(request.op === 'remove-folders')
        for (const folder of request.dirs) await remove(folder.slice(path('').length))
        return ''
      },
      runProgram: () => assert.fail('there is no program to be run'),
    }
    const names = { dataDir, hash: '00000000' }
    this.inventory = new Inventory({ names, hostd, pool: this.#pool, slots, log: () => undefined })
  }

  /** What a look at all records says: the paths that any of them names. */
  needed(): Set<string> {
    const owners = this.#owners()
    const layers = owners.flatMap((owner) => owner.layers.map(({ checkpointId }) => layerOf(checkpointId)))
    return new Set([...layers, ...owners.flatMap(({ memory }) => memory?.folder ?? [])])
  }

  async inPool(): Promise<string[]> {
    const paths: string[] = []
    for (const folder of folders) for (const name of await this.#pool.list(folder)) paths.push(`${folder}/${name}`)
    return paths
  }

  /** Whether nothing keeps what is unused from being removed: no record that nobody can read, and nothing stuck. */
  get isClear(): boolean {
    return !this.inventory.quarantine.hasUnreadable && this.#stuck.size === 0
  }

  /** Addresses and ranges that are taken. */
  taken(): { slots: Set<number>; ranges: Set<number> } {
    const owners = this.#owners()
    const sandboxes = owners.filter((owner) => 'slot' in owner)
    const ranges = [...sandboxes, ...owners.flatMap(({ layers }) => layers)].map(({ rangeStart }) => rangeStart)
    return { slots: new Set(sandboxes.map(({ slot }) => slot)), ranges: new Set(ranges) }
  }

  async settle(): Promise<void> {
    this.#stuck.clear()
    await this.inventory.removeUnused()
  }

  async do({ kind, one, other }: Step): Promise<void> {
    const { inventory } = this
    const { sandboxes, checkpoints, quarantine } = inventory
    const sandbox = pick(sandboxes.all(), one)
    const checkpoint = pick(checkpoints.all(), other)
    const item = pick(quarantine.items, one)
    const steps: Record<Step['kind'], () => unknown> = {
      create: () => this.#create(undefined),
      fork: () => this.#create(checkpoint),
      restore: async () => {
        if (sandbox === undefined || checkpoint === undefined) return
        const release = inventory.hold(sandbox)
        await sandboxes.put({ ...sandbox, ...basedOn(checkpoint, sandbox, 'boot') })
        // Now and then it fails.
        if (one % 2 === 0) await sandboxes.put(sandbox)
        release()
        await inventory.removeUnused()
      },
      save: async () => {
        if (sandbox === undefined) return
        const { bytes, ...memory } = memoryOf(sandbox.id, { folder: savedMemory(sandbox.id) })
        await sandboxes.put({ ...sandbox, memory })
        await mkdir(this.#pool.path(memory.folder))
        await sandboxes.put({ ...sandbox, memory: { ...memory, bytes } })
      },
      forget: async () => {
        if (sandbox === undefined) return
        const { memory: _, ...rest } = sandbox
        await sandboxes.put(rest)
        await inventory.removeUnused()
      },
      delete: () => this.#delete(sandboxes, sandbox),
      deleteCheckpoint: () => this.#delete(checkpoints, checkpoint),
      checkpoint: () => this.#checkpoint(sandbox, false, false),
      fullCheckpoint: () => this.#checkpoint(sandbox, true, false),
      failedCheckpoint: () => this.#checkpoint(sandbox, other % 2 === 0, true),
      quarantine: () => sandbox && inventory.moveToQuarantine({ kind: 'sandbox', id: sandbox.id, reason: 'unknown' }),
      quarantineCheckpoint: () =>
        checkpoint && inventory.moveToQuarantine({ kind: 'checkpoint', id: checkpoint.id, reason: 'unknown' }),
      spoil: async () => {
        const id = this.#freshId('sb')
        await writeFile(sandboxes.file(id), '{')
        await inventory.moveToQuarantine({ kind: 'sandbox', id, reason: 'unreadable' })
      },
      takeBack: () => item && inventory.takeBack(item).catch(isConflict),
      expire: () => item && inventory.removeFromQuarantine(item),
      unwritable: async () => {
        if (sandbox === undefined) return
        // The temporary path of the new record.
        const inTheWay = `${sandboxes.file(sandbox.id)}.new`
        await mkdir(inTheWay)
        const standing = checkpoint === undefined ? { layers: [] } : basedOn(checkpoint, sandbox, 'boot')
        const put = assert.rejects(sandboxes.put({ ...sandbox, ...standing }), { code: 'EISDIR' })
        await inventory.removeUnused()
        await put
        await rm(inTheWay, { recursive: true })
      },
      stick: async () => {
        const path = pick(await this.inPool(), one)
        if (path !== undefined) this.#stuck.add(path)
      },
      unstick: () => this.#stuck.clear(),
      hold: () => sandbox && this.#held.push({ record: sandbox, release: inventory.hold(sandbox) }),
      release: () => {
        const held = this.#held.pop()
        held?.release()
        held?.release()
      },
      removeUnused: () => inventory.removeUnused(),
      reload: async () => {
        // A layer without a reference, left by a server that died.
        await mkdir(this.#pool.path(`layers/${this.#freshId('cp')}`))
        await inventory.load()
        await inventory.removeAllUnused()
      },
      atOnce: () =>
        Promise.all([
          this.#delete(checkpoints, checkpoint),
          this.#delete(sandboxes, sandbox),
          this.#create(checkpoint),
        ]),
    }
    await steps[kind]()
  }

  async #delete(records: { remove(id: string): Promise<void> }, record: { id: string } | undefined): Promise<void> {
    if (record === undefined) return
    await records.remove(record.id)
    await this.inventory.removeUnused()
  }

  async #create(from: CheckpointRecord | undefined): Promise<void> {
    const { inventory } = this
    const taken = this.taken()
    if (taken.slots.size === slots) {
      assert.throws(() => inventory.claim(), { code: 'no_capacity' })
      return
    }
    const claimed = inventory.claim()
    assert.ok(!taken.slots.has(claimed.slot) && !taken.ranges.has(claimed.rangeStart))
    const based = from === undefined ? {} : basedOn(from, { guest: '/' }, 'boot')
    await inventory.sandboxes.put(sandboxRecord(this.#freshId('sb'), 0, { ...claimed, ...based }))
  }

  async #checkpoint(sandbox: SandboxRecord | undefined, full: boolean, fails: boolean): Promise<void> {
    if (sandbox === undefined) return
    const id = this.#freshId('cp')
    const made = this.inventory.addCheckpoint(id, async () => {
      await mkdir(this.#pool.path(layerOf(id)))
      if (full) await mkdir(this.#pool.path(checkpointMemory(id)))
      await this.inventory.removeUnused()
      assert.ok(await exists(this.#pool.path(layerOf(id))), 'what is on its way stays')
      if (fails) throw new Error('the dump failed')
      const layers = [{ checkpointId: id, rangeStart: sandbox.rangeStart }, ...sandbox.layers]
      const memory = { ...memoryOf(id, { folder: checkpointMemory(id) }), guest: '/' }
      return checkpointRecord(id, full ? { kind: 'full', layers, memory } : { layers })
    })
    await (fails ? assert.rejects(made, /the dump failed/) : made)
  }

  #owners(): (SandboxRecord | CheckpointRecord)[] {
    const { sandboxes, checkpoints, quarantine } = this.inventory
    const quarantined = quarantine.items.flatMap(({ record }) => record ?? [])
    return [...sandboxes.all(), ...checkpoints.all(), ...quarantined, ...this.#held.map(({ record }) => record)]
  }

  #freshId(prefix: string): string {
    this.#ids += 1
    return `${prefix}-${this.#ids}`
  }
}

function pick<T>(all: readonly T[], index: number): T | undefined {
  return all[index % Math.max(1, all.length)]
}

function isConflict(error: unknown): void {
  assert.ok(isServiceError(error, 'conflict'), String(error))
}

test('inventory: removes exactly what no record names, in any order of operations', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(anyStep, { minLength: 10, maxLength: 60 }), async (steps) => {
      const dataDir = await mkdtemp(`${tmpdir()}/atoll-inventory-`)
      try {
        for (const folder of [...folders, 'sandboxes']) await mkdir(`${dataDir}/pool/${folder}`, { recursive: true })
        const world = new World(dataDir)
        await world.inventory.load()
        for (const step of steps) {
          const before = await world.inPool()
          await world.do(step)
          const [needed, after] = [world.needed(), new Set(await world.inPool())]
          assert.deepEqual(
            before.filter((path) => needed.has(path) && !after.has(path)),
            [],
            `${step.kind} removed what a record names`,
          )
          for (const path of [...before, ...after].filter((found) => found.startsWith('layers/'))) {
            assert.equal(world.inventory.isReferenced(path.slice('layers/'.length)), needed.has(path))
          }
        }
        await world.settle()
        if (!world.isClear) return
        const needed = world.needed()
        assert.deepEqual(
          (await world.inPool()).filter((path) => !needed.has(path)),
          [],
          'something is left that no record names',
        )
      } finally {
        await rm(dataDir, { recursive: true })
      }
    }),
    { numRuns: 60 },
  )
})
