import assert from 'node:assert/strict'
import { once } from 'node:events'
import { readdir, readFile, rm } from 'node:fs/promises'
import { type IncomingMessage, request } from 'node:http'
import { join } from 'node:path'
import { test } from 'node:test'
import { Atoll, Image } from '../../sdk/src/index.ts'
import { useWorld } from '../support/world.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

const world = useWorld({ imageLimits: { snapshotsMax: 12 } })

const run = (...commands: string[]) => ({ type: 'run', args: { commands } })
const imageOf = (...commands: string[]) => ({ steps: commands.map((command) => run(command)) })

interface ServerEvent {
  event: string
  // oxlint-disable-next-line typescript/no-explicit-any
  data: any
}

function eventsOf(text: string): ServerEvent[] {
  assert.ok(text.endsWith('\n\n'), 'a blank line ends the last event')
  assert.ok(!text.includes('\r'))
  return text
    .trimEnd()
    .split('\n\n')
    .map((block) => {
      const [, event = '', data = ''] = /^event: (\S+)\ndata: (.*)$/.exec(block) ?? []
      return { event, data: JSON.parse(data) as unknown }
    })
}

async function stream(path: string, body: object): Promise<ServerEvent[]> {
  const answer = await world.api.raw('POST', path, { body, headers: { accept: 'text/event-stream' } })
  assert.deepEqual([answer.status, answer.headers['content-type']], [200, 'text/event-stream; charset=utf-8'])
  return eventsOf(answer.text)
}

/** A request that the test can give up. Resolves when the first event has come. */
async function beginning(method: 'GET' | 'POST', path: string, body: object = {}) {
  const text = JSON.stringify(body)
  const headers = { 'x-api-key': world.api.key, 'content-length': Buffer.byteLength(text), accept: 'text/event-stream' }
  const call = request(`${world.origin}${path}`, { method, headers })
  call.on('error', () => undefined)
  call.end(text)
  const [response] = (await once(call, 'response')) as [IncomingMessage]
  let received = ''
  response.on('error', () => undefined)
  response.on('data', (chunk: Buffer) => (received += chunk.toString()))
  const ended = new Promise((resolve) => response.once('close', resolve))
  await once(response, 'data')
  return {
    leave: () => call.destroy(),
    async events() {
      await ended
      return eventsOf(received)
    },
  }
}

const buildsUnderWay = async () =>
  (await world.api.get('/api/sandboxes')).body.filter(({ sandboxID }: { sandboxID: string }) =>
    sandboxID.startsWith('sb-build-'),
  )

test('image: a build streams its steps with their output, and ends with the row', async () => {
  const events = await stream('/api/snapshots', { name: 'streamed', image: imageOf('echo out; echo err >&2', 'true') })
  const logs = events.filter(({ event }) => event === 'build_log').map(({ data }) => [data.step, data.type])
  assert.deepEqual(logs, [
    [0, 'build'],
    [1, 'run'],
    [1, 'run'],
    [2, 'run'],
    [2, 'run'],
    [3, 'checkpoint'],
  ])
  const output = events.filter(({ event }) => event === 'build_output').map(({ data }) => data)
  assert.deepEqual(
    output.toSorted((one, other) => (one.stream < other.stream ? -1 : 1)),
    [
      { step: 1, stream: 'stderr', data: 'err\n' },
      { step: 1, stream: 'stdout', data: 'out\n' },
    ],
  )
  const row = events.at(-1)!
  assert.equal(row.event, 'result')
  assert.deepEqual((await world.api.get('/api/snapshots/streamed')).body, row.data)
  assert.deepEqual(await buildsUnderWay(), [])
})

test('image: a sandbox starts from a snapshot with all that was asked for', async () => {
  const { api } = world
  const made = await api.post('/api/snapshots', { name: 'start', image: { ...imageOf('true'), runtimeMemoryMB: 512 } })
  assert.equal(made.status, 201, made.text)
  const body = { cpuCount: 2, diskMB: 2048, timeout: 77, metadata: { a: 'b' }, envs: { X: 'y' }, previewAuth: {} }
  for (const from of [
    { snapshot: 'start' },
    { templateID: 'start' },
    { templateID: made.body.id },
    { image: imageOf('true') },
  ]) {
    const started = await api.post('/api/sandboxes', { ...body, ...from, memoryMB: 256 })
    assert.equal(started.status, 201, started.text)
    assert.deepEqual([started.body.memoryMB, started.body.cpuCount], [512, 2])
    assert.equal(started.body.fromCheckpointId, made.body.checkpointId)
    assert.match(started.body.previewAuthToken, /^\S{16,}$/)
    const { body: sandbox } = await api.get(`/api/sandboxes/${started.body.sandboxID}`)
    assert.deepEqual([sandbox.timeout, sandbox.metadata], [77, { a: 'b' }])
    const echo = await api.post(`/api/sandboxes/${sandbox.sandboxID}/exec/run`, { cmd: 'echo $X' })
    assert.equal(echo.body.stdout, 'y\n')
  }
  const larger = await api.post('/api/sandboxes', { snapshot: 'start', memoryMB: 2048 })
  assert.equal(larger.body.memoryMB, 2048)
})

test('image: equal content is built once, whatever its name', async () => {
  const { api } = world
  const image = imageOf('echo shared')
  const first = await api.post('/api/snapshots', { name: 'shared-1', image })
  const second = await api.post('/api/snapshots', { name: 'shared-2', image })
  assert.equal(second.body.checkpointId, first.body.checkpointId)
  assert.notEqual(second.body.id, first.body.id)
  const events = await stream('/api/sandboxes', { image })
  assert.deepEqual(
    events.map(({ event, data }) => data.type ?? event),
    ['cache_hit', 'create', 'result'],
  )
  assert.match(events[0]!.data.message, new RegExp(first.body.contentHash.slice(0, 12)))
  assert.equal((await api.delete('/api/snapshots/shared-1')).status, 204)
  assert.equal(
    (await api.post('/api/sandboxes', { snapshot: 'shared-2' })).status,
    201,
    'the other name keeps the data',
  )
  assert.equal((await api.delete('/api/snapshots/shared-2')).status, 204)
  assert.equal(world.machines.checkpoints.has(first.body.checkpointId), false)
})

test('image: two equal builds at once are one', async () => {
  const { api } = world
  const image = imageOf('sleep 0.3; echo together')
  const [one, other] = await Promise.all([1, 2].map(() => api.post('/api/sandboxes', { image })))
  assert.deepEqual([one!.status, other!.status], [201, 201])
  assert.equal(one!.body.fromCheckpointId, other!.body.fromCheckpointId)
})

test('image: a later build goes on after the steps that it shares', async () => {
  const { api } = world
  await api.post('/api/snapshots', { name: 'first-of-two', image: imageOf('echo 1', 'echo 2', 'echo 3') })
  const events = await stream('/api/snapshots', { name: 'second-of-two', image: imageOf('echo 1', 'echo 2', 'echo 4') })
  const reused = events.filter(({ data }) => data.message?.endsWith(': reused')).map(({ data }) => data.step)
  assert.deepEqual(reused, [1, 2])
  const output = events.filter(({ event }) => event === 'build_output').map(({ data }) => data.data)
  assert.deepEqual(output, ['4\n'])
})

test('image: a failed step is told by both calls, and the next build takes its place', async () => {
  const { api } = world
  const body = { name: 'broken', image: imageOf('true', 'echo why >&2; exit 9') }
  const facts = { code: 'build_failed', step: 2, type: 'run', exitCode: 9, stderr: 'why\n' }
  const refused = await api.post('/api/snapshots', body)
  assert.equal(refused.status, 400)
  const { error, ...told } = refused.body
  assert.deepEqual(told, facts)
  assert.match(error, /step 2 \(run\) exited with 9: why/)
  const row = (await api.get('/api/snapshots/broken')).body
  assert.deepEqual([row.status, row.error, row.step, row.stderr], ['failed', error, 2, 'why\n'])
  const events = await stream('/api/snapshots', body)
  assert.deepEqual(events.at(-1), { event: 'error', data: { ...facts, error } })
  const start = await api.post('/api/sandboxes', { image: body.image })
  assert.deepEqual([start.status, start.body.step], [400, 2])
  const notReady = await api.post('/api/sandboxes', { snapshot: 'broken' })
  assert.deepEqual([notReady.status, notReady.body.reason], [409, 'not_ready'])
  const unknown = await api.post('/api/sandboxes', { snapshot: 'brokn' })
  assert.match(unknown.body.error, /^no image brokn; there are base\b(?!.*broken)/)
  assert.equal((await api.post('/api/snapshots', { name: 'broken', image: imageOf('true', 'true') })).status, 201)
  assert.deepEqual(await buildsUnderWay(), [])
})

test('image: the log of a build stays, also of one that failed, and goes with the image', async () => {
  const { api } = world
  const log = (name: string) => api.raw('GET', `/api/images/${name}/log`)
  const image = imageOf('echo to whom it concerns', 'printf half; echo why >&2; exit 9')
  assert.equal((await api.post('/api/snapshots', { name: 'told', image })).status, 400)
  const failed = await log('told')
  assert.deepEqual([failed.status, failed.headers['content-type']], [200, 'text/plain; charset=utf-8'])
  assert.match(
    failed.text,
    /^building 2 steps in sb-build-\w+\n\[1\/2\] echo to whom it concerns\nto whom it concerns\n/,
  )
  assert.match(failed.text, /\[2\/2\] printf half.*\n(half|why|\n)+\nended: step 2 \(run\) exited with 9: why\n$/)
  const made = await api.post('/api/snapshots', { name: 'told', image: imageOf('echo to whom it concerns', 'true') })
  assert.equal(made.status, 201, 'it takes the place of the failed one')
  const { text } = await log('told')
  assert.match(text, /\[1\/2\] echo to whom it concerns: reused\n.*\nthe image is ready\n$/s)
  assert.equal((await api.raw('GET', `/api/snapshots/${made.body.id}/log`)).text, text)
  const client = new Atoll({ url: world.origin, apiKey: api.key })
  assert.equal(await (await Image.get('told', { client })).log(), text)
  const again = imageOf('echo to whom it concerns', 'true')
  assert.equal((await api.post('/api/snapshots', { name: 'told-again', image: again })).status, 201)
  assert.equal((await api.delete('/api/images/told')).status, 204)
  assert.equal((await log('told')).status, 404)
  assert.equal((await log('told-again')).text, text, 'that of the build which made its data')
  const events = eventsOf(
    (await api.raw('GET', '/api/images/told-again/log', { headers: { accept: 'text/event-stream' } })).text,
  )
  assert.deepEqual([events.at(-1)?.event, events.at(-1)?.data.status], ['result', 'ready'])
  assert.equal((await world.stranger.raw('GET', '/api/images/told-again/log')).status, 404)
  await rm(`${world.dataDir}/build-logs/ended`, { recursive: true })
  const gone = await log('told-again')
  assert.deepEqual([gone.status, JSON.parse(gone.text).code], [404, 'not_found'])
  assert.match(JSON.parse(gone.text).error, /kept for thirty days/)
  await api.delete('/api/images/told-again')
})

test('image: the log of a build under way is what it has told so far, for all that wait for it', async () => {
  const { api } = world
  const image = imageOf('echo begun; sleep 60')
  const first = await beginning('POST', '/api/snapshots', { name: 'log-one', image })
  const second = await beginning('POST', '/api/snapshots', { name: 'log-two', image })
  for (const name of ['log-one', 'log-two']) {
    await eventually(async () => (await api.raw('GET', `/api/images/${name}/log`)).text.endsWith('\nbegun\n'), {
      what: `${name} has a log`,
    })
  }
  first.leave()
  second.leave()
  await eventually(async () => (await api.raw('GET', '/api/images/log-two/log')).status === 404, { what: 'it is gone' })
  await eventually(async () => (await readdir(`${world.dataDir}/build-logs/running`)).length === 0, {
    what: 'nothing is left of it',
  })
})

test('image: commands, terminals and agents begin in the folder of the last workdir, unless they say otherwise', async () => {
  const { api } = world
  const path = join(world.dataDir, 'a folder')
  const workdir = { type: 'workdir', args: { path } }
  const steps = [{ type: 'workdir', args: { path: world.dataDir } }, workdir, run('pwd > where')]
  const made = await api.post('/api/snapshots', { name: 'in-folder', image: { steps } })
  assert.equal(made.status, 201, made.text)
  assert.equal(await readFile(`${path}/where`, 'utf8'), `${path}\n`)
  const inFolder = async (id: string, body: object = {}) =>
    (await api.post(`/api/sandboxes/${id}/exec/run`, { cmd: 'pwd', ...body })).body.stdout
  const { sandboxID } = (await api.post('/api/sandboxes', { snapshot: 'in-folder' })).body
  assert.equal(await inFolder(sandboxID), `${path}\n`)
  assert.equal(await inFolder(sandboxID, { cwd: '/' }), '/\n')
  const onIt = await api.post('/api/sandboxes', { image: { base: 'in-folder', steps: [run('true')] } })
  assert.equal(await inFolder(onIt.body.sandboxID), `${path}\n`, 'also in an image on it')
  const checkpoint = await api.post(`/api/sandboxes/${sandboxID}/checkpoints`, { name: 'c', kind: 'disk_only' })
  const fork = await api.post(`/api/sandboxes/from-checkpoint/${checkpoint.body.id}`, {})
  assert.equal(await inFolder(fork.body.sandboxID), `${path}\n`, 'also in a fork')
  const shorter = await api.post('/api/sandboxes', { image: { steps: steps.slice(0, 1) } })
  assert.equal(await inFolder(shorter.body.sandboxID), `${world.dataDir}\n`, 'and no image with the same first steps')
  for (const id of [sandboxID, onIt.body.sandboxID, fork.body.sandboxID, shorter.body.sandboxID])
    await api.delete(`/api/sandboxes/${id}`)
  await api.delete('/api/images/in-folder')
})

test('image: a build in the background can be followed and cancelled', async () => {
  const { api } = world
  const begun = await api.post('/api/snapshots?async=1', { name: 'later', image: imageOf('echo begun; sleep 60') })
  assert.deepEqual([begun.status, begun.body.status, begun.body.checkpointId], [202, 'building', undefined])
  assert.equal((await api.get('/api/snapshots/later')).body.status, 'building')
  const taken = await api.post('/api/snapshots', { name: 'later', image: imageOf('true') })
  assert.equal(taken.status, 409)
  const followed = await beginning('GET', '/api/snapshots/later/events')
  assert.equal((await buildsUnderWay()).length, 1)
  assert.equal((await api.delete('/api/snapshots/later')).status, 204)
  assert.deepEqual(await buildsUnderWay(), [])
  assert.equal((await api.get('/api/snapshots/later')).status, 404)
  const last = (await followed.events()).at(-1)!
  assert.deepEqual([last.event, last.data.code], ['error', 'not_found'])
  const done = await api.post('/api/snapshots?async=1', { name: 'done', image: imageOf('echo fine') })
  assert.equal(done.status, 202)
  const end = eventsOf((await api.raw('GET', '/api/images/done/events')).text).at(-1)!
  assert.deepEqual([end.event, end.data.status], ['result', 'ready'])
})

test('image: a client that leaves ends its build, and no other', async () => {
  const image = imageOf('echo begun; sleep 60')
  const first = await beginning('POST', '/api/snapshots', { name: 'left', image })
  const second = await beginning('POST', '/api/sandboxes', { image })
  first.leave()
  await eventually(async () => (await world.api.get('/api/snapshots/left')).status === 404, {
    what: 'the name is free',
  })
  assert.equal((await buildsUnderWay()).length, 1)
  second.leave()
  const rows = async () => (await world.api.get('/api/images')).body as { status: string }[]
  await eventually(async () => (await rows()).every(({ status }) => status !== 'building'), { what: 'nothing is left' })
  assert.deepEqual(await buildsUnderWay(), [])
})

test('image: what is wrong is answered as JSON before a stream begins', async () => {
  const { api } = world
  const headers = { accept: 'text/event-stream' }
  const cases: [path: string, body: object, status: number, field?: string][] = [
    ['/api/snapshots', { image: {} }, 400, 'name'],
    ['/api/snapshots', { name: 'x' }, 400, 'image'],
    ['/api/snapshots', { name: '../x', image: {} }, 400, 'name'],
    ['/api/snapshots', { name: 'x', image: { steps: [{ type: 'zap', args: {} }] } }, 400, 'image.steps.0.type'],
    ['/api/snapshots', { name: 'x', image: { steps: [{ type: 'run' }] } }, 400, 'image.steps.0.args'],
    ['/api/snapshots', { name: 'x', image: { steps: [run()] } }, 400, 'image.steps.0.args.commands'],
    [
      '/api/snapshots',
      { name: 'x', image: { steps: [{ type: 'workdir', args: { path: 'a' } }] } },
      400,
      'image.steps.0.args.path',
    ],
    ['/api/snapshots', { name: 'x', image: { builderMemoryMB: 1 } }, 400, 'image.builderMemoryMB'],
    ['/api/sandboxes', { image: { steps: [run(' ')] } }, 400, 'image.steps.0.args.commands.0'],
    ['/api/sandboxes', { image: { base: 'nothing' }, timeout: -1 }, 400, 'timeout'],
  ]
  for (const [path, body, status, field] of cases) {
    const answer = await api.post(path, body, { headers })
    assert.deepEqual([answer.status, answer.body.field], [status, field], JSON.stringify(body))
  }
  const unknown = await stream('/api/sandboxes', { snapshot: 'nothing' })
  assert.deepEqual(
    unknown.map(({ event, data }) => [event, data.type ?? data.code]),
    [
      ['build_log', 'resolve'],
      ['error', 'not_found'],
    ],
  )
  assert.equal((await api.post('/api/sandboxes', { snapshot: 'nothing' })).status, 404)
  assert.equal((await api.post('/api/sandboxes', { templateID: 'nothing' })).status, 404)
})

test('image: a manifest may have 64 MiB, and no more', async () => {
  const { api } = world
  const content = 'A'.repeat(40 * 1024 * 1024)
  const bodyOf = (bytes: number) => ({
    name: 'large',
    image: { steps: [{ type: 'add_file', args: { path: '/x', content: content.slice(0, bytes) } }, run('exit 3')] },
  })
  const tooLarge = await api.post('/api/snapshots', Buffer.alloc(65 * 1024 * 1024, 32))
  assert.deepEqual([tooLarge.status, tooLarge.body.code], [413, 'too_large'])
  // Without containers the file would be one of this machine, so the first step fails.
  const taken = bodyOf(content.length)
  taken.image.steps.reverse()
  const failed = await api.post('/api/snapshots', taken)
  assert.deepEqual([failed.status, failed.body.code, failed.body.step], [400, 'build_failed', 1])
})

test('image: an organisation sees its own images, and the public ones of the operator', async () => {
  const { api, stranger } = world
  const made = (await api.post('/api/snapshots', { name: 'mine', image: imageOf('true') })).body
  for (const path of ['/api/snapshots/mine', `/api/images/${made.id}`, '/api/snapshots/mine/patches']) {
    assert.equal((await stranger.get(path)).status, 404, path)
  }
  assert.equal((await stranger.delete('/api/snapshots/mine')).status, 404)
  assert.equal((await stranger.post('/api/sandboxes', { snapshot: 'mine' })).status, 404)
  await stranger.post('/api/snapshots', { name: 'theirs', image: imageOf('true') })
  assert.equal((await stranger.post('/api/snapshots/theirs/publish')).status, 403)
  assert.deepEqual((await api.post('/api/snapshots/mine/publish')).body, { name: 'mine', public: true })
  assert.equal((await stranger.post('/api/sandboxes', { snapshot: 'mine' })).status, 201)
  assert.equal((await stranger.post('/api/sandboxes', { image: { base: 'mine', ...imageOf('true') } })).status, 201)
  assert.equal((await stranger.get('/api/snapshots/mine')).status, 404)
  assert.deepEqual(
    (await stranger.get('/api/templates')).body.map(({ name }: { name: string }) => name),
    ['theirs', 'mine'],
  )
  assert.equal((await stranger.delete('/api/templates/mine')).status, 403)
  assert.equal((await api.post('/api/snapshots/mine/unpublish')).body.public, false)
  assert.equal((await stranger.post('/api/sandboxes', { snapshot: 'mine' })).status, 404)
})

test('checkpoint: a public one may be started from by others, not patched or deleted', async () => {
  const { api, stranger } = world
  const sandboxId = await world.sandbox()
  const { id } = (await api.post(`/api/sandboxes/${sandboxId}/checkpoints`, { name: 'p', kind: 'disk_only' })).body
  const start = async () => (await stranger.post(`/api/sandboxes/from-checkpoint/${id}`, {})).status
  assert.equal(await start(), 404)
  assert.equal((await stranger.post(`/api/sandboxes/checkpoints/${id}/publish`)).status, 404)
  assert.equal((await api.post(`/api/sandboxes/checkpoints/${id}/publish`)).body.public, true)
  assert.equal(await start(), 201)
  assert.equal((await stranger.post(`/api/sandboxes/checkpoints/${id}/unpublish`)).status, 403)
  assert.equal((await stranger.post(`/api/sandboxes/checkpoints/${id}/patches`, { script: 'true' })).status, 404)
  assert.equal((await stranger.delete(`/api/sandboxes/${sandboxId}/checkpoints/${id}`)).status, 404)
  assert.equal((await api.post(`/api/sandboxes/checkpoints/${id}/unpublish`)).status, 200)
  assert.equal(await start(), 404)
})

test('image: volumes are those of whoever starts, also from a public checkpoint', async () => {
  const { api, stranger } = world
  assert.equal((await api.post('/api/volumes', { name: 'data', sizeMB: 64 })).status, 201)
  await api.post('/api/snapshots', { name: 'with-volume', image: imageOf('echo volume') })
  const volumes = [{ name: 'data', path: '/data', readOnly: true }]
  const started = await api.post('/api/sandboxes', { snapshot: 'with-volume', volumes })
  assert.equal(started.status, 201, started.text)
  const { sandboxID } = started.body
  assert.deepEqual(
    (await api.get(`/api/sandboxes/${sandboxID}`)).body.volumes.map(({ name }: { name: string }) => name),
    ['data'],
  )
  const { id } = (await api.post(`/api/sandboxes/${sandboxID}/checkpoints`, { name: 'v', kind: 'disk_only' })).body
  await world.sandboxes.checkpoints.settled(world.orgId, id)
  await api.post(`/api/sandboxes/checkpoints/${id}/publish`)
  const foreign = await stranger.post(`/api/sandboxes/from-checkpoint/${id}`, {})
  assert.ok(foreign.status === 404 || foreign.status === 409, foreign.text)
  const without = await stranger.post(`/api/sandboxes/from-checkpoint/${id}`, { volumes: [] })
  assert.equal(without.status, 201, without.text)
  assert.deepEqual((await stranger.get(`/api/sandboxes/${without.body.sandboxID}`)).body.volumes ?? [], [])
})

test('image: patches of an image run in what starts from it', async () => {
  const { api } = world
  await api.post('/api/snapshots', { name: 'patched', image: imageOf('echo patched') })
  const { patch } = (await api.post('/api/snapshots/patched/patches', { script: 'exit 4', strategy: 'on_resume' })).body
  assert.equal(patch.strategy, 'on_wake')
  assert.deepEqual((await api.get('/api/images/patched/patches')).body, [patch])
  const refused = await api.post('/api/sandboxes', { snapshot: 'patched' })
  assert.deepEqual([refused.status, refused.body.code, refused.body.exitCode], [422, 'patch_failed', 4])
  assert.equal((await api.delete(`/api/snapshots/patched/patches/${patch.id}`)).status, 204)
  assert.equal((await api.post('/api/sandboxes', { snapshot: 'patched' })).status, 201)
  assert.equal((await api.get('/api/snapshots/nothing/patches')).status, 404)
})

test('template: a Dockerfile is built, and read with and without /api', async () => {
  const { api } = world
  // Without ENV, whose step writes below /etc of this machine.
  const folder = join(world.dataDir, 'docker')
  const dockerfile = `FROM base\nWORKDIR ${folder}\nRUN test "$PWD" = ${folder}\n`
  const made = await api.post('/templates', { name: 'docker', dockerfile })
  assert.equal(made.status, 201, made.text)
  assert.deepEqual(
    [made.body.name, made.body.tag, made.body.status, made.body.templateType, made.body.dockerfile],
    ['docker', 'latest', 'ready', 'dockerfile', dockerfile],
  )
  assert.equal(made.body.templateID, made.body.id)
  assert.deepEqual((await api.get('/api/templates/docker')).body, made.body)
  const { sandboxID } = (await api.post('/api/sandboxes', { templateID: 'docker' })).body
  assert.equal((await api.post(`/api/sandboxes/${sandboxID}/exec/run`, { cmd: 'pwd' })).body.stdout, `${folder}\n`)
  const wrong = await api.post('/api/templates', { name: 'wrong', dockerfile: 'FROM base\nADD a b' })
  assert.deepEqual([wrong.status, wrong.body.field, wrong.body.line], [400, 'dockerfile', 2])
  assert.equal((await api.post('/templates', { name: 'docker', dockerfile })).status, 409)
  assert.equal((await api.delete('/templates/docker')).status, 204)
  assert.equal((await api.delete('/templates/docker')).status, 404)
})

test('image: named images are bounded', async () => {
  const { api } = world
  let last = 201
  for (let index = 0; last === 201; index++) {
    last = (await api.post('/api/snapshots', { name: `many-${index}`, image: {} })).status
    assert.ok(index < 13)
  }
  assert.equal(last, 409)
})

test('image: a URL for an archive is signed for one name of one organisation, and expires', async (t) => {
  const { api, stranger, origin } = world
  const signed = (await stranger.post('/api/images/packed/archive-url', { expiresIn: 60, maxBytes: 100 })).body
  const url = new URL(signed.url)
  assert.equal(url.pathname, '/api/images/packed/archive/signed')
  const put = async (changed: URL) => {
    const answer = await fetch(new URL(changed.pathname + changed.search, origin), { method: 'PUT', body: 'x' })
    return [answer.status, ((await answer.json()) as { code: string }).code]
  }
  const changed = (change: (it: URL) => void) => {
    const copy = new URL(url)
    change(copy)
    return copy
  }
  // Machines of these tests import nothing: what is signed comes that far.
  assert.deepEqual(await put(url), [501, 'not_implemented'])
  const { org } = (await api.post('/api/images/packed/archive-url', {})).body.url.match(/org=(?<org>[^&]+)/).groups
  const forged = [
    changed((it) => (it.pathname = it.pathname.replace('packed', 'other'))),
    changed((it) => it.searchParams.set('org', org)),
    changed((it) => it.searchParams.set('maxBytes', '1000')),
    changed((it) => it.searchParams.delete('maxBytes')),
    changed((it) => it.searchParams.set('expires', '99999999999')),
    changed((it) => it.searchParams.set('signature', 'f'.repeat(64))),
    changed((it) => it.searchParams.delete('signature')),
  ]
  for (const one of forged) assert.deepEqual(await put(one), [403, 'signature_invalid'], one.search)
  const wrong = await stranger.post('/api/images/-packed/archive-url', {})
  assert.deepEqual([wrong.status, wrong.body.field], [400, 'name'])
  t.mock.timers.enable({ apis: ['Date'], now: Date.now() + 120_000 })
  assert.deepEqual(await put(url), [403, 'signature_expired'])
})
