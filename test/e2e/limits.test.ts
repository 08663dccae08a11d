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

test('disk: an upload beyond that of the sandbox or of a volume is 507, leaves nothing, and all else goes on', async () => {
  await server.json('POST', '/api/volumes', { name: 'small', sizeMB: 64 })
  const [id, other] = await Promise.all([
    startSandbox(server, { diskMB: 1024, volumes: [{ name: 'small', path: '/data' }] }),
    startSandbox(server),
  ])
  const put = (path: string, body: string | Buffer<ArrayBuffer>) =>
    server.fetch(`/api/sandboxes/${id}/files?path=${path}`, { method: 'PUT', body })
  const refusal = async (response: Response) => [response.status, ((await response.json()) as { code: string }).code]
  const megabytes = (count: number) => Buffer.alloc(count * 2 ** 20)
  await sh(server, id, 'head -c 900M /dev/urandom >/root/large && sync')
  for (const folder of ['/root', '/data']) {
    assert.equal((await put(`${folder}/kept`, 'old')).status, 204)
    assert.deepEqual(await refusal(await put(`${folder}/kept`, megabytes(200))), [507, 'disk_full'], folder)
    assert.deepEqual(await refusal(await put(`${folder}/new`, megabytes(200))), [507, 'disk_full'], folder)
    assert.equal(await sh(server, id, `cd ${folder} && cat kept && ls -A | grep -e new -e atoll`), 'old', folder)
    assert.equal((await put(`${folder}/small`, megabytes(1))).status, 204)
  }
  assert.equal(await sh(server, other, 'head -c 300M /dev/urandom >/root/large && sync && echo yes'), 'yes')
  assert.equal((await server.fetch('/readyz')).status, 200)
  await sh(server, id, 'rm /root/large && sync')
  assert.equal((await put('/root/new', megabytes(200))).status, 204)
})
