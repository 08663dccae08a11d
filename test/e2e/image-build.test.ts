/** `atoll image build` and the SDK's `Image.fromDockerfile` with the files of a folder, against the real server. */
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { chmod, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { Atoll, Image, NotFoundError, Sandbox, type ContextProgress } from '../../sdk/src/index.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { beginAtoll } from '../support/command-line.ts'
import { AtollServer } from './server.ts'

const server = await AtollServer.startForFile()
const world = { origin: server.url, api: { key: server.key } as never }
const client = new Atoll({ url: server.url, apiKey: server.key })

async function folderOf(t: TestContext, files: Record<string, string>): Promise<string> {
  const root = await mkdtemp('/tmp/atoll-image-build-')
  t.after(() => rm(root, { recursive: true }))
  for (const [path, content] of Object.entries(files)) {
    await mkdir(dirname(join(root, path)), { recursive: true })
    await writeFile(join(root, path), content)
  }
  return root
}

async function atoll(argv: string[], env: NodeJS.ProcessEnv = {}) {
  return await beginAtoll(world, argv, { env }).ended
}

/** What a command in a sandbox from the image prints. */
async function printed(image: string, command: string): Promise<string> {
  await using sandbox = await Sandbox.create({ client, snapshot: image, ttlSeconds: 600 })
  const { stdout, stderr, exitCode } = await sandbox.run(command)
  assert.equal(exitCode, 0, stderr)
  return stdout
}

const project = {
  Dockerfile: 'FROM base\nARG GREETING=none\nWORKDIR /srv\nCOPY . .\nRUN echo "$GREETING" > said\n',
  '.dockerignore': 'node_modules\n*.log\n!keep.log\nDockerfile\n',
  'package.json': '{"name":"app"}',
  'src/index.js': 'console.log("one")',
  'src/copy.js': 'console.log("one")',
  'node_modules/big/index.js': 'x'.repeat(2_000_000),
  'app.log': 'no',
  'keep.log': 'yes',
}

test('image build: a folder with what it ignores is built, and of a changed one the changed file alone travels', async (t) => {
  const root = await folderOf(t, project)
  await chmod(join(root, 'src/index.js'), 0o751)
  await symlink('src/index.js', join(root, 'main'))
  const first = await atoll(['image', 'build', 'app', root, '--build-arg', 'GREETING=hello'])
  assert.equal(first.status, 0, first.stderr)
  assert.match(first.stdout, /^img-\w+\n$/)
  // Of two files with one content one travels.
  assert.match(first.stderr, /^context: 4 of 5 files sent \(\d+ B\)$/m)
  const looks = 'cd /srv; find . | sort; stat -c %a src/index.js; readlink main; node main; cat said'
  const tree = [
    '.',
    './.dockerignore',
    './keep.log',
    './main',
    './package.json',
    './said',
    './src',
    './src/copy.js',
    './src/index.js',
  ]
  assert.equal(await printed('app', looks), [...tree, '751', 'src/index.js', 'one', 'hello', ''].join('\n'))
  await writeFile(join(root, 'src/index.js'), 'console.log("two")')
  const progress: ContextProgress[] = []
  const image = await Image.fromDockerfile(root).build('app', {
    ...{ client, buildArgs: { GREETING: 'again' }, replace: true },
    onProgress: (one) => progress.push(one),
  })
  assert.deepEqual(progress.at(-1), { phase: 'sent', files: 5, sentFiles: 1, sentBytes: 18, leftOut: [] })
  assert.equal(await printed('app', 'cd /srv; node main; cat said'), 'two\nagain\n')
  const same = await atoll(['image', 'build', 'app', root, '--build-arg', 'GREETING=again', '--replace', '--json'])
  assert.match(same.stderr, /context: the server has all of 5 files/)
  assert.equal((JSON.parse(same.stdout) as { contentHash: string }).contentHash, image.info.contentHash)
})

test('image build: names of any bytes and a file that grows arrive', async (t) => {
  const root = await folderOf(t, { Dockerfile: 'FROM base\nCOPY . /srv\n', 'new\nline': 'n', é: 'e' })
  await writeFile(Buffer.concat([Buffer.from(`${root}/`), Buffer.from([0x66, 0xff])]), 'bytes')
  await mkdir(join(root, 'hollow'))
  const big = join(root, 'big')
  await writeFile(big, 'x'.repeat(3_000_000))
  let isGrown = false
  const onProgress = (one: ContextProgress) => {
    if (isGrown || one.phase !== 'sending' || one.bytes === 0) return
    isGrown = true
    writeFileSync(big, 'y', { flag: 'a' })
  }
  await Image.fromDockerfile(root).build('names', { client, onProgress })
  assert.equal(
    await printed('names', `cd /srv; ls -b | cat; stat -c %s big`),
    'Dockerfile\nbig\nf\\377\nhollow\nnew\\nline\né\n3000001\n',
  )
})

test('image build: what an interrupted upload has sent is not sent again', async (t) => {
  const bytes = 20_000_000
  const root = await folderOf(t, { Dockerfile: 'FROM base\nCOPY . /srv\n', '.dockerignore': '*\n!?.bin\n' })
  for (const name of ['a', 'b']) await writeFile(join(root, `${name}.bin`), name.repeat(bytes))
  const ending = new AbortController()
  const interrupted = Image.fromDockerfile(root).build('interrupted', {
    ...{ client, signal: ending.signal },
    // Much less than the difference is on the way.
    onProgress: (one) => one.phase === 'sending' && one.bytes > 1.8 * bytes && ending.abort(new Error('ended')),
  })
  await assert.rejects(interrupted, /ended/)
  const progress: ContextProgress[] = []
  await Image.fromDockerfile(root).build('interrupted', { client, onProgress: (one) => progress.push(one) })
  assert.deepEqual(progress.at(-1), { phase: 'sent', files: 2, sentFiles: 1, sentBytes: bytes, leftOut: [] })
  assert.equal(await printed('interrupted', 'cd /srv; tail -c 1 a.bin; tail -c 1 b.bin'), 'ab')
})

test('image build: stages tell whose lines are whose, a secret is for its step alone, and a failure says where', async (t) => {
  const root = await folderOf(t, {
    Dockerfile: [
      'FROM base AS left',
      'RUN --mount=type=secret,id=token sha256sum < /run/secrets/token > /left && cat /left',
      'FROM base AS right',
      'RUN echo of the right | tee /right',
      'FROM base',
      'COPY --from=left /left /left',
      'COPY --from=right /right /right',
      '',
    ].join('\n'),
  })
  const built = await atoll(['image', 'build', 'stages', root, '--secret', 'id=token,env=TOKEN'], { TOKEN: 'hidden' })
  assert.equal(built.status, 0, built.stderr)
  assert.match(built.stderr, /^\[left 1\/1\] e564b408/m)
  assert.match(built.stderr, /^\[right \d\/\d\] of the right$/m)
  assert.doesNotMatch(built.stderr, /hidden/)
  const target = await atoll(['image', 'build', 'right', root, '--target', 'right', '--no-cache'])
  assert.equal(target.status, 0, target.stderr)
  assert.doesNotMatch(target.stderr, /left/)
  const failing = await folderOf(t, { Dockerfile: 'FROM base\nRUN true\nRUN exit 3\n' })
  const failed = await atoll(['image', 'build', 'failing', failing])
  assert.deepEqual([failed.status, failed.stdout], [1, ''])
  assert.match(failed.stderr, /line 3.*exited with 3/)
})

test('image build: Ctrl-C ends the build, and nothing of it is left', async (t) => {
  const root = await folderOf(t, { Dockerfile: 'FROM base\nCOPY . /srv\nRUN echo begun && sleep 600\n' })
  const { child, ended, saying } = beginAtoll(world, ['image', 'build', 'endless', root])
  await saying(/^begun$/m)
  child.kill('SIGINT')
  assert.equal((await ended).status, 130)
  await eventually(async () => {
    await assert.rejects(Image.get('endless', { client }), NotFoundError)
  })
})
