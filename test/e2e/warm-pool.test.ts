/** Sandboxes that wait for an owner, in the real server: taken by creates and sessions, gone with the server, and after a crash. */
import assert from 'node:assert/strict'
import { readdir, readFile } from 'node:fs/promises'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { HostNames } from '../../src/runtime/host-names.ts'
import { someOf } from '../../src/lib/testing/thorough.ts'
import { sh, startSandbox } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'

const size = 3
const server = await AtollServer.startForFile({ env: { ATOLL_WARM_POOL: String(size) } })
const names = new HostNames(server.dataDir)

/** The ids of sandboxes by what their records say. */
async function recorded(): Promise<{ warm: string[]; owned: string[] }> {
  const found = { warm: [] as string[], owned: [] as string[] }
  for (const name of await readdir(`${server.dataDir}/sandboxes`)) {
    if (!name.endsWith('.json')) continue
    // It may have been removed meanwhile.
    const text = await readFile(`${server.dataDir}/sandboxes/${name}`, 'utf8').catch(() => undefined)
    if (text !== undefined) found['warm' in (JSON.parse(text) as object) ? 'warm' : 'owned'].push(name.slice(0, -5))
  }
  return { warm: found.warm.toSorted(), owned: found.owned.toSorted() }
}

/** Waits for so many that are ready, and returns their ids. */
async function waiting(count: number): Promise<string[]> {
  for (;;) {
    const metrics = await (await fetch(`${server.url}/metrics`)).text()
    if (Number(/^atoll_warm_sandboxes\{from="base"\} (\d+)$/m.exec(metrics)?.[1] ?? 0) === count)
      return (await recorded()).warm
    await sleep(50)
  }
}

/** The ids of the sandboxes that an owner has; an interrupted start leaves a row in `error`, and no machine. */
async function owned(): Promise<string[]> {
  const sandboxes = (await server.json('GET', '/api/sandboxes')) as { sandboxID: string; status: string }[]
  return sandboxes.flatMap(({ sandboxID, status }) => (status === 'error' ? [] : sandboxID)).toSorted()
}

test('warm pool: a create takes one that waits, with its own name and the sizes of its owner', async () => {
  const before = await waiting(size)
  const id = await startSandbox(server)
  assert.ok(before.includes(id))
  const large = await startSandbox(server, { cpuCount: 2, memoryMB: 512, envs: { COLOUR: 'blue' } })
  assert.ok(before.includes(large))
  assert.deepEqual((await recorded()).owned, [id, large].toSorted())
  assert.equal(await sh(server, id, 'hostname; cat /etc/hostname; id -u'), `${id}\n${id}\n0`)
  const limit = 'cat /sys/fs/cgroup/memory.max 2>/dev/null || cat /sys/fs/cgroup/memory/memory.limit_in_bytes'
  assert.equal(await sh(server, large, `${limit}; echo $COLOUR`), `${512 * 1024 * 1024}\nblue`)
  assert.equal(await sh(server, id, `${limit}; echo $COLOUR`), String(1024 * 1024 * 1024))
  const look = 'ls -A /workspace /tmp /root; env | sort | grep -v HOSTNAME; cat /proc/mounts | wc -l; ps -e -o comm='
  const shown = await sh(server, id, look)
  await server.stop()
  await server.restart({ ATOLL_WARM_POOL: '0' })
  assert.equal(await sh(server, await startSandbox(server), look), shown)
  await server.stop()
  await server.restart()
  for (const left of await owned()) await server.json('DELETE', `/api/sandboxes/${left}`)
})

test('warm pool: a create under a key takes one that waits, and a repeat gets the same', async () => {
  const before = await waiting(size)
  const headers = { 'content-type': 'application/json', 'idempotency-key': crypto.randomUUID() }
  const create = async () => {
    const response = await server.fetch('/api/sandboxes', { method: 'POST', headers, body: '{"timeout":0}' })
    return ((await response.json()) as { sandboxID: string }).sandboxID
  }
  const id = await create()
  assert.ok(before.includes(id))
  assert.equal(await create(), id)
  assert.deepEqual(await owned(), [id])
  await waiting(size)
  await server.json('DELETE', `/api/sandboxes/${id}`)
})

test('warm pool: of more creates at once than wait, each gets a sandbox of its own', async () => {
  await waiting(size)
  const ids = await Promise.all(Array.from({ length: 3 * size }, () => startSandbox(server)))
  assert.equal(new Set(ids).size, ids.length)
  assert.deepEqual(await Promise.all(ids.map((id) => sh(server, id, 'hostname'))), ids)
  await Promise.all(ids.map((id) => server.json('DELETE', `/api/sandboxes/${id}`)))
  await waiting(size)
})

test('warm pool: a session takes one that waits', async () => {
  const before = await waiting(size)
  const { id, sandboxId } = (await server.json('POST', '/v1/sessions', {
    prompt: 'run: hostname',
    user_id: 'ada',
  })) as {
    id: string
    sandboxId: string
  }
  assert.ok(before.includes(sandboxId))
  // Else it would stay reserved.
  while (!(await owned()).includes(sandboxId)) await sleep(20)
  await server.json('DELETE', `/v1/sessions/${id}`)
})

test('warm pool: a stop of the server removes those that wait, and those with an owner go on', async () => {
  await waiting(size)
  const id = await startSandbox(server)
  await sh(server, id, '(setsid sleep 1000 >/dev/null 2>&1 &)')
  assert.equal(await server.stop(), 0)
  assert.deepEqual(await recorded(), { warm: [], owned: [id] })
  assert.deepEqual(await readdir(names.sandboxesDir), [id])
  await server.restart()
  assert.equal(await sh(server, id, 'pgrep -c sleep'), '1')
  await server.json('DELETE', `/api/sandboxes/${id}`)
})

test('warm pool: a server killed while it fills, or while they are taken, leaves none that nobody owns', async () => {
  for (const ms of someOf([0, 20, 50, 90, 140, 200, 300, 450])) {
    const creates = Promise.allSettled(Array.from({ length: size }, () => startSandbox(server)))
    await sleep(ms)
    await server.kill()
    await creates
    // Without a pool, all that is left has an owner.
    await server.restart({ ATOLL_WARM_POOL: '0' })
    const ids = await owned()
    assert.deepEqual(await recorded(), { warm: [], owned: ids })
    assert.deepEqual((await readdir(names.sandboxesDir)).toSorted(), ids)
    assert.deepEqual(await Promise.all(ids.map((id) => sh(server, id, 'hostname'))), ids)
    await Promise.all(ids.map((id) => server.json('DELETE', `/api/sandboxes/${id}`)))
    await server.stop()
    await server.restart()
    if (ms % 100 === 0) await waiting(size)
  }
})
