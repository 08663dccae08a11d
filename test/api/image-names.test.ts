import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { Atoll, Image, type ImageInfo } from '../../sdk/src/index.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { useWorld } from '../support/world.ts'

const world = useWorld({ definitions: new Map([['shared', { steps: [] }]]) })

/** A file of this machine, which a build in this world sees too, and a command that waits until it is there. */
function gate(name: string): { command: string; open: () => Promise<void> } {
  const path = join(world.dataDir, name)
  return {
    command: `while [ ! -e ${path} ]; do sleep 0.02; done`,
    open: async () => await writeFile(path, ''),
  }
}

const manifestOf = (command: string) => ({ steps: [{ type: 'run', args: { commands: [command] } }] })

async function build(name: string, command: string, fields: object = {}): Promise<ImageInfo> {
  const answer = await world.api.post('/api/snapshots', { name, image: manifestOf(command), ...fields })
  assert.equal(answer.status, 201, answer.text)
  return answer.body as ImageInfo
}
const read = async (nameOrId: string) => await world.api.get(`/api/images/${encodeURIComponent(nameOrId)}`)
const idOf = async (name: string): Promise<string> => (await read(name)).body.id as string
async function startedFrom(fields: object): Promise<string> {
  const started = await world.api.post('/api/sandboxes', fields)
  assert.equal(started.status, 201, started.text)
  return started.body.fromCheckpointId as string
}

test('image tag: wherever an image is named, a tag serves, `latest` being none', async () => {
  const { api } = world
  const tagged = await build('tools:3', 'echo three')
  const latest = await build('tools:latest', 'echo latest')
  assert.deepEqual([tagged.name, latest.name], ['tools:3', 'tools'])
  for (const name of ['tools:3', 'tools:latest', 'tools'])
    for (const path of [name, encodeURIComponent(name)])
      assert.equal((await api.get(`/api/images/${path}`)).body.id, name === 'tools:3' ? tagged.id : latest.id, path)
  for (const fields of [{ templateID: 'tools:3' }, { snapshot: 'tools:3' }])
    assert.equal(await startedFrom(fields), tagged.checkpointId)
  assert.equal(await startedFrom({ templateID: 'tools:latest' }), latest.checkpointId)
  assert.equal((await api.post('/api/sandboxes', { templateID: 'base:latest' })).status, 201)
  const onTag = await build('on-tag', 'true', { image: { base: 'tools:3', ...manifestOf('true') } })
  const onLatest = await build('on-latest', 'true', { image: { base: 'tools:latest', ...manifestOf('true') } })
  const onPlain = await build('on-plain', 'true', { image: { base: 'tools', ...manifestOf('true') } })
  assert.notEqual(onTag.contentHash, onLatest.contentHash)
  assert.equal(onLatest.contentHash, onPlain.contentHash)
  const template = await api.post('/api/templates', { name: 'of-tag', dockerfile: 'FROM tools:3\nRUN true' })
  assert.equal(template.status, 201, template.text)
  assert.match((await api.get('/api/images/tools:3/log')).text, /echo three/)
  assert.equal((await api.get('/api/templates/tools:3')).body.name, 'tools:3')
  assert.equal((await api.delete('/api/images/tools:3')).status, 204)
  assert.equal((await read('tools')).body.id, latest.id)
  for (const fields of [{ templateID: 'tools:4' }, { snapshot: 'tools:4' }]) {
    const unknown = await api.post('/api/sandboxes', fields)
    assert.deepEqual([unknown.status, unknown.body.field], [404, Object.keys(fields)[0]])
    assert.match(unknown.body.error, /no image tools:4; there are base, /)
  }
  for (const name of ['tools:', ':3', 'tools:3:4', 'tools:-3', 'a/b', `tools:${'x'.repeat(129)}`])
    assert.equal((await api.post('/api/snapshots', { name, image: manifestOf('true') })).status, 400, name)
})

test('image name: those of which the API has something else at their place are refused, with tags too', async () => {
  const { api } = world
  await build('other', 'true')
  for (const name of ['caches', 'contexts', 'caches:latest', 'contexts:3']) {
    const refused = [
      await api.post('/api/snapshots', { name, image: manifestOf('true') }),
      await api.post('/api/templates', { name, dockerfile: 'FROM base' }),
      await api.post('/api/images/other/tag', { name }),
    ]
    for (const { status, body } of refused) {
      assert.deepEqual([status, body.field], [400, 'name'], name)
      assert.match(body.error, /must not be caches or contexts/)
    }
  }
  await build('caches-of-mine', 'true')
})

test('image tag: it is a row of its own with the checkpoint and the log, and outlives the other', async () => {
  const { api } = world
  const image = await build('one', 'echo tagged')
  const answer = await api.post('/api/images/one/tag', { name: 'one:v1' })
  assert.equal(answer.status, 201, answer.text)
  const tag = answer.body as ImageInfo
  assert.notEqual(tag.id, image.id)
  assert.deepEqual(
    [tag.name, tag.checkpointId, tag.contentHash, tag.status],
    ['one:v1', image.checkpointId, image.contentHash, 'ready'],
  )
  assert.match((await api.get('/api/images/one:v1/log')).text, /echo tagged/)
  assert.equal((await api.post('/api/images/one/tag', { name: 'one:v1' })).body.id, tag.id)
  assert.equal((await api.post('/api/images/one/tag', { name: 'one:latest' })).body.id, image.id)
  await api.delete('/api/images/one')
  assert.equal(await startedFrom({ snapshot: 'one:v1' }), image.checkpointId)
  assert.equal((await read('one')).status, 404)
  await build('one', 'echo other')
  const taken = await api.post('/api/images/one/tag', { name: 'one:v1' })
  assert.deepEqual([taken.status, taken.body.code], [409, 'conflict'])
  assert.match(taken.body.error, /--replace/)
  const moved = await api.post('/api/images/one/tag', { name: 'one:v1', replace: true })
  assert.equal(await idOf('one:v1'), moved.body.id)
  assert.equal((await read(tag.id)).body.name, undefined)
})

test('image tag: of one that is not ready, of a shared and of an unknown one is refused', async () => {
  const { api } = world
  const failed = await api.post('/api/snapshots', { name: 'bad', image: manifestOf('exit 3') })
  assert.equal(failed.status, 400)
  assert.equal((await api.post('/api/images/bad/tag', { name: 'good' })).status, 409)
  assert.equal((await api.post('/api/images/none-such/tag', { name: 'good' })).status, 404)
  const shared = await api.post('/api/images/shared/tag', { name: 'good' })
  assert.deepEqual([shared.status, /the server shares shared/.test(shared.body.error)], [404, true])
  const base = await api.delete('/api/images/base')
  assert.deepEqual([base.status, /installed image base .* neither removes/.test(base.body.error)], [404, true])
})

test('image replace: the name means the old image until the new one is ready, which the old one survives without a name', async () => {
  const { api } = world
  const old = await build('app', 'echo old')
  const taken = await api.post('/api/snapshots', { name: 'app', image: manifestOf('echo old') })
  assert.deepEqual([taken.status, /--replace/.test(taken.body.error)], [409, true])
  const { command, open } = gate('app')
  const begun = await api.post('/api/snapshots?async=1', { name: 'app', image: manifestOf(command), replace: true })
  assert.deepEqual([begun.status, begun.body.name, begun.body.replaces], [202, undefined, 'app'])
  await eventually(async () => {
    const sandboxes = (await api.get('/api/sandboxes')).body as { sandboxID: string }[]
    assert.ok(sandboxes.some(({ sandboxID }) => sandboxID.startsWith('sb-build-')))
  })
  assert.equal(await startedFrom({ snapshot: 'app' }), old.checkpointId)
  await open()
  await eventually(async () => assert.equal((await read(begun.body.id)).body.status, 'ready'))
  assert.equal(await idOf('app'), begun.body.id)
  assert.deepEqual([(await read(begun.body.id)).body.replaces, (await read(old.id)).body.name], [undefined, undefined])
  assert.equal(await startedFrom({ templateID: old.id }), old.checkpointId)
})

test('image replace: a failed and a cancelled build change nothing, and the next one takes the place of the failed', async () => {
  const { api } = world
  const old = await build('kept', 'echo kept')
  const failed = await api.post('/api/snapshots', { name: 'kept', image: manifestOf('exit 4'), replace: true })
  assert.equal(failed.status, 400)
  assert.equal(await idOf('kept'), old.id)
  const rows = async () => (await api.get('/api/images')).body.filter((row: ImageInfo) => row.replaces === 'kept')
  const [row] = await rows()
  assert.equal(row.status, 'failed')
  assert.match((await api.get(`/api/images/${row.id}/log`)).text, /exit 4/)
  const begun = await api.post('/api/snapshots?async=1', { name: 'kept', image: manifestOf('sleep 60'), replace: true })
  assert.deepEqual(
    (await rows()).map(({ id }: ImageInfo) => id),
    [begun.body.id],
  )
  assert.equal((await api.delete(`/api/images/${begun.body.id}`)).status, 204)
  assert.deepEqual([await idOf('kept'), await rows()], [old.id, []])
})

test('image replace: equal content is answered as it is, a free name is taken, and of two at once the last end counts', async () => {
  const { api } = world
  const first = await build('both', 'echo 1', { replace: true })
  assert.equal(first.name, 'both')
  assert.equal((await build('both', 'echo 1', { replace: true })).id, first.id)
  const last = gate('last')
  const late = build('both', last.command, { replace: true })
  const early = await build('both', 'echo 2', { replace: true })
  assert.equal(await idOf('both'), early.id)
  await last.open()
  const ended = await late
  assert.deepEqual([early.name, ended.name], ['both', 'both'])
  assert.equal(await idOf('both'), ended.id)
  const known = await build('both', 'echo 1', { replace: true })
  assert.deepEqual([known.checkpointId, known.name, await idOf('both')], [first.checkpointId, 'both', known.id])
  const free = gate('free')
  const slow = api.post('/api/snapshots', { name: 'both', image: manifestOf(free.command), replace: true })
  await eventually(async () =>
    assert.ok(
      (await api.get('/api/images')).body.some(
        (row: ImageInfo) => row.replaces === 'both' && row.status === 'building',
      ),
    ),
  )
  assert.equal((await api.delete('/api/images/both')).status, 204)
  assert.equal((await read('both')).status, 404)
  await free.open()
  const { body } = await slow
  assert.equal(await idOf('both'), body.id)
})

test('image replace: what is public stays public under its name, and the old one is private', async () => {
  const { api, stranger } = world
  const old = await build('open', 'echo open')
  assert.equal((await api.post('/api/images/open/publish')).status, 200)
  await api.post('/api/images/open/tag', { name: 'open:1' })
  const next = await build('open', 'echo opener', { replace: true })
  assert.equal(next.public, true)
  const started = await stranger.post('/api/sandboxes', { templateID: 'open:latest' })
  assert.equal(started.body.fromCheckpointId, next.checkpointId, started.text)
  assert.equal((await stranger.post('/api/sandboxes', { templateID: 'open:1' })).status, 404)
  assert.equal((await stranger.post(`/api/sandboxes/from-checkpoint/${old.checkpointId}`, {})).status, 404)
  assert.equal((await read(old.id)).body.public, false)
})

test('sdk: an image is tagged, replaced, and shows its size', async () => {
  const client = new Atoll({ url: world.origin, apiKey: world.api.key })
  const image = await Image.build('sdk', manifestOf('echo sdk') as object, { client })
  assert.ok((await Image.get('sdk', { client })).info.sizeBytes !== undefined)
  const tagged = await image.tag('sdk:1')
  assert.equal(tagged.info.name, 'sdk:1')
  const next = await Image.build('sdk', manifestOf('echo next') as object, { client, replace: true })
  assert.equal((await Image.get('sdk', { client })).info.id, next.info.id)
  assert.equal((await Image.get('sdk:1', { client })).info.id, tagged.info.id)
})
