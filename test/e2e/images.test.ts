import assert from 'node:assert/strict'
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { Image, Sandbox, Snapshots, Templates } from '@opencomputer/sdk/node'
import { dockerfileBuilds, type Row } from './dockerfile-builds.ts'
import { askPreview } from './preview.ts'
import { AtollServer } from './server.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

// The public SDK's images, snapshots and templates against real sandboxes; and what is left after builds that were cut off.

const server = await AtollServer.startForFile({
  env: { ATOLL_LIMITS: JSON.stringify({ image: { builderDiskMb: 64 } }) },
})
const connection = { apiUrl: server.url, apiKey: server.key }
const snapshots = new Snapshots(connection)

const run = (...commands: string[]) => ({ type: 'run', args: { commands } })
const { api, rows, sandboxes, layersOnDisk, deleteAll, ...left } = dockerfileBuilds(server)

async function untilNothingIsLeft(): Promise<void> {
  await left.untilNothingIsLeft()
  assert.deepEqual(await readdir(`${server.dataDir}/builds`).catch(() => []), [])
  const logs = await readdir(`${server.dataDir}/build-logs`, { recursive: true }).catch(() => [])
  assert.deepEqual(
    logs.filter((name) => /\/\d+$/.test(name)),
    [],
  )
}

test('the SDK builds an image of files, variables and commands, and starts from it', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'atoll-image-'))
  await writeFile(`${folder}/page.html`, '<h1>reef</h1>')
  const image = Image.base()
    .addFile('/srv/name.txt', 'atoll')
    .addLocalDir(folder, '/srv/site')
    .env({ COLOUR: 'red' })
    .env({ COLOUR: "it's blue", SIZE: 'of the image', PATH: '/opt/bin:/usr/local/bin:/usr/bin:/bin' })
    .workdir('/srv/work')
    .runCommands('pwd > where', 'cd /srv', 'test "$COLOUR" = "it\'s blue"', 'cat name.txt site/page.html > both')
  await rm(folder, { recursive: true })
  const logs: string[] = []
  const made = await snapshots.create({ name: 'site', image, onBuildLogs: (line) => logs.push(line) })
  assert.equal(made.status, 'ready')
  assert.ok(
    logs.some((line) => line.includes('[6/6]')),
    logs.join('\n'),
  )
  assert.equal((await snapshots.get('site')).checkpointId, made.checkpointId)
  assert.deepEqual(
    (await snapshots.list()).map(({ name }) => name),
    ['site'],
  )
  assert.equal((await snapshots.waitUntilReady('site')).id, made.id)
  const sandbox = await Sandbox.create({ ...connection, snapshot: 'site', envs: { EXTRA: 'yes', SIZE: 'given' } })
  assert.equal((await sandbox.exec.run('cat /srv/both; echo $EXTRA')).stdout, 'atoll<h1>reef</h1>yes\n')
  const shown = 'echo $COLOUR, $SIZE, $PATH, $PWD'
  const inForce = (size: string) => `it's blue, ${size}, /opt/bin:/usr/local/bin:/usr/bin:/bin, /srv/work\n`
  assert.equal((await sandbox.exec.run(shown)).stdout, inForce('given'))
  assert.equal((await sandbox.exec.run(`bash -lc '${shown}'`)).stdout, inForce('given'), 'a login shell has no say')
  assert.equal((await sandbox.exec.run(`bash -lc '${shown}'`, { env: { SIZE: 'own' } })).stdout, inForce('own'))
  assert.equal((await sandbox.exec.run(`env -i bash -lc '${shown}'`)).stdout, inForce('of the image'))
  const terminal = await server.json('POST', `/api/sandboxes/${sandbox.sandboxId}/pty`, {
    ...{ shell: '/bin/sh', args: ['-c', `{ ${shown}; } > /tmp/shown`], cols: 80, rows: 24 },
  })
  assert.ok(terminal)
  await eventually(async () => (await sandbox.exec.run('cat /tmp/shown')).stdout === inForce('given'), {
    what: 'a terminal',
  })
  const { checkpointId } = (await rows()).find(({ name }) => name === 'site')!
  const body = { envs: { COLOUR: 'green' } }
  const fork = await api<{ sandboxID: string }>('POST', `/sandboxes/from-checkpoint/${checkpointId}`, body)
  const { stdout } = await (
    await Sandbox.connect(fork.body.sandboxID, connection)
  ).exec.run('echo $COLOUR $SIZE; cat where')
  assert.equal(stdout, 'green of the image\n/srv/work\n')
  assert.equal(
    (await sandbox.exec.run('stat -c %a%F /srv/name.txt /srv/work')).stdout,
    '644regular file\n755directory\n',
  )
  const again = await Sandbox.create({ ...connection, image, onBuildLog: (line: string) => logs.push(line) })
  assert.equal((await again.exec.run('cat /srv/both')).stdout, 'atoll<h1>reef</h1>')
  await snapshots.delete('site')
  await snapshots.delete('site')
  assert.equal((await sandbox.exec.run('cat /srv/name.txt')).stdout, 'atoll', 'sandboxes live on')
  await deleteAll()
  await untilNothingIsLeft()
})

test('the SDK installs Python packages on the base image, for the whole system', async () => {
  const setup = "from setuptools import setup\nsetup(name='reef', version='1.0', py_modules=['reef'])\n"
  const image = Image.base()
    .addFile('/srv/reef/setup.py', setup)
    .addFile('/srv/reef/reef.py', "name = 'reef'\n")
    .pipInstall(['srv/reef'])
    .runCommands(
      `test "$(python3 -c 'import reef; print(reef.name)')" = reef`,
      'pip --version && jq . /dev/null && less -V && nano -V',
    )
  assert.equal((await snapshots.create({ name: 'pip', image })).status, 'ready')
  await deleteAll()
  await untilNothingIsLeft()
})

test('the SDK builds a template, and a failed build is an error with the reason', async () => {
  const templates = new Templates(`${server.url}/api`, server.key)
  const made = await templates.build(
    'docker',
    'FROM base\nWORKDIR /app\nENV A=b\nRUN pwd > where && echo $A >> where\n',
  )
  assert.deepEqual([made.name, made.status, made.tag], ['docker', 'ready', 'latest'])
  assert.deepEqual(
    (await templates.list()).map(({ name }) => name),
    ['docker', 'node', 'python'],
  )
  const sandbox = await Sandbox.create({ ...connection, template: 'docker' })
  assert.equal((await sandbox.exec.run('cat /app/where; echo $A')).stdout, '/app\nb\nb\n')
  await templates.delete('docker')
  await assert.rejects(templates.get('docker'), /404/)
  const broken = Image.base().runCommands('echo because >&2; false')
  await assert.rejects(snapshots.create({ name: 'broken', image: broken }), /Build failed: .*because/)
  await assert.rejects(snapshots.waitUntilReady('broken'), /failed/)
  await deleteAll()
  await untilNothingIsLeft()
})

test('memory that was baked in goes on in each sandbox: its server answers at once', async () => {
  const program = `
from http.server import *
count = 0
class Handler(BaseHTTPRequestHandler):
  def do_GET(self):
    global count
    count += 1
    self.send_response(200); self.end_headers(); self.wfile.write(str(count).encode())
HTTPServer(('', 8000), Handler).serve_forever()`
  const image = {
    steps: [{ type: 'add_file', args: { path: '/srv/count.py', content: Buffer.from(program).toString('base64') } }],
    memory: true,
    runtimeMemoryMB: 256,
    startCommand: 'exec python3 /srv/count.py',
    readyCommand: 'python3 -c "import urllib.request; urllib.request.urlopen(\\"http://127.0.0.1:8000\\")"',
  }
  const made = await api<Row>('POST', '/snapshots', { name: 'baked', image })
  assert.equal(made.status, 201, JSON.stringify(made.body))
  const started = await Promise.all([1, 2, 3].map(() => Sandbox.create({ ...connection, snapshot: 'baked' })))
  for (const { sandboxId } of started) {
    const answer = await askPreview(server, `${sandboxId}-p8000.preview.localhost`)
    assert.deepEqual([answer.status, answer.body], [200, '2'], 'the first request was that of the build')
  }
  const ended = await api<{ code: string; type: string; exitCode: number }>('POST', '/snapshots', {
    name: 'ends',
    image: { memory: true, startCommand: 'exit 5' },
  })
  assert.deepEqual(
    [ended.status, ended.body.code, ended.body.type, ended.body.exitCode],
    [400, 'build_failed', 'start', 5],
  )
  await deleteAll()
  await untilNothingIsLeft()
})

test('a session works in a sandbox of an image, whose processes go on beside the agent', async () => {
  const image = {
    steps: [run('echo from the image > /workspace/marker')],
    memory: true,
    startCommand: 'exec python3 -m http.server 8000 --directory /workspace',
  }
  assert.equal((await api('POST', '/snapshots', { name: 'desk', image })).status, 201)
  const answer = await server.fetch('/v1/sessions', {
    method: 'POST',
    body: JSON.stringify({ prompt: 'A page about reefs', user_id: 'ada', snapshot: 'desk' }),
  })
  assert.equal(answer.status, 201)
  const { id, sandboxId } = (await answer.json()) as { id: string; sandboxId: string }
  const activity = async () => ((await server.json('GET', `/v1/sessions/${id}`)) as { activity: string }).activity
  await eventually(async () => (await activity()) === 'idle', { what: 'the turn is over' })
  const marker = await askPreview(server, `${sandboxId}-p8000.preview.localhost`, '/marker')
  assert.deepEqual([marker.status, marker.body], [200, 'from the image\n'])
  await server.json('DELETE', `/v1/sessions/${id}`)
  const unknown = await server.fetch('/v1/sessions', {
    method: 'POST',
    body: JSON.stringify({ prompt: 'A page', user_id: 'ada', snapshot: 'nothing' }),
  })
  assert.equal(unknown.status, 404)
  await deleteAll()
  await untilNothingIsLeft()
})

test('the log of a build that prints without bound has its first and its last part', async () => {
  const image = { steps: [run('echo first', `head -c ${100 * 2 ** 20} /dev/zero | tr '\\0' x`, 'echo; echo last')] }
  assert.equal((await api('POST', '/snapshots', { name: 'loud', image })).status, 201)
  const log = await (await server.fetch('/api/images/loud/log')).text()
  const some = 'x'.repeat(1000)
  assert.ok(log.includes(`\nfirst\n${some}`) && log.includes(`${some}\nlast\n[1/1] done in `), log.slice(-300))
  const [gap = '', bytes] = /\n\[(\d+) bytes are left out\]\n/.exec(log) ?? []
  assert.ok(
    log.length <= 10 * 2 ** 20 + gap.length && Number(bytes) >= 100 * 2 ** 20 - 10 * 2 ** 20,
    `${log.length}, ${gap}`,
  )
  await deleteAll()
  await untilNothingIsLeft()
})

test('a step that fills the disk fails with the step', async () => {
  const full = await api<{ code: string; step: number; stderr: string }>('POST', '/snapshots', {
    name: 'full',
    image: { steps: [run('true'), run('head -c 200M /dev/urandom > /big')] },
  })
  assert.deepEqual([full.status, full.body.code, full.body.step], [400, 'build_failed', 2], JSON.stringify(full.body))
  assert.match(full.body.stderr, /quota exceeded|No space/)
  await deleteAll()
  await untilNothingIsLeft()
})

test('a step that never ends fails with the step', async () => {
  // Of its own: on a busy machine an ordinary step of the other tests takes longer.
  await using hasty = await AtollServer.start({ env: { ATOLL_LIMITS: JSON.stringify({ image: { stepMs: 10_000 } }) } })
  const image = { steps: [run('true'), run('while :; do sleep 1; done')] }
  const endless = await hasty.fetch('/api/snapshots', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ name: 'endless', image }),
  })
  const { code, error, step } = (await endless.json()) as { code: string; error: string; step: number }
  assert.deepEqual([endless.status, code, step], [400, 'build_failed', 2])
  assert.match(error, /took too long/)
})

test('a killed server goes on with a build in the background after the steps that it has, and leaves nothing of others', async () => {
  const image = {
    steps: [
      run('cat /proc/sys/kernel/random/uuid > /first'),
      { type: 'add_file', args: { path: '/kept', content: Buffer.from('content').toString('base64') } },
      run('echo before', 'sleep 30', 'cat /kept /first > /both', 'echo after'),
    ],
  }
  void api('POST', '/snapshots', { name: 'waits', image: { steps: [run('sleep 600')] } }).catch(() => undefined)
  await eventually(async () => (await sandboxes()).length === 1, { what: 'the other build has begun' })
  await api('POST', '/snapshots?async=1', { name: 'goes-on', image })
  await eventually(
    async () => {
      const isBegun = (await layersOnDisk()).length === 2 && (await sandboxes()).length === 2
      return isBegun && /\nbefore\n/.test(await (await server.fetch('/api/images/goes-on/log')).text())
    },
    { what: 'two steps are done, and the third has begun' },
  )
  await server.kill()
  await server.restart()
  await eventually(async () => (await rows()).every(({ status }) => status === 'ready'), { what: 'it is ready' })
  assert.deepEqual(
    (await rows()).map(({ name }) => name),
    ['goes-on'],
  )
  const log = await (await server.fetch('/api/images/goes-on/log')).text()
  assert.match(
    log,
    /\nbefore\n.*\nthe build goes on after a restart of the server\n.*\nbefore\nafter\n.*\nthe image is ready\n$/s,
  )
  const sandbox = await Sandbox.create({ ...connection, snapshot: 'goes-on' })
  const { stdout } = await sandbox.exec.run('cat /both /first')
  const [both, first] = stdout.trim().split('\n')
  assert.equal(both, `content${first}`)
  await sandbox.kill()
  assert.deepEqual(await sandboxes(), [])
  await deleteAll()
  await untilNothingIsLeft()
})

test('builds that are cancelled, and a server that is killed, in the middle of each step leave nothing', async () => {
  const names = ['one', 'two', 'three', 'four']
  /** The step after so many runs until its build is cut off. */
  const stepsOf = (done: number) =>
    names.map((name, at) => run(`echo ${name} > /${name}; touch /begun-${name}; sleep ${at === done ? 600 : 0.3}`))
  for (const [done] of names.entries()) {
    await api('POST', '/snapshots?async=1', { name: 'cut-off', image: { steps: stepsOf(done) } })
    await eventually(async () => (await layersOnDisk()).length >= done, { what: `step ${done + 1} runs` })
    assert.equal((await api('DELETE', '/snapshots/cut-off')).status, 204)
    await untilNothingIsLeft()
  }
  for (const [done] of names.entries()) {
    const abandoned = api('POST', '/snapshots', { name: 'cut-off', image: { steps: stepsOf(done) } }).catch(
      () => undefined,
    )
    await eventually(async () => (await layersOnDisk()).length >= done, { what: `step ${done + 1} runs` })
    await server.kill()
    await abandoned
    await server.restart()
    assert.deepEqual(await rows(), [])
    await untilNothingIsLeft()
  }
})

test('an image that the operator has defined is built when it is first named, also over the end of the server', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'atoll-definitions-'))
  try {
    await writeFile(`${folder}/tools.Dockerfile`, 'FROM base\nRUN exit')
    await writeFile(`${folder}/tools.json`, '{}')
    await server.stop()
    const refused = await server.refusal({ ATOLL_IMAGE_DEFINITIONS: folder })
    assert.match(refused.words, /tools\.json: there is another definition of tools/)
    await rm(`${folder}/tools.json`)
    await writeFile(`${folder}/tools.Dockerfile`, 'FROM base\nENV COLOUR=blue\nRUN echo tools > /opt/tools && sleep 15')
    await writeFile(`${folder}/more.Dockerfile`, 'FROM tools\nRUN cat /opt/tools > /opt/more')
    await server.restart({ ATOLL_IMAGE_DEFINITIONS: folder })
    const given = assert.rejects(Sandbox.create({ ...connection, template: 'more' }))
    await eventually(async () => (await sandboxes()).some((id) => id.startsWith('sb-build-')), {
      what: 'the image below is being built',
    })
    await server.kill()
    await given
    await server.restart({ ATOLL_IMAGE_DEFINITIONS: folder })
    const sandbox = await Sandbox.create({ ...connection, template: 'more' })
    assert.equal((await sandbox.exec.run('cat /opt/more; echo $COLOUR')).stdout, 'tools\nblue\n')
    assert.deepEqual(
      (await rows()).map(({ name, status }) => [name, status]),
      [
        [undefined, 'ready'],
        [undefined, 'ready'],
      ],
    )
    await deleteAll()
    await untilNothingIsLeft()
  } finally {
    await rm(folder, { recursive: true })
  }
})
