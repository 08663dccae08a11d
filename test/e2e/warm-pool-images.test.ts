/** Images that are replaced and removed while sandboxes of theirs wait for an owner. */
import assert from 'node:assert/strict'
import { cp, mkdtemp, readdir, readFile, realpath, rename, rm, symlink } from 'node:fs/promises'
import { after, test } from 'node:test'
import { ApiClient } from '../support/api-client.ts'
import { imageDir } from '../support/images.ts'
import { sh, startSandbox, takeCheckpoint } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

const size = 3
/** From a change of the images until no warm sandbox shows what was before. */
const noticedMs = 60_000

interface Record {
  base: string
  guest: string
  warm?: object
}

/** Links like those of a setup, to the installed images. */
const ownImages = await mkdtemp('/var/tmp/atoll-e2e-images-')
const link = async (name: string, target: string) => {
  await symlink(target, `${ownImages}/${name}.new`)
  await rename(`${ownImages}/${name}.new`, `${ownImages}/${name}`)
}
const installed = new Map<string, string>()
for (const { name } of (await readdir(imageDir, { withFileTypes: true })).filter((entry) => entry.isSymbolicLink())) {
  installed.set(name, await realpath(`${imageDir}/${name}`))
  await link(name, installed.get(name)!)
}
const server = await AtollServer.startForFile({
  env: { ATOLL_WARM_POOL: String(size), ATOLL_IMAGE_DIR: ownImages },
})
after(() => rm(ownImages, { recursive: true }))
const api = new ApiClient(server.url, server.key)

async function recordOf(id: string): Promise<Record | undefined> {
  // It may have been removed meanwhile.
  const text = await readFile(`${server.dataDir}/sandboxes/${id}.json`, 'utf8').catch(() => undefined)
  return text === undefined ? undefined : (JSON.parse(text) as Record)
}

/** The records of those that wait, or start in order to wait. */
async function warm(): Promise<Record[]> {
  const ids = (await readdir(`${server.dataDir}/sandboxes`)).filter((name) => name.endsWith('.json'))
  const records = await Promise.all(ids.map((name) => recordOf(name.slice(0, -'.json'.length))))
  return records.filter((record) => record?.warm !== undefined) as Record[]
}

async function counted(from: string): Promise<number> {
  const metrics = await (await fetch(`${server.url}/metrics`)).text()
  return Number(new RegExp(`^atoll_warm_sandboxes\\{from="${from}"\\} (\\d+)$`, 'm').exec(metrics)?.[1] ?? 0)
}

const filled = () => eventually(async () => (await counted('base')) === size)

test('warm pool: those of an image that was replaced go, and no create gets one of them', async () => {
  await filled()
  const newGuest = `${ownImages}/guest-newer`
  await cp(installed.get('guest')!, newGuest, { recursive: true })
  await link('guest', newGuest)
  const ids = await Promise.all(Array.from({ length: size }, () => startSandbox(server)))
  for (const id of ids) {
    assert.equal((await recordOf(id))?.guest, 'guest-newer')
    assert.equal(await sh(server, id, 'hostname'), id)
  }
  await eventually(async () => (await warm()).every(({ guest }) => guest === 'guest-newer'), { timeoutMs: noticedMs })
  await filled()
  // Also where nobody asks for one.
  await link('guest', installed.get('guest')!)
  await eventually(async () => (await warm()).every(({ guest }) => guest !== 'guest-newer'), { timeoutMs: noticedMs })
  await filled()
  for (const id of ids) await server.json('DELETE', `/api/sandboxes/${id}`)
})

test('warm pool: those of an image that was removed go, and a create of it is refused', async () => {
  await link('other', installed.get('base')!)
  for (let count = 0; count < 2; count += 1) {
    const id = await startSandbox(server, { templateID: 'other' })
    assert.equal(await sh(server, id, 'hostname'), id)
    await server.json('DELETE', `/api/sandboxes/${id}`)
  }
  await eventually(async () => (await counted('other')) > 0)
  await rm(`${ownImages}/other`)
  const refused = await api.post('/api/sandboxes', { templateID: 'other' })
  assert.deepEqual([refused.status, refused.body.code], [404, 'not_found'])
  await eventually(async () => (await counted('other')) === 0, { timeoutMs: noticedMs })
  await filled()
  assert.equal(await sh(server, await startSandbox(server), 'echo well'), 'well')
})

test('warm pool: those of a checkpoint that was deleted go, and a start from it is refused', async () => {
  const source = await startSandbox(server)
  const checkpointId = await takeCheckpoint(server, source, 'often', 'disk_only')
  const path = `/api/sandboxes/from-checkpoint/${checkpointId}`
  for (let count = 0; count < 4; count += 1) assert.equal((await api.post(path, {})).status, 201)
  await eventually(async () => (await counted(checkpointId)) > 0)
  assert.equal((await api.delete(`/api/sandboxes/${source}/checkpoints/${checkpointId}`)).status, 204)
  const refused = await api.post(path, {})
  assert.deepEqual([refused.status, refused.body.code], [404, 'not_found'])
  await eventually(async () => (await counted(checkpointId)) === 0, { timeoutMs: noticedMs })
  await filled()
})

test('warm pool: without any image nothing waits, and it fills again when the image is back', async () => {
  await filled()
  await rm(`${ownImages}/base`)
  const refused = await api.post('/api/sandboxes', {})
  assert.deepEqual([refused.status, refused.body.code], [404, 'not_found'])
  await eventually(async () => (await warm()).length === 0, { timeoutMs: noticedMs })
  await link('base', installed.get('base')!)
  assert.equal(await sh(server, await startSandbox(server), 'echo well'), 'well')
  await filled()
})
