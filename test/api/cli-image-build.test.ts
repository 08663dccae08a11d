/** `atoll image build` of a Dockerfile, against a server that keeps files and builds nothing. */
import assert from 'node:assert/strict'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { FakeContexts } from '../../sdk/src/testing/fake-contexts.ts'
import { beginAtoll, type RunOptions } from '../support/command-line.ts'

const dockerfile = 'FROM base\nARG A\nCOPY . /srv\n'

async function started(t: TestContext, files: Record<string, string>) {
  const fake = await FakeContexts.start(t)
  const root = await mkdtemp('/tmp/atoll-cli-build-')
  t.after(() => rm(root, { recursive: true }))
  for (const [path, content] of Object.entries(files)) {
    await mkdir(dirname(join(root, path)), { recursive: true })
    await writeFile(join(root, path), content)
  }
  const world = { origin: fake.url, api: { key: 'key' } as never }
  const begin = (argv: string[], options: RunOptions = {}) => beginAtoll(world, ['image', 'build', ...argv], options)
  const build = async (argv: string[], options?: RunOptions) => await begin(argv, options).ended
  return { fake, root, begin, build }
}

test('atoll image build: the folder travels, what its flags say is asked for, and the id alone is on standard output', async (t) => {
  const { fake, root, build } = await started(t, {
    Dockerfile: dockerfile,
    a: 'one',
    'node_modules/x': '',
    '.dockerignore': 'node_modules',
  })
  await writeFile(join(root, 'token'), 'hidden')
  fake.events = [
    ['build_log', { step: 1, type: 'copy', message: '[web 1/1] COPY . /srv' }],
    ['build_output', { step: 1, stream: 'stdout', data: 'he' }],
    ['build_output', { step: 1, stream: 'stdout', data: 'llo\n' }],
    ['result', { id: 'img-7', status: 'ready' }],
  ]
  const flags = [
    '--build-arg',
    'A=1',
    '--build-arg',
    'FROM_HERE',
    '--build-arg',
    'UNSET',
    '--target',
    'web',
    '--no-cache',
    '--replace',
  ]
  const secrets = ['--secret', `id=token,src=${join(root, 'token')}`, '--secret', 'id=var,env=FROM_HERE']
  const { status, stdout, stderr } = await build(['tools:2', root, ...flags, ...secrets], { env: { FROM_HERE: 'env' } })
  assert.deepEqual([status, stdout], [0, 'img-7\n'], stderr)
  assert.equal(
    stderr,
    'context: 4 of 4 files sent (59 B)\n[web 1/1] COPY . /srv\n[web 1/1] hello\n'.replace(
      '59',
      `${dockerfile.length + 3 + 12 + 6}`,
    ),
  )
  assert.deepEqual(fake.builds[0]?.body, {
    name: 'tools:2',
    image: {
      dockerfile,
      context: 'ctx-1',
      buildArgs: { A: '1', FROM_HERE: 'env' },
      target: 'web',
      noCache: true,
      secrets: { token: 'aGlkZGVu', var: 'ZW52' },
    },
    replace: true,
  })
  const again = await build(['tools:2', root, '--json'])
  assert.deepEqual(JSON.parse(again.stdout), { id: 'img-7', status: 'ready' })
  assert.match(again.stderr, /context: the server has all of 4 files/)
})

test('atoll image build: -f names a file elsewhere, standard input or a Dockerfile alone; --background asks for no log', async (t) => {
  const { fake, root, build } = await started(t, { 'ctx/a': '', 'other/web.Dockerfile': dockerfile })
  const folder = join(root, 'ctx')
  const file = join(root, 'other/web.Dockerfile')
  assert.equal((await build(['x', folder, '-f', file, '--background'])).status, 0)
  assert.equal(fake.builds[0]?.query, '?async=1')
  assert.deepEqual(fake.archives, [['a']])
  assert.equal((await build(['x', folder, '-f', '-'], { input: 'FROM base\nRUN true' })).status, 0)
  assert.deepEqual(fake.builds[1]?.body['image'], { dockerfile: 'FROM base\nRUN true' })
  assert.equal((await build(['x', file])).status, 0)
  assert.deepEqual(fake.archives.at(-1), ['web.Dockerfile'])
})

test('atoll image build: a manifest of steps is what it was', async (t) => {
  const { fake, root, build } = await started(t, { 'steps.json': '{"steps":[]}', 'bad.json': 'FROM base' })
  assert.equal((await build(['x', join(root, 'steps.json')])).status, 0)
  assert.equal((await build(['x', '-'], { input: '{"oci":"docker.io/a"}' })).status, 0)
  assert.deepEqual(
    fake.builds.map(({ body }) => body['image']),
    [{ steps: [] }, { oci: 'docker.io/a' }],
  )
  assert.equal((await build(['x', join(root, 'bad.json')])).status, 2)
  const refused = await build(['x', join(root, 'steps.json'), '--target', 'web'])
  assert.deepEqual([refused.status, refused.stdout], [2, ''])
  assert.match(refused.stderr, /--target is for a Dockerfile/)
})

test('atoll image build: what is not there is told with its path, before anything is asked of the server', async (t) => {
  const { fake, root, build } = await started(t, { a: '' })
  for (const [argv, status, words] of [
    [[root], 1, `${root}/Dockerfile`],
    [[join(root, 'none')], 1, `${root}/none`],
    [[root, '-f', join(root, 'no.Dockerfile')], 1, 'no.Dockerfile'],
    [[join(root, 'a'), '-f', '-'], 2, 'is no folder'],
    [[root, '--secret', 'id=a,src=/nowhere'], 1, '/nowhere'],
    [[root, '--secret', 'id=a,env=NOT_SET'], 2, 'NOT_SET'],
    [[root, '--build-arg', '=1'], 2, '--build-arg'],
  ] as const) {
    const ended = await build(['x', ...argv])
    assert.deepEqual([ended.status, ended.stdout], [status, ''], ended.stderr)
    assert.ok(ended.stderr.includes(words), ended.stderr)
  }
  assert.deepEqual([fake.told.length, fake.builds.length], [0, 0])
})

test('atoll image build: a failed build ends with its error', async (t) => {
  const { fake, root, build } = await started(t, { Dockerfile: dockerfile })
  fake.events = [['error', { error: 'step 1 (copy, line 3) failed', code: 'build_failed', step: 1, line: 3 }]]
  const { status, stdout, stderr } = await build(['x', root, '--json'])
  assert.deepEqual([status, stdout], [1, ''])
  assert.match(stderr, /^\{"step":1,"line":3,"error":"step 1 \(copy, line 3\) failed","code":"build_failed"\}$/m)
})

test('atoll image build: Ctrl-C ends it while files travel and while the build runs', async (t) => {
  const { fake, root, begin } = await started(t, { Dockerfile: dockerfile, a: 'x'.repeat(1000) })
  const arrived = Promise.withResolvers<void>()
  const left = Promise.withResolvers<void>()
  fake.beforeArchive = async (request) => {
    request.once('close', left.resolve)
    arrived.resolve()
    await left.promise
  }
  const sending = begin(['x', root])
  await arrived.promise
  sending.child.kill('SIGINT')
  await left.promise
  assert.equal((await sending.ended).status, 130)
  fake.beforeArchive = () => undefined
  fake.events = [['build_log', { step: 1, type: 'run', message: 'it runs' }]]
  fake.endsBuilds = false
  const building = begin(['x', root])
  await building.saying(/it runs/)
  building.child.kill('SIGINT')
  assert.equal((await building.ended).status, 130)
  await fake.left
})
