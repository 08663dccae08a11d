import assert from 'node:assert/strict'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { isServiceError } from '../../errors.ts'
import { Cgroups } from './cgroup.ts'
import { CommandError } from '../command.ts'
import { resourcesOf } from './config.ts'
import { updateContainer } from './container.ts'
import { HostNames } from './names.ts'

const mebibyte = 1024 * 1024
const traits = { filesMax: 1024, swapAccounting: true, ipv6: true }

test('memory that a group of version 2 holds is what the kernel cannot take back', async () => {
  const hierarchy = await mkdtemp(join(tmpdir(), 'atoll-cgroup-'))
  try {
    const cgroups = new Cgroups([hierarchy])
    await mkdir(`${hierarchy}/two`)
    await writeFile(`${hierarchy}/two/memory.current`, '1000\n')
    const stat =
      'anon 600\nfile 350\nshmem 50\nactive_file 100\ninactive_file 200\nslab_reclaimable 40\nworkingset_x 7\n'
    await writeFile(`${hierarchy}/two/memory.stat`, stat)
    assert.equal(await cgroups.heldBytes('/two'), 660)
    await mkdir(`${hierarchy}/one`)
    await writeFile(`${hierarchy}/one/memory.usage_in_bytes`, '1000\n')
    await writeFile(`${hierarchy}/one/memory.stat`, stat)
    assert.equal(await cgroups.heldBytes('/one'), undefined)
    assert.equal(await cgroups.heldBytes('/missing'), undefined)
  } finally {
    await rm(hierarchy, { recursive: true })
  }
})

test('all sandboxes together leave the host processes, in each version and nowhere else', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'atoll-cgroup-'))
  try {
    const [first, cpu, second, bare] = ['pids', 'cpu', 'unified', 'bare'].map((name) => `${folder}/${name}`)
    for (const hierarchy of [first, cpu, second, bare]) await mkdir(String(hierarchy))
    await writeFile(`${second}/cgroup.controllers`, 'cpu pids memory\n')
    await writeFile(`${second}/cgroup.subtree_control`, '')
    await writeFile(`${bare}/cgroup.controllers`, '\n')
    await new Cgroups([first, cpu, second, bare].map(String)).limitProcesses('/all')
    const most = Number(await readFile('/proc/sys/kernel/pid_max', 'utf8'))
    for (const hierarchy of [first, second]) {
      const limit = Number(await readFile(`${hierarchy}/all/pids.max`, 'utf8'))
      assert.ok(limit > 0 && limit <= most * 0.75)
    }
    assert.equal(await readFile(`${second}/cgroup.subtree_control`, 'utf8'), '+pids')
    for (const hierarchy of [cpu, bare]) await assert.rejects(readFile(`${hierarchy}/all/pids.max`), { code: 'ENOENT' })
  } finally {
    await rm(folder, { recursive: true })
  }
})

test('less memory than a sandbox holds is refused before anything is changed', async () => {
  const dataDir = await mkdtemp(join(tmpdir(), 'atoll-cgroup-'))
  const names = new HostNames(dataDir)
  try {
    const cgroups = { heldBytes: async () => 200 * mebibyte }
    const update = (memoryMb: number) =>
      updateContainer(names, cgroups, 'sb', resourcesOf({ memoryMb, cpuCount: 1 }, traits))
    await assert.rejects(update(199), (error) => isServiceError(error, 'conflict') && error.cause === undefined)
    // This is as far as it gets without a container.
    await assert.rejects(update(200), (error) => error instanceof CommandError && error.argv[0] === 'runc')
  } finally {
    await rm(dataDir, { recursive: true })
    // runc makes its folder even for that.
    await rm(names.runDir, { recursive: true, force: true })
  }
})
