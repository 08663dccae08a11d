/** What programs inside take for the limits: processors, as `make -j$(nproc)` does, and the files in `/sys/fs/cgroup/sandbox`. */
import assert from 'node:assert/strict'
import { availableParallelism } from 'node:os'
import { test } from 'node:test'
import { forkOf, sh, startSandbox, takeCheckpoint } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'

const server = await AtollServer.startForFile()
const host = availableParallelism()

/** By `nproc`, by Python and by Node, which asks for the limit on processor time too. */
async function processorsIn(id: string): Promise<number[]> {
  const programs = [
    'nproc',
    `python3 -c 'import os; print(len(os.sched_getaffinity(0)))'`,
    `node -p 'os.availableParallelism()'`,
  ]
  return (await sh(server, id, programs.join(' && '))).split('\n').map(Number)
}

/** Memory in bytes, processes, processor time of a period, disk in bytes. */
function limitsIn(id: string): Promise<string> {
  return sh(server, id, 'cd /sys/fs/cgroup/sandbox && echo $(cat memory.max pids.max cpu.max disk.max)')
}

const limits = (memoryMB: number, cpuCount: number) =>
  `${memoryMB * 2 ** 20} 4096 ${cpuCount}00000 100000 ${10 * 2 ** 30}`
const one = [1, 1, 1]
const all = [host, host, host]

test('processors: programs see those of the sandbox, through hibernation, forks, restarts of the server and a scale', async () => {
  assert.ok(host >= 2, 'this test needs two processors')
  const id = await startSandbox(server, { cpuCount: 1 })
  assert.deepEqual(await processorsIn(id), one)
  await server.json('POST', `/api/sandboxes/${id}/hibernate`)
  assert.deepEqual(await processorsIn(id), one)
  const fork = await forkOf(server, await takeCheckpoint(server, id, 'fork'))
  assert.deepEqual(await processorsIn(fork), one)
  await server.stop()
  await server.restart()
  assert.deepEqual(await processorsIn(id), one)
  await server.kill()
  await server.restart()
  assert.deepEqual(await processorsIn(fork), one)
  await server.json('POST', `/api/sandboxes/${id}/scale`, { memoryMB: host * 4096 })
  assert.deepEqual(await processorsIn(id), all)
  assert.deepEqual(await processorsIn(fork), one)
  assert.deepEqual(await processorsIn(await startSandbox(server, { cpuCount: host })), all)
})

test('limits: their files show those of the sandbox, through hibernation, forks, restarts of the server and a scale', async () => {
  const id = await startSandbox(server, { cpuCount: 1, memoryMB: 512 })
  assert.equal(await limitsIn(id), limits(512, 1))
  await server.json('POST', `/api/sandboxes/${id}/hibernate`)
  assert.equal(await limitsIn(id), limits(512, 1))
  const checkpointId = await takeCheckpoint(server, id, 'fork')
  const fork = await forkOf(server, checkpointId)
  assert.equal(await limitsIn(fork), limits(512, 1))
  await server.json('POST', `/api/sandboxes/${id}/scale`, { memoryMB: 4097 })
  assert.equal(await limitsIn(id), limits(4097, 2))
  await server.stop()
  await server.restart()
  assert.deepEqual(await Promise.all([id, fork].map(limitsIn)), [limits(4097, 2), limits(512, 1)])
  await server.json('POST', `/api/sandboxes/${fork}/scale`, { memoryMB: 600 })
  assert.equal(await limitsIn(fork), limits(600, 1))
  await server.json('POST', `/api/sandboxes/${id}/checkpoints/${checkpointId}/restore`)
  const restored = (await server.json('GET', `/api/sandboxes/${id}`)) as { memoryMB: number; cpuCount: number }
  assert.equal(await limitsIn(id), limits(restored.memoryMB, restored.cpuCount))
})

test('processors: sandboxes of two servers on one machine have their own, each as many as it may use', async () => {
  await using other = await AtollServer.start()
  const mine = await startSandbox(server, { cpuCount: 1 })
  const theirs = await startSandbox(other, { cpuCount: 1 })
  assert.deepEqual(await processorsIn(mine), one)
  assert.equal(await sh(other, theirs, 'nproc'), '1')
})
