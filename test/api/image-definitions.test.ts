import assert from 'node:assert/strict'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { useWorld } from '../support/world.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

const folder = await mkdtemp(join(tmpdir(), 'atoll-definitions-'))
after(() => rm(folder, { recursive: true }))

/** Its build waits for the file `gate`. */
const gated = { dockerfile: `FROM base\nRUN while ! test -e ${folder}/gate; do sleep 0.02; done` }
const definitions = new Map([
  ['tools', { dockerfile: 'FROM base\nENV COLOUR=blue\nRUN echo tools' }],
  ['more-tools', { dockerfile: 'FROM tools\nRUN echo more' }],
  ['broken', { dockerfile: 'FROM base\nRUN echo why >&2; exit 3' }],
  ['gated', gated],
])
const world = useWorld({ definitions })

const builtImages = async (): Promise<{ id: string; status: string; name?: string; manifest: { base: string } }[]> =>
  (await world.api.get('/api/images')).body
const namesOf = (body: { name: string }[]) => body.map(({ name }) => name)

test('definition: anybody may name it, and it is built once, in the organisation of the operator', async () => {
  const { api, stranger } = world
  assert.deepEqual(await builtImages(), [])
  const before = (await stranger.get('/api/templates/tools')).body
  assert.deepEqual([before.templateID, before.status, before.isPublic], ['tools', 'processing', true])
  const [first, second, own] = await Promise.all([
    stranger.post('/api/sandboxes', { templateID: 'tools' }),
    stranger.post('/api/sandboxes', { snapshot: 'tools' }),
    api.post('/api/sandboxes', { templateID: 'tools' }),
  ])
  assert.deepEqual([first.status, second.status, own.status], [201, 201, 201], first.text)
  const built = await builtImages()
  assert.deepEqual(
    built.map(({ name, status }) => [name, status]),
    [[undefined, 'ready']],
  )
  assert.deepEqual((await stranger.get('/api/images')).body, [])
  const { sandboxID } = first.body
  const printed = await stranger.post(`/api/sandboxes/${sandboxID}/exec/run`, { cmd: 'echo $COLOUR' })
  assert.equal(printed.body.stdout, 'blue\n')
  assert.equal((await stranger.post(`/api/images/${built[0]?.id}/publish`)).status, 403)
})

test('definition: an image can stand on it, and it on another', async () => {
  const { stranger } = world
  const image = { base: 'more-tools', steps: [{ type: 'run', args: { commands: ['echo own'] } }] }
  const own = await stranger.post('/api/snapshots', { name: 'own', image })
  assert.equal(own.status, 201, own.text)
  assert.deepEqual((await builtImages()).map(({ manifest }) => manifest.base).toSorted(), ['base', 'tools'])
  const again = await stranger.post('/api/snapshots', { name: 'own-2', image })
  assert.equal(again.body.contentHash, own.body.contentHash)
})

test('definition: one that fails says which image and step, and is tried again', async () => {
  for (const body of [{ templateID: 'broken' }, { image: { base: 'broken' } }]) {
    const failed = await world.stranger.post('/api/sandboxes', body)
    assert.deepEqual(
      [failed.status, failed.body.code, failed.body.step, failed.body.exitCode],
      [400, 'build_failed', 1, 3],
    )
    assert.match(failed.body.error, /^image broken: .*why/s)
  }
})

test('definition: its build goes on when the client that asked for it leaves', async () => {
  const { api, stranger, origin } = world
  const leaving = new AbortController()
  const headers = { 'x-api-key': stranger.key }
  const call = fetch(`${origin}/api/sandboxes`, {
    method: 'POST',
    headers,
    body: JSON.stringify({ templateID: 'gated' }),
    signal: leaving.signal,
  })
  const status = async () => (await stranger.get('/api/templates/gated')).body.status
  await eventually(async () => (await status()) === 'building', { what: 'it is being built' })
  leaving.abort()
  await assert.rejects(call)
  await writeFile(join(folder, 'gate'), '')
  await eventually(async () => (await status()) === 'ready', { what: 'it is built' })
  const inAll = await api.get('/api/sandboxes')
  assert.ok(inAll.body.every(({ sandboxID }: { sandboxID: string }) => !sandboxID.startsWith('sb-build-')))
  assert.equal((await stranger.post('/api/sandboxes', { snapshot: 'gated' })).status, 201)
})

test('definition: an own image of its name comes first', async () => {
  const { stranger } = world
  await stranger.post('/api/snapshots', {
    name: 'tools',
    image: { steps: [{ type: 'run', args: { commands: ['true'] } }] },
  })
  const { sandboxID } = (await stranger.post('/api/sandboxes', { templateID: 'tools' })).body
  const printed = await stranger.post(`/api/sandboxes/${sandboxID}/exec/run`, { cmd: 'echo $COLOUR' })
  assert.equal(printed.body.stdout, '\n')
})

test('definition: it is listed before it is built, and belongs to the operator', async () => {
  const { api, stranger } = world
  const listed = (await stranger.get('/api/templates')).body
  assert.deepEqual(namesOf(listed).toSorted(), ['broken', 'gated', 'more-tools', 'own', 'own-2', 'tools'])
  assert.equal((await stranger.get('/api/templates/broken')).body.status, 'error')
  assert.equal((await stranger.delete('/api/templates/more-tools')).status, 403)
  assert.equal((await api.delete('/api/templates/more-tools')).status, 204)
  assert.equal((await api.get('/api/templates/more-tools')).body.status, 'processing')
  assert.equal((await stranger.get('/api/templates/tools')).body.status, 'ready')
})
