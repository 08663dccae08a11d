/** The disk below the pool fails while sandboxes write, and is repaired. */
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { promisify } from 'node:util'
import { isThorough } from '../../src/lib/testing/thorough.ts'
import { FailingDisk } from '../support/failing-disk.ts'
import { forkOf, sh, startSandbox, takeCheckpoint } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

const poolMb = 3072
const readOnly = 'the disk pool is read-only after an error of the disk below it'

/** Writes 20 MB that were answered as being on the disk, and prints their sum. */
const writeKept = 'dd if=/dev/urandom of=/root/kept bs=1M count=20 conv=fsync 2>/dev/null && sha256sum < /root/kept'
const sumKept = 'sha256sum < /root/kept'

/** A server whose pool is on a failing disk. However a test ends, the disk is repaired then and the sandboxes are deleted. */
async function startOnFailingDisk() {
  await using stack = new AsyncDisposableStack()
  const disk = stack.use(await FailingDisk.make(poolMb))
  const env = { ATOLL_DISK_POOL_MB: String(poolMb) }
  const server = stack.use(await AtollServer.start({ dataDir: disk.dataDir, keepsData: true, env }))
  stack.defer(async () => {
    await disk.mend()
    await server.stop()
  })
  const moved = stack.move()
  return { disk, server, [Symbol.asyncDispose]: () => moved.disposeAsync() }
}

async function metric(server: AtollServer, name: string): Promise<number> {
  const lines = (await (await server.fetch('/metrics')).text()).split('\n')
  return Number(lines.find((line) => line.startsWith(`${name} `))?.split(' ')[1])
}

async function diskRow(server: AtollServer): Promise<{ status: string; detail: string }> {
  const { checks } = (await server.json('GET', '/api/host')) as {
    checks: { name: string; status: string; detail: string }[]
  }
  const row = checks.find(({ name }) => name === 'disk space')
  assert.ok(row)
  return row
}

async function statusOf(server: AtollServer, id: string): Promise<string> {
  return ((await server.json('GET', `/api/sandboxes/${id}`)) as { status: string }).status
}

/** Calls that make data or need a guest are refused with the reason, and so is a deletion, which can remove no file. */
async function assertRefuses(
  server: AtollServer,
  ids: Record<'id' | 'asleep' | 'checkpointId', string>,
  reason: string,
) {
  const { id, asleep, checkpointId } = ids
  const calls: [method: string, path: string, body?: object][] = [
    ['GET', '/readyz'],
    ['POST', '/api/sandboxes', {}],
    ['POST', `/api/sandboxes/from-checkpoint/${checkpointId}`, {}],
    ['POST', `/api/sandboxes/${asleep}/wake`, {}],
    ['POST', `/api/sandboxes/${id}/checkpoints`, { name: 'a' }],
    ['POST', `/api/sandboxes/${id}/hibernate`, {}],
    ['POST', `/api/sandboxes/${id}/exec/run`, { cmd: 'true' }],
    ['PUT', `/api/sandboxes/${id}/files?path=/root/x`, {}],
  ]
  for (const [method, path, body] of calls) {
    const headers = { 'Content-Type': method === 'PUT' ? 'application/octet-stream' : 'application/json' }
    const init = body === undefined ? { method } : { method, headers, body: JSON.stringify(body) }
    const response = await server.fetch(path, init)
    const text = await response.text()
    assert.equal(response.status, 503, `${method} ${path}: ${text}`)
    assert.match(text, /"no_capacity"/, path)
    assert.ok(text.includes(reason), `${path}: ${text}`)
  }
}

for (const { fails, counts } of [
  { fails: 'write', counts: 'write' },
  ...(isThorough ? [{ fails: 'sync', counts: 'flush' } as const] : []),
] as const) {
  test(`failing disk: with EIO for each ${fails} work is refused with the reason, and after the repair and a restart all that was synced is there`, async () => {
    await using world = await startOnFailingDisk()
    const { disk, server } = world
    const [id, asleep, doomed] = [await startSandbox(server), await startSandbox(server), await startSandbox(server)]
    const sums = [await sh(server, id, writeKept), await sh(server, asleep, writeKept)]
    const checkpointId = await takeCheckpoint(server, id, 'before', 'disk_only')
    await server.json('POST', `/api/sandboxes/${asleep}/hibernate`)
    await eventually(async () => (await statusOf(server, asleep)) === 'hibernated')
    await sh(server, id, 'sync')

    await disk.fail(fails)
    const write =
      'dd if=/dev/zero of=/root/lost bs=1M count=1 conv=fsync 2>&1 | grep -cE "Input/output error|Read-only file system"; sync'
    // The call itself may be refused before its answer.
    const told = sh(server, id, write).catch((error: unknown) => String(error))
    await eventually(async () => (await metric(server, 'atoll_disk_state{state="failing"}')) === 1)
    assert.match(await told, /^1$|no_capacity/)
    // One look at the disk may be between the two.
    await eventually(async () => (await metric(server, `atoll_disk_errors{kind="${counts}"}`)) > 0)
    assert.ok(server.output.includes(`the disk is failing: ${readOnly}`))
    await eventually(async () => new RegExp(`the disk below the pool fails: .*${counts} [1-9]`).test(server.output))
    const row = await diskRow(server)
    assert.equal(row.status, 'fails')
    assert.match(row.detail, new RegExp(`^${readOnly}; errors so far: .*${counts} [1-9]`))
    await assertRefuses(server, { id, asleep, checkpointId }, readOnly)
    const deletion = await server.fetch(`/api/sandboxes/${doomed}`, { method: 'DELETE' })
    assert.equal(deletion.status, 503)
    assert.match(await deletion.text(), /"no_capacity"/)

    await disk.mend()
    assert.equal(await server.stop(), 0)
    await server.restart()
    assert.match(server.output, /it is mounted anew, and \d sandboxes end for that/)
    assert.deepEqual([await sh(server, id, sumKept), await sh(server, asleep, sumKept)], sums)
    assert.equal(await sh(server, await forkOf(server, checkpointId), sumKept), sums[0])
    assert.equal(await sh(server, id, 'echo again > /root/again && sync && cat /root/again'), 'again')
    assert.equal(await statusOf(server, doomed), 'stopped')
    assert.ok(!(await readdir(join(disk.poolDir, 'sandboxes'))).some((name) => name.startsWith(doomed)))
    await takeCheckpoint(server, id, 'after')
    assert.equal(await sh(server, await startSandbox(server), 'echo new'), 'new')
    await promisify(execFile)('btrfs', ['scrub', 'start', '-B', disk.poolDir])
  })
}

test('failing disk: a read error is counted and told to the program, and nothing else changes', async () => {
  await using world = await startOnFailingDisk()
  const { disk, server } = world
  const id = await startSandbox(server)
  const sum = await sh(server, id, writeKept)
  await sh(server, id, 'sync')
  await disk.fail('read')
  const read = 'dd if=/root/kept of=/dev/null bs=1M iflag=direct 2>&1 | grep -c "Input/output error"'
  assert.equal(await sh(server, id, read), '1')
  await eventually(async () => (await metric(server, 'atoll_disk_errors{kind="read"}')) > 0)
  assert.equal((await diskRow(server)).status, 'fails')
  assert.match((await diskRow(server)).detail, /errors so far: .*read [1-9]/)
  await eventually(async () => /the disk below the pool fails: .*read [1-9]/.test(server.output))
  await disk.mend()
  assert.equal(await sh(server, id, sumKept), sum)
  assert.ok((await server.fetch('/readyz')).ok)
  await takeCheckpoint(server, id, 'after')
})

if (isThorough) {
  test('failing disk: one that does not answer for half a minute is failing until it answers, and nothing is lost', async () => {
    await using world = await startOnFailingDisk()
    const { disk, server } = world
    const [id, asleep] = [await startSandbox(server), await startSandbox(server)]
    const checkpointId = await takeCheckpoint(server, id, 'before', 'disk_only')
    await server.json('POST', `/api/sandboxes/${asleep}/hibernate`)
    await eventually(async () => (await statusOf(server, asleep)) === 'hibernated')
    const sum = await sh(server, id, writeKept)
    await sh(server, id, 'sync')
    await disk.fail('hang')
    // Small enough that btrfs allocates nothing for it: nobody but the sandbox waits for the disk.
    const written = sh(server, id, 'echo more > /root/more && sync && cat /root/more')
    await eventually(async () => (await metric(server, 'atoll_disk_state{state="failing"}')) === 1)
    await assertRefuses(server, { id, asleep, checkpointId }, 'the disk has not answered for 30 seconds')
    assert.match((await diskRow(server)).detail, /^the disk has not answered/)
    await disk.mend()
    await eventually(async () => (await server.fetch('/readyz')).ok)
    assert.equal(await written, 'more')
    assert.equal(await sh(server, id, sumKept), sum)
    assert.equal(await sh(server, asleep, 'echo awake'), 'awake')
    assert.equal(await metric(server, 'atoll_disk_errors{kind="write"}'), 0)
  })
}
