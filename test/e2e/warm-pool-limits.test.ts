/** A warm pool that is larger than what its machine has room for. */
import assert from 'node:assert/strict'
import { readdir } from 'node:fs/promises'
import { before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { HostNames } from '../../src/runtime/host-names.ts'
import { sh, startSandbox, takeCheckpoint } from './sandbox-calls.ts'
import { AtollServer, freeSubnet } from './server.ts'

/** Addresses of a `/28`, but for those of the network and the gateway. */
const room = 13
const burst = 60

const server = await AtollServer.startForFile({
  subnet: freeSubnet().replace('/24', '/28'),
  env: { ATOLL_WARM_POOL: '64' },
})
const names = new HostNames(server.dataDir)

/** Of a sandbox that is gone. Until many have started from it none of its waits. */
let checkpointId = ''
before(async () => {
  const source = await startSandbox(server)
  checkpointId = await takeCheckpoint(server, source, 'source', 'disk_only')
  await server.json('DELETE', `/api/sandboxes/${source}`)
})

/** The answer to a create from the image, with or without a key, or to a start from the checkpoint, which is cold. */
async function create(kind: number) {
  const headers = {
    'content-type': 'application/json',
    ...(kind === 1 ? { 'idempotency-key': crypto.randomUUID() } : {}),
  }
  const path = kind === 2 ? `/api/sandboxes/from-checkpoint/${checkpointId}` : '/api/sandboxes'
  const response = await server.fetch(path, { method: 'POST', headers, body: '{"timeout":0}' })
  const { sandboxID, code } = (await response.json()) as { sandboxID?: string; code?: string }
  return { id: sandboxID ?? '', status: response.status, code, retryAfter: response.headers.get('retry-after') }
}

/** Creates at once, of all three kinds. */
const createMany = (count: number) => Promise.all(Array.from({ length: count }, (_, index) => create(index % 3)))

const running = async () =>
  ((await server.json('GET', '/api/sandboxes')) as { sandboxID: string }[]).map(({ sandboxID }) => sandboxID).toSorted()

async function filled(): Promise<void> {
  while ((await readdir(names.sandboxesDir)).length < room) await sleep(50)
  // It goes on trying.
  await sleep(1500)
  assert.equal((await readdir(names.sandboxesDir)).length, room)
}

test('warm pool: larger than the machine it takes what there is, and costs no create its room', async () => {
  await filled()
  const answers = await createMany(room)
  assert.deepEqual(
    answers.map(({ status }) => status),
    answers.map(() => 201),
  )
  const ids = answers.map(({ id }) => id).toSorted()
  assert.deepEqual(await running(), ids)
  assert.deepEqual(await Promise.all(ids.map((id) => sh(server, id, 'hostname'))), ids)

  const refused = await createMany(burst)
  for (const { status, code, retryAfter } of refused) {
    assert.deepEqual([status, code], [503, 'no_capacity'])
    assert.match(retryAfter ?? '', /^[1-9]\d*$/)
  }
  assert.deepEqual(await running(), ids)
  assert.deepEqual((await readdir(names.sandboxesDir)).toSorted(), ids, 'nothing of a refused create is left')
  assert.deepEqual((await readdir(`${names.poolDir}/sandboxes`)).toSorted(), ids)

  await server.json('DELETE', `/api/sandboxes/${ids[0]}`)
  const last = await startSandbox(server)
  assert.equal(await sh(server, last, 'hostname'), last)
  for (const id of [...ids.slice(1), last]) await server.json('DELETE', `/api/sandboxes/${id}`)
})

test('warm pool: of a burst far above the room as many start as fit, the others are refused', async () => {
  await server.stop()
  await server.restart()
  await filled()
  const answers = await createMany(burst)
  const made = answers.filter(({ status }) => status === 201).map(({ id }) => id)
  assert.equal(made.length, room)
  for (const { status, code, retryAfter } of answers) {
    if (status !== 201) assert.deepEqual([status, code, Number(retryAfter) >= 1], [503, 'no_capacity', true])
  }
  assert.deepEqual(await running(), made.toSorted())
  assert.deepEqual((await readdir(names.sandboxesDir)).toSorted(), made.toSorted())
  for (const id of made) await server.json('DELETE', `/api/sandboxes/${id}`)
  assert.equal(await server.stop(), 0)
  await server.restart({ ATOLL_WARM_POOL: '0' })
  for (const folder of [names.sandboxesDir, `${names.poolDir}/sandboxes`]) assert.deepEqual(await readdir(folder), [])
})
