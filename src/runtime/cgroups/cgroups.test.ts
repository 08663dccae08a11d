import assert from 'node:assert/strict'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { test, type TestContext } from 'node:test'
import { temporaryFolder } from '../testing/temporary-folder.ts'
import { Cgroups } from './index.ts'
import { CgroupV1, CgroupV2 } from './hierarchy.ts'

/** A folder tree that looks like hierarchies; files as given, by their paths in it. */
async function makeTree(t: TestContext, files: Record<string, string>): Promise<string> {
  const folder = await temporaryFolder(t)
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(`${folder}/${path}`), { recursive: true })
    await writeFile(`${folder}/${path}`, text)
  }
  return folder
}

const stat = 'anon 600\nfile 350\nshmem 50\nactive_file 100\ninactive_file 200\nslab_reclaimable 40\nworkingset_x 7\n'

test('a memory limit: less than a group of version 2 holds and the kernel cannot reclaim is refused; version 1 checks itself', async (t) => {
  const folder = await makeTree(t, {
    'two/a/memory.current': '1000\n',
    'two/a/memory.stat': stat,
    'one/a/memory.usage_in_bytes': '1000\n',
    'one/a/memory.stat': stat,
  })
  const both = new Cgroups([new CgroupV1(`${folder}/one`), new CgroupV2(`${folder}/two`)])
  await both.assertMemoryFits('/a', 660)
  await assert.rejects(both.assertMemoryFits('/a', 659), { code: 'conflict' })
  await both.assertMemoryFits('/missing', 1)
  await new Cgroups([new CgroupV1(`${folder}/one`)]).assertMemoryFits('/a', 1)
})

test('process limit: all sandboxes together leave processes to the host, in each version that counts them', async (t) => {
  const folder = await makeTree(t, {
    'pids/cgroup.procs': '',
    'cpu,cpuacct/cgroup.procs': '',
    'unified/cgroup.controllers': 'cpu pids memory\n',
    'unified/cgroup.subtree_control': '',
    'bare/cgroup.controllers': '\n',
    'bare/cgroup.subtree_control': '',
  })
  const first = ['pids', 'cpu,cpuacct'].map((name) => new CgroupV1(`${folder}/${name}`))
  const second = ['unified', 'bare'].map((name) => new CgroupV2(`${folder}/${name}`))
  await new Cgroups([...first, ...second]).limitProcesses('/all')
  const most = Number(await readFile('/proc/sys/kernel/pid_max', 'utf8'))
  for (const name of ['pids', 'unified']) {
    const limit = Number(await readFile(`${folder}/${name}/all/pids.max`, 'utf8'))
    assert.ok(limit > 0 && limit <= most * 0.75)
  }
  assert.equal(await readFile(`${folder}/unified/cgroup.subtree_control`, 'utf8'), '+pids')
  for (const name of ['cpu,cpuacct', 'bare']) {
    await assert.rejects(readFile(`${folder}/${name}/all/pids.max`), { code: 'ENOENT' })
  }
})

test('oom kills: read in each version, and 0 where none counts them', async (t) => {
  const folder = await makeTree(t, {
    'two/a/memory.events': 'low 0\noom 3\noom_kill 2\noom_group_kill 1\n',
    'one/a/memory.oom_control': 'oom_kill_disable 0\nunder_oom 0\noom_kill 5\n',
    'cpu/a/cgroup.procs': '',
  })
  const [one, two, cpu] = [new CgroupV1(`${folder}/one`), new CgroupV2(`${folder}/two`), new CgroupV1(`${folder}/cpu`)]
  assert.equal(await new Cgroups([cpu, two]).oomKills('/a'), 2)
  assert.equal(await new Cgroups([cpu, one, new CgroupV2(`${folder}/unified`)]).oomKills('/a'), 5)
  assert.equal(await new Cgroups([cpu]).oomKills('/a'), 0)
})

test('usage: each version counts processor time, memory without the cache of files, and processes', async (t) => {
  const folder = await makeTree(t, {
    'cpuacct/a/cpuacct.usage': '5000999\n',
    'memory/a/memory.usage_in_bytes': '1000\n',
    'memory/a/memory.stat': 'cache 9\ninactive_file 1\ntotal_inactive_file 200\ntotal_active_file 100\n',
    'memory/a/cgroup.procs': '7\n8\n9\n',
    'two/a/cpu.stat': 'usage_usec 4000\nuser_usec 3000\n',
    'two/a/memory.current': '1000\n',
    'two/a/memory.stat': stat,
    'two/a/cgroup.procs': '7\n',
    'unified/a/cpu.stat': 'usage_usec 0\n',
    'unified/a/cgroup.procs': '',
  })
  const first = [new CgroupV1(`${folder}/cpuacct`), new CgroupV1(`${folder}/memory`)]
  const both = new Cgroups([new CgroupV2(`${folder}/unified`), ...first])
  assert.deepEqual(both.usage('/a'), { cpuUs: 5000, memoryBytes: 700, processCount: 3 })
  const second = new Cgroups([new CgroupV2(`${folder}/two`)])
  assert.deepEqual(second.usage('/a'), { cpuUs: 4000, memoryBytes: 660, processCount: 1 })
  assert.equal(second.usage('/b'), undefined)
})

test('swap accounting: read from the hierarchy that limits memory', async (t) => {
  const folder = await makeTree(t, {
    'one/memory.limit_in_bytes': '1',
    'unified/cgroup.controllers': '\n',
    'two/cgroup.controllers': 'memory\n',
    'two/a/memory.max': 'max',
    'two/a/memory.swap.max': 'max',
  })
  const hybrid = new Cgroups([new CgroupV2(`${folder}/unified`), new CgroupV1(`${folder}/one`)])
  assert.equal(await hybrid.countsSwap(), false)
  assert.equal(await new Cgroups([new CgroupV2(`${folder}/two`)]).countsSwap(), true)
  assert.equal(await new Cgroups([]).countsSwap(), false)
})

test('thaw: writes the freezer file of each version', async (t) => {
  const folder = await makeTree(t, {
    'freezer/a/freezer.state': 'FROZEN',
    'freezer/a/cgroup.procs': '7\n8\n',
    'two/a/cgroup.freeze': '1',
    'two/a/cgroup.procs': '9\n',
  })
  const [one, two] = [new CgroupV1(`${folder}/freezer`), new CgroupV2(`${folder}/two`)]
  const cgroups = new Cgroups([two, one])
  await cgroups.thaw('/a')
  assert.equal(await readFile(`${folder}/two/a/cgroup.freeze`, 'utf8'), '0')
  assert.equal(await readFile(`${folder}/freezer/a/freezer.state`, 'utf8'), 'THAWED')
  assert.deepEqual(await cgroups.members('/a'), [9])
  assert.deepEqual(cgroups.memberFiles('/a'), [`${folder}/two/a/cgroup.procs`, `${folder}/freezer/a/cgroup.procs`])
})

test('thaw: a group that is gone is harmless', async (t) => {
  const folder = await makeTree(t, { 'two/cgroup.controllers': '\n' })
  await new Cgroups([new CgroupV2(`${folder}/two`)]).thaw('/a')
})
