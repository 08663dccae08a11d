import assert from 'node:assert/strict'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { test, type TestContext } from 'node:test'
import { temporaryFolder } from '../testing/temporary-folder.ts'
import { Cgroups } from './index.ts'
import { CgroupV1 } from './v1.ts'
import { CgroupV2 } from './v2.ts'
import { ServiceGroup } from './service-group.ts'

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

test('weights: a group has one in each file that its hierarchies have, within the bounds of that file', async (t) => {
  const folder = await makeTree(t, {
    'cpu,cpuacct/a/cpu.shares': '',
    'cpu,cpuacct/b/cpu.shares': '',
    'blkio/a/blkio.bfq.weight': '',
    'blkio/b/blkio.bfq.weight': '',
    'unified/a/cpu.weight': '',
    'unified/a/io.weight': '',
  })
  const first = new Cgroups([new CgroupV1(`${folder}/cpu,cpuacct`), new CgroupV1(`${folder}/blkio`)])
  const second = new Cgroups([new CgroupV2(`${folder}/unified`)])
  const has = async (file: string) => (await readFile(`${folder}/${file}`, 'utf8')).trim()
  first.setWeight('/a', 250)
  second.setWeight('/a', 250)
  assert.deepEqual([first.weight('/a'), second.weight('/a')], [250, 250])
  assert.equal(await has('cpu,cpuacct/a/cpu.shares'), '256')
  assert.equal(await has('blkio/a/blkio.bfq.weight'), '25')
  assert.equal(await has('unified/a/io.weight'), 'default 250')
  first.setWeight('/b', 1)
  assert.equal(await has('cpu,cpuacct/b/cpu.shares'), '2')
  assert.equal(await has('blkio/b/blkio.bfq.weight'), '10')
  for (const cgroups of [first, second]) {
    cgroups.setWeight('/ended', 100)
    assert.equal(cgroups.weight('/ended'), undefined)
  }
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

test('work: a group has its limits in each hierarchy that has some of them', async (t) => {
  const folder = await makeTree(t, {
    'memory/work/a/memory.limit_in_bytes': '',
    'cpu,cpuacct/work/a/cpu.cfs_period_us': '',
    'cpu,cpuacct/work/a/cpu.cfs_quota_us': '',
    'freezer/cgroup.procs': '',
    'unified/cgroup.controllers': 'cpu memory pids\n',
    'unified/cgroup.subtree_control': '',
    'unified/work/cgroup.subtree_control': '',
    'unified/work/a/memory.max': '',
    'unified/work/a/cpu.max': '',
    'unified/work/a/pids.max': '',
    'bare/cgroup.controllers': '\n',
  })
  const first = ['memory', 'cpu,cpuacct', 'freezer'].map((name) => new CgroupV1(`${folder}/${name}`))
  const second = ['unified', 'bare'].map((name) => new CgroupV2(`${folder}/${name}`))
  const limits = { memoryBytes: 1000, processors: 2, processes: 10 }
  const made = await new Cgroups([...first, ...second]).makeLimited('/work', '/work/a', limits)
  assert.deepEqual(
    made,
    ['memory', 'cpu,cpuacct', 'unified'].map((name) => `${folder}/${name}/work/a`),
  )
  const has = (path: string) => readFile(`${folder}/${path}`, 'utf8')
  assert.equal(await has('memory/work/a/memory.limit_in_bytes'), '1000')
  assert.equal(await has('cpu,cpuacct/work/a/cpu.cfs_quota_us'), '200000')
  assert.equal(await has('unified/work/a/memory.max'), '1000')
  assert.equal(await has('unified/work/a/cpu.max'), '200000 100000')
  assert.equal(await has('unified/work/a/pids.max'), '10')
  assert.match(await has('unified/work/cgroup.subtree_control'), /\+pids/)
})

test('service group: it has its limits in each version, and holds a process only under the present ones', async (t) => {
  const folder = await makeTree(t, {
    'memory/db/memory.limit_in_bytes': '',
    'memory/db/cgroup.procs': '',
    'pids/db/pids.max': '',
    'pids/db/cgroup.procs': '',
    'cpu/cgroup.procs': '',
    'unified/cgroup.controllers': 'cpu memory pids\n',
    'unified/cgroup.subtree_control': '',
    'unified/db/memory.max': '',
    'unified/db/cpu.max': 'max 100000\n',
    'unified/db/pids.max': '',
    'unified/db/cgroup.procs': '',
  })
  const first = new Cgroups(['cpu', 'memory', 'pids'].map((name) => new CgroupV1(`${folder}/${name}`)))
  const second = new Cgroups([new CgroupV2(`${folder}/unified`)])
  for (const [cgroups, folders] of [
    [first, ['memory', 'pids']],
    [second, ['unified']],
  ] as const) {
    const group = new ServiceGroup(cgroups, '/db', { memoryBytes: 4096, processes: 10 })
    assert.deepEqual(
      await group.open(),
      folders.map((name) => `${folder}/${name}/db`),
    )
    assert.equal(await group.holds(process.pid), false)
    for (const name of folders) await writeFile(`${folder}/${name}/db/cgroup.procs`, `${process.pid}\n`)
    assert.equal(await group.holds(process.pid), true)
    for (const limits of [
      { memoryBytes: 8192, processes: 10 },
      { memoryBytes: 4096, processes: 11 },
    ]) {
      assert.equal(await new ServiceGroup(cgroups, '/db', limits).holds(process.pid), false)
    }
  }
  // It may use all processors.
  assert.equal(await readFile(`${folder}/unified/db/cpu.max`, 'utf8'), 'max 100000\n')
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

test('limits: what is in force is read alike from each version, over all hierarchies; without a limit it is infinite', async (t) => {
  const folder = await makeTree(t, {
    'memory/a/memory.limit_in_bytes': '1048576\n',
    'memory/a/memory.memsw.limit_in_bytes': '1048576\n',
    'memory/free/memory.limit_in_bytes': '9223372036854771712\n',
    'cpu/a/cpu.cfs_quota_us': '50000\n',
    'cpu/a/cpu.cfs_period_us': '100000\n',
    'cpu/free/cpu.cfs_quota_us': '-1\n',
    'pids/a/pids.max': '4096\n',
    'pids/free/pids.max': 'max\n',
    'two/a/memory.max': '1048576\n',
    'two/a/memory.swap.max': '0\n',
    'two/a/cpu.max': '50000 100000\n',
    'two/a/pids.max': '4096\n',
    'two/free/memory.max': 'max\n',
    'two/free/cpu.max': 'max 100000\n',
    'two/free/pids.max': 'max\n',
    'unified/a/cgroup.procs': '',
  })
  const wanted = { memoryBytes: 2 ** 20, memoryAndSwapBytes: 2 ** 20, cpuQuotaUs: 50_000, cpuPeriodUs: 100_000 }
  const first = ['memory', 'cpu', 'pids'].map((name) => new CgroupV1(`${folder}/${name}`))
  for (const hierarchies of [[...first, new CgroupV2(`${folder}/unified`)], [new CgroupV2(`${folder}/two`)]]) {
    const cgroups = new Cgroups(hierarchies)
    assert.deepEqual(cgroups.limits('/a'), { ...wanted, processes: 4096 })
    const { memoryBytes, cpuQuotaUs, processes } = cgroups.limits('/free')
    assert.deepEqual([memoryBytes, cpuQuotaUs, processes], [Infinity, Infinity, Infinity])
    assert.deepEqual(cgroups.limits('/missing'), {})
  }
})

test('disk rates: each version gets its own files, and reads them back; a disk without a line has none', async (t) => {
  const inV1 = ['read_bps', 'write_bps', 'read_iops', 'write_iops'].map((name) => `blkio.throttle.${name}_device`)
  const folder = await makeTree(t, {
    ...Object.fromEntries(inV1.flatMap((file) => [`blkio/${file}`, `blkio/a/${file}`]).map((path) => [path, ''])),
    'blkio/a/blkio.throttle.io_service_bytes':
      '7:1 Read 5\n7:1 Write 6\n7:1 Sync 11\n7:1 Total 11\n7:10 Read 100\nTotal 111\n',
    'two/cgroup.controllers': 'cpu io memory\n',
    'two/cgroup.subtree_control': '',
    'two/root/cgroup.subtree_control': '',
    'two/root/io.max': '',
    'two/root/a/io.max': '7:10 rbps=1 wbps=max\n',
    'two/root/a/io.stat': '7:10 rbytes=100 wbytes=1\n7:1 rbytes=5 wbytes=6 rios=1 wios=1 dbytes=9 dios=0\n',
    'bare/cgroup.controllers': 'cpu\n',
  })
  const rates = { readBytes: 4, writeBytes: 3, reads: 2, writes: 1 }
  const bounds = { device: '7:1', rates }
  const none = { readBytes: Infinity, writeBytes: Infinity, reads: Infinity, writes: Infinity }
  const [one, two] = [new Cgroups([new CgroupV1(`${folder}/blkio`)]), new Cgroups([new CgroupV2(`${folder}/two`)])]
  for (const [cgroups, group] of [[one, '/a'] as const, [two, '/root/a'] as const]) {
    assert.equal(await cgroups.boundDisks('/root'), true)
    assert.deepEqual(cgroups.diskRates(group, '7:1'), none)
    assert.equal(cgroups.diskBytes(group, '7:1'), 11)
    await cgroups.setDiskRates(group, bounds)
    assert.deepEqual(cgroups.diskRates(group, '7:1'), rates)
    assert.equal(cgroups.diskRates('/missing', '7:1'), undefined)
    await cgroups.setDiskRates('/missing', bounds)
  }
  assert.equal(await readFile(`${folder}/two/root/a/io.max`, 'utf8'), '7:1 rbps=4 wbps=3 riops=2 wiops=1')
  assert.equal(await readFile(`${folder}/blkio/a/${inV1[0]}`, 'utf8'), '7:1 4')
  assert.equal(await readFile(`${folder}/two/root/cgroup.subtree_control`, 'utf8'), '+io')
  assert.deepEqual([one.chargesWriteback('/a'), two.chargesWriteback('/root/a')], [false, true])
  const without = new Cgroups([new CgroupV1(`${folder}/cpu`), new CgroupV2(`${folder}/bare`)])
  assert.equal(await without.boundDisks('/root'), false)
})

test('disk rates: a kernel of version 2 with the controller io and no bounds has none', async (t) => {
  const folder = await makeTree(t, {
    'two/cgroup.controllers': 'io\n',
    'two/cgroup.subtree_control': '',
    'two/root/cgroup.subtree_control': '',
    'two/root/io.stat': '',
  })
  assert.equal(await new Cgroups([new CgroupV2(`${folder}/two`)]).boundDisks('/root'), false)
})
