/** What programs take for the number of processors, such as `make -j$(nproc)`, is what the sandbox may use. */
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

test('processors: sandboxes of two servers on one machine have their own, each as many as it may use', async () => {
  await using other = await AtollServer.start()
  const mine = await startSandbox(server, { cpuCount: 1 })
  const theirs = await startSandbox(other, { cpuCount: 1 })
  assert.deepEqual(await processorsIn(mine), one)
  assert.equal(await sh(other, theirs, 'nproc'), '1')
})
