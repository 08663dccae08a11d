import assert from 'node:assert/strict'
import { test } from 'node:test'
import { roundsOf } from '../../src/lib/testing/thorough.ts'
import { forkOf, startSandbox, takeCheckpoint } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'
import { Workload } from './workload.ts'

const server = await AtollServer.startForFile()
const source = await startSandbox(server, { memoryMB: 2048 })
const workload = await Workload.start(server, source)

const checkpoint = (sandboxId: string, name: string) => takeCheckpoint(server, sandboxId, name)
const fork = (checkpointId: string) => forkOf(server, checkpointId)

async function remove(...ids: string[]): Promise<void> {
  await Promise.all(ids.map((id) => server.json('DELETE', `/api/sandboxes/${id}`)))
}

const forkCount = roundsOf(4, 10)
const generations = roundsOf(3, 5)

test(`fork: ${forkCount} of one checkpoint each go on by themselves with the state of the dump`, async () => {
  const counted = await workload.count(source)
  const looped = await workload.loop(source)
  const cp = await checkpoint(source, 'many')
  assert.equal(await workload.count(source), counted + 1, 'the source goes on')
  const { sandboxes } = (await server.json('POST', `/api/sandboxes/from-checkpoint/${cp}`, { count: forkCount })) as {
    sandboxes: { sandboxID: string }[]
  }
  const forks = sandboxes.map((started) => started.sandboxID)
  assert.equal(new Set(forks).size, forkCount)
  await Promise.all(
    forks.map(async (id, index) => {
      for (let more = 1; more <= index + 1; more += 1) assert.equal(await workload.count(id), counted + more)
      assert.equal((await workload.sh(id, 'hostname')).trim(), id)
      assert.ok((await workload.loop(id)) >= looped)
      assert.equal(await workload.redis(id, 'GET', 'colour'), 'coral')
      assert.match(await workload.vite(id), /Served by Vite/)
      await workload.python(id, 'x + 1', '42')
    }),
  )
  const addresses = await Promise.all(forks.map((id) => workload.sh(id, 'hostname -I || cat /proc/net/fib_trie')))
  assert.equal(new Set(addresses).size, forkCount, 'each has an address of its own')
  const random = await Promise.all(forks.map((id) => workload.sh(id, 'head -c 16 /dev/urandom | od -An -tx1')))
  assert.equal(new Set(random).size, forkCount, 'each draws its own numbers')
  const asked = Date.now() / 1000
  const clocks = await Promise.all(forks.map((id) => workload.sh(id, 'date +%s')))
  const answered = Date.now() / 1000
  for (const clock of clocks)
    assert.ok(Number(clock) > asked - 10 && Number(clock) < answered + 10, 'each has the right time')
  await remove(...forks)
})

test(`forks of forks go on, ${generations} generations deep`, async () => {
  let id = source
  let counted = await workload.count(id)
  for (let generation = 1; generation <= generations; generation += 1) {
    const child = await fork(await checkpoint(id, `generation ${generation}`))
    counted += 1
    assert.equal(await workload.count(child), counted)
    await workload.sh(child, `echo ${generation} > /workspace/generation`)
    if (id !== source) await remove(id)
    id = child
  }
  assert.equal((await workload.sh(id, 'cat /workspace/generation')).trim(), String(generations))
  assert.equal(await workload.redis(id, 'GET', 'colour'), 'coral')
  await workload.python(id, 'x + 1', '42')
  await remove(id)
})

test('restore: one in place brings back memory and files under the same id', async () => {
  const id = await fork(await checkpoint(source, 'before the restore'))
  const cp = await checkpoint(id, 'here')
  const counted = await workload.count(id)
  await workload.count(id)
  await workload.sh(id, 'echo late > /workspace/late')
  await workload.redis(id, 'SET', 'colour', 'grey')
  await server.json('POST', `/api/sandboxes/${id}/checkpoints/${cp}/restore`, {})
  assert.equal(await workload.count(id), counted)
  assert.equal(await workload.redis(id, 'GET', 'colour'), 'coral')
  assert.equal(await workload.sh(id, 'ls /workspace'), await workload.sh(source, 'ls /workspace'))
  await remove(id)
})

test('wake: a hibernated sandbox wakes with its processes, and the terminal is attached again', async () => {
  const id = await fork(await checkpoint(source, 'before the sleep'))
  const counted = await workload.count(id)
  {
    await using terminal = await workload.terminal(id)
    terminal.type('y = x * 2\n')
    await terminal.shows('y = x * 2')
  }
  const { status } = (await server.json('POST', `/api/sandboxes/${id}/hibernate`, {})) as { status: string }
  assert.equal(status, 'hibernated')
  assert.equal(await workload.count(id), counted + 1, 'a preview request wakes it')
  await workload.python(id, 'y', '82')
  assert.equal(await workload.redis(id, 'GET', 'colour'), 'coral')
  await remove(id)
})

test('checkpoint: clients of the source lose no request and no terminal', async () => {
  const terminal = await workload.terminal(source)
  const stop = new AbortController()
  const counts: number[] = []
  const client = (async () => {
    while (!stop.signal.aborted) counts.push(await workload.count(source))
  })()
  await checkpoint(source, 'with clients')
  stop.abort()
  await client
  assert.deepEqual(
    counts,
    counts.map((_, index) => (counts[0] ?? 0) + index),
    'no request failed or came twice',
  )
  assert.ok(terminal.isOpen, 'the terminal stayed attached')
  terminal.type('print("still", x)\n')
  await terminal.shows('still 41')
  terminal.close()
})

test('server: a restart finds hibernated memory again', async () => {
  const id = await fork(await checkpoint(source, 'before the crash'))
  const counted = await workload.count(id)
  await server.json('POST', `/api/sandboxes/${id}/hibernate`, {})
  await server.kill()
  await server.restart()
  assert.equal(await workload.count(id), counted + 1)
  await remove(id)
})
