/** What an organisation may have of the disk, and what a sandbox may do with it each second, by a real server. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { defaultSandboxLimits } from '../../src/sandbox/index.ts'
import { Cgroups } from '../../src/runtime/cgroups/index.ts'
import type { DiskRates } from '../../src/runtime/cgroups/disk-rates.ts'
import { deviceOf } from '../../src/runtime/disk/index.ts'
import { HostNames } from '../../src/runtime/host-names.ts'
import { isTurnComplete, readEvents } from './event-stream.ts'
import { forkOf, startSandbox, takeCheckpoint } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'
import { createSession, getSession, lastId, resultOf, sendMessage } from './session-client.ts'

const server = await AtollServer.startForFile()
const mebibyte = 2 ** 20

/** The rates that the kernel has for a sandbox. */
async function ratesOf(id: string): Promise<DiskRates | undefined> {
  const names = new HostNames(server.dataDir)
  const device = (await deviceOf(names.poolDir)) ?? assert.fail('the pool has no device')
  return (await Cgroups.find()).diskRates(names.cgroup(id), device)
}

const withLimits = (sandbox: object) => ({ ATOLL_LIMITS: JSON.stringify({ sandbox }) })

test('disk rates: sandboxes have those of the configuration, and running ones those of a later one', async () => {
  const defaults = {
    readBytes: defaultSandboxLimits.diskReadBytesPerSecondMax,
    writeBytes: defaultSandboxLimits.diskWriteBytesPerSecondMax,
    reads: defaultSandboxLimits.diskReadsPerSecondMax,
    writes: defaultSandboxLimits.diskWritesPerSecondMax,
  }
  const id = await startSandbox(server)
  assert.deepEqual(await ratesOf(id), defaults)
  await server.kill()
  const later = {
    diskReadBytesPerSecondMax: 100 * mebibyte,
    diskWriteBytesPerSecondMax: 90 * mebibyte,
    diskReadsPerSecondMax: 5000,
    diskWritesPerSecondMax: 4000,
  }
  await server.restart(withLimits(later))
  const rates = { readBytes: 100 * mebibyte, writeBytes: 90 * mebibyte, reads: 5000, writes: 4000 }
  assert.deepEqual(await ratesOf(id), rates)
  await server.json('POST', `/api/sandboxes/${id}/scale`, { memoryMB: 2048 })
  assert.deepEqual(await ratesOf(id), rates)
  assert.deepEqual(await ratesOf(await forkOf(server, await takeCheckpoint(server, id, 'fork'))), rates)
})

test('disk quota: a real checkpoint counts, and what it leaves too little for is refused until something goes', async () => {
  await server.stop()
  await server.restart(withLimits({ diskMbPerOrganisationMax: 40_960 }))
  // Those of the test before, of 10 240 MB each.
  const id = await startSandbox(server)
  const checkpoint = await takeCheckpoint(server, id, 'counted', 'disk_only')
  const create = () =>
    server.fetch('/api/sandboxes', {
      method: 'POST',
      body: '{"timeout":0}',
      headers: { 'content-type': 'application/json' },
    })
  const refused = await create()
  const { code, usedMB } = (await refused.json()) as { code: string; usedMB: number }
  assert.deepEqual([refused.status, code], [403, 'quota_exceeded'])
  assert.ok(usedMB > 3 * 10_240, `${usedMB} MB`)
  await server.json('DELETE', `/api/sandboxes/${id}`)
  assert.equal((await create()).status, 201)
  assert.equal((await server.fetch(`/api/sandboxes/${id}/checkpoints/${checkpoint}`, { method: 'DELETE' })).status, 204)
})

test('disk quota: a session without disk for its sandbox fails with the reason, and starts with the next message', async () => {
  const { id } = await createSession(server, 'A page about storks')
  const refused = await readEvents(server, id, ({ data }) => data.type === 'error')
  const { code, message } = refused.at(-1)!.data
  assert.equal(code, 'quota_exceeded')
  assert.match(String(message), /of the 40960 MB of disk/)
  while ((await getSession(server, id)).activity !== 'failed') await sleep(20)
  const [sandbox] = (await server.json('GET', '/api/sandboxes')) as { sandboxID: string }[]
  await server.json('DELETE', `/api/sandboxes/${sandbox?.sandboxID}`)
  await sendMessage(server, id, 'Go on')
  const events = await readEvents(server, id, isTurnComplete, lastId(refused))
  assert.equal(resultOf(events)?.['subtype'], 'success')
})
