/** The file system below the pool is filled from beside while sandboxes write. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { sh, startSandbox, takeCheckpoint } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'
import { SmallDisk } from '../support/small-disk.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

/** Writes files, more than the reserve has room for and less than the disk has; what is in its log was answered as being on the disk. */
const writer = `
mkdir /root/w && cd /root/w
for i in $(seq 35); do
  dd if=/dev/urandom of=$i bs=1M count=40 2>/dev/null && sync && sum=$(sha256sum < $i) && echo "$i $sum" >> log && sync || exit 1
done`

/** Names of files in the log whose bytes on the disk, past all caches, are others. */
const lost = `
cd /root/w && while read name sum _; do
  [ "$(dd if=$name bs=1M iflag=direct 2>/dev/null | sha256sum | cut -d' ' -f1)" = "$sum" ] || echo $name
done < log`

const upload = { method: 'PUT', body: 'x' }

async function metric(server: AtollServer, line: string): Promise<boolean> {
  return (await (await server.fetch('/metrics')).text()).split('\n').includes(line)
}

async function refusal(response: Promise<Response>): Promise<string> {
  const { status, headers } = await response
  const { code } = (await (await response).json()) as { code: string }
  assert.equal(headers.get('retry-after'), '60')
  return `${status} ${code}`
}

test('disk: no write that was acknowledged is lost when the file system below the pool is full, and all goes on with space', async () => {
  await using disk = await SmallDisk.make(6 * 1024)
  await using server = await AtollServer.start({ dataDir: disk.dataDir, env: { ATOLL_DISK_POOL_MB: '3072' } })
  const id = await startSandbox(server, { memoryMB: 1024 })
  const other = await startSandbox(server)
  const post = (path: string, body: object = {}) =>
    server.fetch(path, { method: 'POST', body: JSON.stringify(body), headers: { 'Content-Type': 'application/json' } })
  const exec = await server.json('POST', `/api/sandboxes/${id}/exec`, { cmd: 'bash', args: ['-c', writer] })
  assert.ok(exec)
  await eventually(async () => (await sh(server, id, 'cat /root/w/log')).includes('1 '))

  await disk.fill(60)
  await eventually(async () => (await server.fetch('/readyz')).status === 503)
  assert.equal(await refusal(server.fetch('/readyz')), '503 no_capacity')
  assert.equal(await refusal(post('/api/sandboxes')), '503 no_capacity')
  assert.equal(await refusal(post(`/api/sandboxes/${other}/checkpoints`, { name: 'a' })), '503 no_capacity')
  assert.equal(await refusal(post(`/api/sandboxes/${other}/hibernate`)), '503 no_capacity')
  assert.equal(await refusal(server.fetch(`/api/sandboxes/${other}/files?path=/root/x`, upload)), '503 no_capacity')
  const { checks } = (await server.json('GET', '/api/host')) as { checks: { name: string; status: string }[] }
  assert.equal(checks.find(({ name }) => name === 'disk space')?.status, 'fails')

  await eventually(() => metric(server, 'atoll_disk_state{state="full"} 1'))
  assert.equal(await refusal(post(`/api/sandboxes/${id}/exec/run`, { cmd: 'true' })), '503 no_capacity')
  assert.match(server.output, /the disk is full: the file system of the data directory is full/)
  // What gives back space goes on.
  assert.equal((await server.fetch(`/api/sandboxes/${other}`, { method: 'DELETE' })).status, 204)

  await disk.empty()
  await eventually(async () => (await server.fetch('/readyz')).ok)
  await eventually(async () => (await sh(server, id, 'wc -l < /root/w/log')) === '35', { timeoutMs: 600_000 })
  assert.equal(await sh(server, id, lost), '')
  assert.ok(await metric(server, 'atoll_disk_errors{kind="write"} 0'))
  await takeCheckpoint(server, id, 'after')
  assert.equal(await sh(server, await startSandbox(server), 'echo yes'), 'yes')
})
