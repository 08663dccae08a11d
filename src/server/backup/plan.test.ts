import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { CutSubvolume } from '../../runtime/index.ts'
import type { Manifest } from './manifest.ts'
import { receiveOrder, StreamPlan } from './plan.ts'

function subvolume(path: string, facts: Partial<CutSubvolume> = {}): CutSubvolume {
  const base = { path, isReadOnly: path.startsWith('layers/'), uuid: `uuid of ${path}`, createdIn: 1, generation: 1 }
  return { ...base, id: `id of ${path}`, isNew: true, ...facts }
}

const part = (bytes: number) => ({ file: 'streams/x', bytes, sha256: '0'.repeat(64) })

/** Plans one backup after another, each of streams of `bytes`; returns which stream each built on. */
function backUp(plan: StreamPlan, bytes = 100): Record<string, string | undefined> {
  const parents: Record<string, string | undefined> = {}
  for (const each of plan.missing) {
    parents[each.path] = plan.parentOf(each)
    plan.add(each, part(bytes), parents[each.path])
  }
  return parents
}

test('stream plan: a disk builds on its newest checkpoint, a checkpoint on the one before, and strangers on nothing', () => {
  const ofDisk = { parentUuid: 'uuid of sandboxes/a' }
  const plan = new StreamPlan(
    [
      subvolume('sandboxes/a'),
      subvolume('layers/second', { ...ofDisk, createdIn: 9 }),
      subvolume('layers/first', { ...ofDisk, createdIn: 5 }),
      subvolume('sandboxes/b'),
      subvolume('memory'),
    ],
    [],
    undefined,
  )
  assert.deepEqual(backUp(plan), {
    'layers/first': undefined,
    'layers/second': 'id of layers/first',
    'sandboxes/a': 'id of layers/second',
    'sandboxes/b': undefined,
    memory: undefined,
  })
  const { streams } = plan.result()
  const order = receiveOrder(streams)
  for (const [id, { parent }] of Object.entries(streams)) {
    assert.ok(parent === undefined || order.indexOf(parent) < order.indexOf(id), id)
  }
})

test('stream plan: what could not be read is built on by nothing', () => {
  const layer = subvolume('layers/a', { parentUuid: 'uuid of sandboxes/a' })
  const disk = subvolume('sandboxes/a')
  const plan = new StreamPlan([layer, disk], [], undefined)
  assert.equal(plan.parentOf(disk), undefined)
  plan.add(disk, part(1), undefined)
  assert.deepEqual(Object.keys(plan.result().subvolumes), ['sandboxes/a'])
})

test('stream plan: a chain grows by what has changed, starts anew when it has grown, and keeps only streams that are needed', () => {
  let last: Manifest | undefined
  const parents: (string | undefined)[] = []
  for (let turn = 0; turn < 200; turn += 1) {
    const id = `id ${turn}`
    const kept = last === undefined ? [] : [last.subvolumes['memory']?.id ?? '']
    const plan: StreamPlan = new StreamPlan([subvolume('memory', { id })], kept, last)
    parents.push(backUp(plan)['memory'])
    last = plan.result() as Manifest
    const depths = Object.values(last.streams).map(({ depth }) => depth)
    assert.deepEqual(
      depths.toSorted((one, other) => one - other),
      [...depths.keys()],
      'one chain',
    )
  }
  assert.equal(parents[1], 'id 0')
  const whole = parents.flatMap((parent, turn) => (parent === undefined ? [turn] : []))
  assert.deepEqual(whole, [0, 65, 130, 195])
})

test('stream plan: a chain with more changes than content starts anew', () => {
  const large = 100 * 1024 * 1024
  let last: Manifest | undefined
  const parents: (string | undefined)[] = []
  for (let turn = 0; turn < 5; turn += 1) {
    const kept = last === undefined ? [] : Object.keys(last.streams)
    const plan: StreamPlan = new StreamPlan([subvolume('memory', { id: `id ${turn}` })], kept, last)
    parents.push(backUp(plan, large)['memory'])
    last = plan.result() as Manifest
  }
  assert.deepEqual(parents, [undefined, 'id 0', 'id 1', undefined, 'id 3'])
})

test('stream plan: without its snapshot in the pool, or of another subvolume of the same path, a stream stands for itself', () => {
  const first = new StreamPlan([subvolume('memory', { id: 'a' })], [], undefined)
  backUp(first)
  const last = first.result() as Manifest
  assert.equal(backUp(new StreamPlan([subvolume('memory', { id: 'b' })], ['a'], last))['memory'], 'a')
  assert.equal(backUp(new StreamPlan([subvolume('memory', { id: 'b' })], [], last))['memory'], undefined)
  const other = subvolume('memory', { id: 'b', uuid: 'another' })
  assert.equal(backUp(new StreamPlan([other], ['a'], last))['memory'], undefined)
  const unchanged = new StreamPlan([subvolume('memory', { id: 'a', isNew: false })], [], last)
  assert.deepEqual(unchanged.missing, [])
  assert.deepEqual(Object.keys(unchanged.result().streams), ['a'])
})
