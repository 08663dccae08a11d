import assert from 'node:assert/strict'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { test } from 'node:test'
import { temporaryFolder } from '../testing/temporary-folder.ts'
import { CgroupV1 } from './v1.ts'
import { CgroupV2 } from './v2.ts'
import { Cgroups } from './index.ts'
import { formatProcessors, parseProcessors, Processors } from './processors.ts'

/** Groups of a machine with these processors; `has` is what they were given while they ran. */
function machine(allowed: number[]) {
  const has = new Map<string, readonly number[] | undefined>()
  const starting = new Set<string>()
  const set = (group: string, processors: readonly number[] | undefined) => {
    if (starting.has(group)) return false
    has.set(group, processors)
    return true
  }
  return { allowed, has, starting, groups: { allowed: () => allowed, set } }
}

test('processors: each group gets those that the fewest have; a fraction counts as the next whole number', () => {
  const processors = new Processors(machine([0, 1, 4, 5]).groups)
  assert.deepEqual(processors.choose('/a', 1), [0])
  assert.deepEqual(processors.choose('/b', 1.5), [1, 4])
  assert.deepEqual(processors.choose('/c', 0.1), [5])
  assert.deepEqual(processors.choose('/d', 3), [0, 1, 4])
  assert.deepEqual(processors.choose('/e', 1), [5])
})

test('processors: a group that may use as many as there are has all, and counts nowhere', () => {
  const processors = new Processors(machine([2, 3]).groups)
  for (const count of [1.5, 2, 64]) assert.equal(processors.choose('/all', count), undefined)
  assert.deepEqual(processors.choose('/a', 1), [2])
  assert.deepEqual(processors.choose('/b', 1), [3])
})

test('processors: a group keeps what it has when it gets more or fewer, and loses what has gone offline', () => {
  const host = machine([0, 1, 2, 3])
  const processors = new Processors(host.groups, new Map([['/a', [3]]]))
  processors.change('/a', 2)
  assert.deepEqual(host.has.get('/a'), [3, 0])
  processors.change('/a', 1)
  assert.deepEqual(host.has.get('/a'), [0])
  processors.change('/a', 4)
  assert.equal(host.has.get('/a'), undefined)
  processors.change('/a', 1)
  host.allowed.splice(0, 1)
  processors.change('/a', 1)
  assert.deepEqual(host.has.get('/a'), [1])
})

test('processors: those of a released group go to the next; of what is left, none shares one while another is free', () => {
  const host = machine([0, 1])
  const given = [0, 1, 0, 1].map((processor, index): [string, number[]] => [`/${index}`, [processor]])
  const processors = new Processors(host.groups, new Map(given))
  processors.release('/1')
  processors.balance()
  assert.deepEqual([...host.has], [])
  processors.release('/3')
  // It has its own in its configuration.
  host.starting.add('/0')
  processors.balance()
  assert.deepEqual([...host.has], [['/2', [1]]])
  assert.deepEqual(processors.choose('/4', 1), [0])
})

test('processors: a group that the kernel refuses to change keeps its own', () => {
  const refusal = Object.assign(new Error('refused'), { code: 'EACCES' })
  const set = () => {
    throw refusal
  }
  const processors = new Processors({ allowed: () => [0, 1], set }, new Map([0, 1].map((name) => [`/${name}`, [0]])))
  processors.balance()
  assert.deepEqual(processors.choose('/0', 1), [0])
  assert.throws(() => processors.change('/1', 1), refusal)
})

test('processors: lists of the kernel are read and written', () => {
  assert.deepEqual(parseProcessors('0-2,5,8-9\n'), [0, 1, 2, 5, 8, 9])
  assert.deepEqual(parseProcessors('\n'), [])
  assert.equal(formatProcessors([10, 2, 3]), '2,3,10')
})

/** Hierarchies with a group `/all` and groups of sandboxes, of which `/all/old` has processor 1 alone. */
const trees = {
  'cpuset/cpuset.effective_cpus': '0-3\n',
  'cpuset/all/cpuset.effective_cpus': '0-2\n',
  'cpuset/all/old/cpuset.cpus': '1\n',
  'two/cgroup.controllers': 'cpuset cpu\n',
  'two/cgroup.subtree_control': '',
  'two/all/cgroup.subtree_control': '',
  'two/all/cpuset.cpus.effective': '0-2\n',
  'two/all/old/cpuset.cpus': '1\n',
  'other/cgroup.controllers': 'cpu memory\n',
  'undivided/cgroup.controllers': 'cpuset\n',
}

test('processors: groups of either version share those of the group above, and those of an earlier server are known', async (t) => {
  const folder = await temporaryFolder(t)
  for (const [path, text] of Object.entries(trees)) {
    await mkdir(dirname(`${folder}/${path}`), { recursive: true })
    await writeFile(`${folder}/${path}`, text)
  }
  const [one, two] = [new CgroupV1(`${folder}/cpuset`), new CgroupV2(`${folder}/two`)]
  for (const hierarchy of [one, two]) {
    const cgroups = new Cgroups([new CgroupV1(`${folder}/memory`), new CgroupV2(`${folder}/other`), hierarchy])
    await cgroups.divideProcessors('/all')
    const processors = cgroups.processors ?? assert.fail('they can be divided')
    assert.deepEqual(processors.choose('/all/new', 2), [0, 2])
    processors.change('/all/old', 3)
    const file = `${hierarchy.path}/all/old/cpuset.cpus`
    assert.equal((await readFile(file, 'utf8')).trim(), '0,1,2')
    await writeFile(file, '1\n')
  }
  for (const file of ['two', 'two/all']) {
    assert.equal(await readFile(`${folder}/${file}/cgroup.subtree_control`, 'utf8'), '+cpuset')
  }
  for (const name of ['other', 'undivided']) {
    const cgroups = new Cgroups([new CgroupV2(`${folder}/${name}`)])
    await cgroups.divideProcessors('/all')
    assert.equal(cgroups.processors, undefined)
  }
})
