import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { appendFileSync, truncateSync } from 'node:fs'
import { chmod, link, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { dirname, join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { Atoll, Image, type ContextProgress } from './index.ts'
import { FakeContexts } from './testing/fake-contexts.ts'

const copies = 'FROM base\nCOPY . /srv\n'

/** A folder with these files. */
async function folderOf(t: TestContext, files: Record<string, string>): Promise<string> {
  const root = await mkdtemp('/tmp/atoll-dockerfile-')
  t.after(() => rm(root, { recursive: true, force: true }))
  for (const [path, content] of Object.entries(files)) {
    await mkdir(dirname(join(root, path)), { recursive: true })
    await writeFile(join(root, path), content)
  }
  return root
}

/** The paths that the server was told of last. */
function toldPaths({ told }: FakeContexts): string[] {
  return (told.at(-1) ?? []).map(({ path, pathBase64 }) => path ?? `base64 ${pathBase64}`)
}

test('dockerfile: a second build sends what has changed alone, and each content once', async (t) => {
  const fake = await FakeContexts.start(t)
  const big = 'x'.repeat(300_000)
  const root = await folderOf(t, { Dockerfile: copies, 'a/one': big, 'a/same': big, two: 'two', empty: '' })
  const progress: ContextProgress[] = []
  const build = async () => {
    progress.length = 0
    const onProgress = (one: ContextProgress) => progress.push(one)
    return await Image.fromDockerfile(root).build('tools', { client: fake.client, onProgress })
  }
  assert.equal((await build()).info.id, 'img-1')
  assert.deepEqual(fake.archives, [['Dockerfile', 'a/one', 'empty', 'two']])
  assert.deepEqual(progress.at(-1), {
    phase: 'sent',
    files: 5,
    sentFiles: 4,
    sentBytes: 300_003 + copies.length,
    leftOut: [],
  })
  assert.deepEqual(fake.builds[0]?.body, { name: 'tools', image: { dockerfile: copies, context: 'ctx-1' } })
  await writeFile(join(root, 'two'), 'changed')
  const before = fake.bytes
  await build()
  assert.deepEqual(fake.archives.slice(1), [['two']])
  assert.equal(fake.bytes - before, 512 * 4)
  assert.deepEqual(progress.at(-1), { phase: 'sent', files: 5, sentFiles: 1, sentBytes: 7, leftOut: [] })
  await build()
  assert.equal(fake.archives.length, 2)
})

test('dockerfile: the server is told what the files are for before they are sent', async (t) => {
  const fake = await FakeContexts.start(t)
  const root = await folderOf(t, { Dockerfile: copies })
  const options = { client: fake.client, target: 'a', buildArgs: { A: '1' }, secrets: { token: 'x' } }
  fake.beforeArchive = () => assert.equal(fake.intended.length, 1)
  await Image.fromDockerfile(root).build('tools', options)
  assert.deepEqual(fake.intended, [{ dockerfile: copies, target: 'a', buildArgs: { A: '1' } }])
})

test('dockerfile: on the way to another machine files are compressed', async (t) => {
  const fake = await FakeContexts.start(t)
  const root = await folderOf(t, { Dockerfile: copies, a: 'x'.repeat(1_000_000), b: 'y'.repeat(1_000_000) })
  // Any address of its own machine but the one that it is known by.
  const client = new Atoll({ url: fake.url.replace('127.0.0.1', '0.0.0.0'), apiKey: 'key' })
  await Image.fromDockerfile(root).build('x', { client })
  assert.deepEqual(fake.archives, [['Dockerfile', 'a', 'b']])
  assert.ok(fake.bytes < 10_000, String(fake.bytes))
})

test('dockerfile: types, modes, links and names of any bytes are told as they are', async (t) => {
  const fake = await FakeContexts.start(t)
  const long = `${'d'.repeat(150)}/${'f'.repeat(150)}`
  const root = await folderOf(t, { run: '#!', 'new\nline': '', [long]: 'long', 'e/é': '' })
  await chmod(join(root, 'run'), 0o4751)
  await symlink('../../etc/passwd', join(root, 'out'))
  await symlink('e', join(root, 'folder-link'))
  await mkdir(join(root, 'hollow'), 0o700)
  await link(join(root, 'run'), join(root, 'run2'))
  await writeFile(Buffer.concat([Buffer.from(`${root}/`), Buffer.from([0xff, 0xfe])]), 'bytes')
  await Image.fromDockerfile({ context: root, text: copies }).build('x', { client: fake.client })
  const told = Object.fromEntries((fake.told[0] ?? []).map((one) => [one.path ?? one.pathBase64, one]))
  assert.deepEqual(toldPaths(fake), [
    ...['d'.repeat(150), long, 'e', 'e/é', 'folder-link', 'hollow', 'new\nline', 'out', 'run', 'run2', 'base64 //4='],
  ])
  assert.deepEqual([told['run']?.type, told['run']?.mode, told['run']?.size], ['file', 0o4751, 2])
  assert.deepEqual([told['hollow']?.type, told['hollow']?.mode], ['directory', 0o700])
  assert.deepEqual([told['out']?.type, told['out']?.target], ['symlink', '../../etc/passwd'])
  assert.equal(told['folder-link']?.type, 'symlink')
  assert.deepEqual(fake.archives[0], [long, Buffer.from('e/é').toString('latin1'), 'run', '\xff\xfe'])
})

test('dockerfile: what .dockerignore names stays here, but for what is brought back', async (t) => {
  const fake = await FakeContexts.start(t)
  const root = await folderOf(t, {
    Dockerfile: copies,
    '.dockerignore': '# no\n\nnode_modules\n*.log\n/docs\n!docs/keep/me\nDockerfile\n.dockerignore\n',
    'node_modules/a/b': '',
    'a.log': '',
    'sub/a.log': '',
    'docs/not': '',
    'docs/keep/me': '',
    'docs/keep/not': '',
  })
  await Image.fromDockerfile(root).build('x', { client: fake.client })
  assert.deepEqual(toldPaths(fake), ['docs', 'docs/keep', 'docs/keep/me', 'sub', 'sub/a.log'])
  assert.equal((fake.builds[0]?.body['image'] as { dockerfile: string } | undefined)?.dockerfile, copies)
})

test('dockerfile: the ignore file beside a Dockerfile wins over that of the context', async (t) => {
  const fake = await FakeContexts.start(t)
  const root = await folderOf(t, {
    'ctx/.dockerignore': '*',
    'ctx/a': '',
    'ctx/b': '',
    'build/web.Dockerfile': copies,
    'build/web.Dockerfile.dockerignore': 'a\n.dockerignore\n',
    'build/job.Dockerfile': copies,
  })
  const of = (dockerfile: string) =>
    Image.fromDockerfile({ context: join(root, 'ctx'), dockerfile: join(root, dockerfile) })
  await of('build/web.Dockerfile').build('x', { client: fake.client })
  assert.deepEqual(toldPaths(fake), ['b'])
  await of('build/job.Dockerfile').build('x', { client: fake.client })
  assert.deepEqual(toldPaths(fake), [])
  await Image.fromDockerfile({ context: join(root, 'ctx'), text: copies, ignore: ['b', '.*'] }).build('x', {
    client: fake.client,
  })
  assert.deepEqual(toldPaths(fake), ['a'])
  await Image.fromDockerfile(join(root, 'build/web.Dockerfile')).build('x', { client: fake.client })
  assert.deepEqual(toldPaths(fake), ['job.Dockerfile', 'web.Dockerfile', 'web.Dockerfile.dockerignore'])
  await writeFile(join(root, 'ctx/.dockerignore'), 'src/[\n')
  await assert.rejects(of('build/job.Dockerfile').build('x', { client: fake.client }), /\.dockerignore: "src\/\["/)
})

test('dockerfile: sockets are left out and told, devices and pipes are refused with their path', async (t) => {
  const fake = await FakeContexts.start(t)
  const root = await folderOf(t, { a: '', '.dockerignore': '' })
  const socket = createServer()
  await new Promise<void>((resolve) => {
    socket.listen(join(root, 'socket'), resolve)
  })
  t.after(() => socket.close())
  const ends: ContextProgress[] = []
  const build = async () =>
    await Image.fromDockerfile({ context: root, text: copies }).build('x', {
      client: fake.client,
      onProgress: (one) => ends.push(one),
    })
  await build()
  assert.deepEqual(toldPaths(fake), ['.dockerignore', 'a'])
  assert.deepEqual(ends.at(-1), { phase: 'sent', files: 2, sentFiles: 1, sentBytes: 0, leftOut: ['socket'] })
  execFileSync('mkfifo', [join(root, 'pipe')])
  await assert.rejects(build, {
    name: 'AtollError',
    message: new RegExp(`${root}/pipe cannot be sent: .*\\.dockerignore`),
  })
  await writeFile(join(root, '.dockerignore'), 'pipe')
  await build()
})

test('dockerfile: an upload that breaks goes on with what is missing, and ends when attempts bring nothing', async (t) => {
  const fake = await FakeContexts.start(t)
  const root = await folderOf(t, { Dockerfile: copies, a: 'a'.repeat(100_000), b: 'b'.repeat(100_000) })
  fake.afterMember = (name, request) => {
    if (name === 'Dockerfile') request.destroy()
  }
  await Image.fromDockerfile(root).build('x', { client: fake.client })
  assert.deepEqual(fake.archives, [['Dockerfile'], ['a', 'b']])
  await writeFile(join(root, 'a'), 'other')
  fake.archives.length = 0
  fake.beforeArchive = (request) => request.destroy()
  const { retries } = fake.client
  await assert.rejects(Image.fromDockerfile(root).build('x', { client: fake.client }), { name: 'ConnectionError' })
  assert.equal(fake.told.length, 2 + 1 + retries)
})

test('dockerfile: a file that changes between the two readings is read again, once', async (t) => {
  const fake = await FakeContexts.start(t)
  const root = await folderOf(t, { Dockerfile: copies, a: '1', 'z/log': 'begin' })
  let changes = 1
  const onProgress = (progress: ContextProgress) => {
    if (progress.phase !== 'sending' || progress.bytes > 0 || changes === 0) return
    changes -= 1
    appendFileSync(join(root, 'z/log'), 'more')
  }
  const build = async () => await Image.fromDockerfile(root).build('x', { client: fake.client, onProgress })
  await build()
  assert.equal(fake.told.at(-1)?.find(({ path }) => path === 'z/log')?.size, 'beginmore'.length)
  changes = 9
  await writeFile(join(root, 'z/log'), 'anew')
  await assert.rejects(build, { message: 'z/log changed while it was sent, twice: nothing was built' })
  assert.equal(changes, 7)
  assert.equal(fake.builds.length, 1)
})

test('dockerfile: content that the server finds changed is read again too', async (t) => {
  const fake = await FakeContexts.start(t)
  const root = await folderOf(t, { Dockerfile: copies, a: '1' })
  let refusals = 1
  fake.refuses = () => (refusals -= 1) >= 0
  await Image.fromDockerfile(root).build('x', { client: fake.client })
  assert.deepEqual(fake.archives, [['Dockerfile', 'a']])
  refusals = 2
  await writeFile(join(root, 'a'), '2')
  const again = Image.fromDockerfile(root).build('x', { client: fake.client })
  await assert.rejects(again, { message: 'a changed, twice: nothing was built' })
})

test('dockerfile: a file that shrinks while it is sent does not hang the upload', async (t) => {
  const fake = await FakeContexts.start(t)
  const root = await folderOf(t, { a: 'x'.repeat(3_000_000) })
  let isCut = false
  const onProgress = (progress: ContextProgress) => {
    if (isCut || progress.phase !== 'sending' || progress.bytes === 0) return
    isCut = true
    truncateSync(join(root, 'a'), 5)
  }
  await Image.fromDockerfile({ context: root, text: copies }).build('x', { client: fake.client, onProgress })
  assert.equal(fake.told.at(-1)?.[0]?.size, 5)
})

test('dockerfile: one that copies nothing sends no files', async (t) => {
  const fake = await FakeContexts.start(t)
  const root = await folderOf(t, { a: '' })
  const build = async (text: string) =>
    await Image.fromDockerfile({ context: root, text }).build('x', { client: fake.client })
  await build('FROM base\nRUN make\n')
  assert.deepEqual(fake.builds[0]?.body['image'], { dockerfile: 'FROM base\nRUN make\n' })
  for (const text of ['from base\ncopy a /', 'FROM base\nCO\\\nPY a /', 'FROM base\nRUN --mount=target=/x ls /x'])
    await build(text)
  assert.equal(fake.told.length, 3)
})

test('dockerfile: what a build takes goes into its manifest, secrets in base64, and nothing else', async (t) => {
  const fake = await FakeContexts.start(t)
  const of = { buildArgs: { A: '1' }, target: 'web', noCache: true, runtimeMemoryMB: 512 }
  const image = Image.fromDockerfile({ text: 'FROM base' })
  await image.build('x', { ...of, secrets: { a: 'pass', b: Uint8Array.of(255) }, replace: true, client: fake.client })
  const secrets = { a: 'cGFzcw==', b: '/w==' }
  const manifest = { ...of, dockerfile: 'FROM base', secrets }
  assert.deepEqual(fake.builds[0], { query: '', body: { name: 'x', image: manifest, replace: true } })
  const begun = await image.begin('y', { client: fake.client })
  assert.equal(begun.info.status, 'building')
  assert.deepEqual(fake.builds[1], { query: '?async=1', body: { name: 'y', image: { dockerfile: 'FROM base' } } })
})

test('dockerfile: a folder without one, and what is not there, are told with the path', async (t) => {
  const fake = await FakeContexts.start(t)
  const root = await folderOf(t, { a: '' })
  const build = async (path: string) => await Image.fromDockerfile(path).build('x', { client: fake.client })
  await assert.rejects(build(root), new RegExp(`${root}/Dockerfile`))
  await assert.rejects(build(`${root}/none`), new RegExp(`${root}/none`))
  await writeFile(join(root, 'Dockerfile'), 'x'.repeat(1024 * 1024 + 1))
  await assert.rejects(build(root), /more than 1048576 bytes/)
})

test('dockerfile: a server that takes nothing any more ends the upload, one that is slow does not', async (t) => {
  const requestTimeoutMs = 6000
  const fake = await FakeContexts.start(t, { requestTimeoutMs, retries: 0 })
  // More than the buffers on the way hold.
  const files = Object.fromEntries([1, 2, 3, 4].map((name) => [name, String(name).repeat(12_000_000)]))
  const root = await folderOf(t, { Dockerfile: copies, ...files })
  fake.afterMember = () => sleep(requestTimeoutMs / 3)
  const startedAt = performance.now()
  await Image.fromDockerfile(root).build('x', { client: fake.client })
  assert.ok(performance.now() - startedAt > requestTimeoutMs)
  await writeFile(join(root, 'Dockerfile'), `${copies}RUN more`)
  fake.beforeArchive = () => new Promise(() => {})
  const stopped = Image.fromDockerfile(root).build('x', { client: fake.client })
  await assert.rejects(stopped, { name: 'RequestTimeoutError', message: /took nothing within 6000 ms/ })
})

test('dockerfile: a signal ends the reading and the sending', async (t) => {
  const fake = await FakeContexts.start(t)
  const root = await folderOf(t, { Dockerfile: copies, a: 'x'.repeat(5_000_000) })
  for (const phase of ['reading', 'sending'] as const) {
    const ending = new AbortController()
    const onProgress = (progress: ContextProgress) => {
      if (progress.phase === phase) ending.abort(new Error(`ended while ${phase}`))
    }
    const options = { client: fake.client, signal: ending.signal, onProgress }
    await assert.rejects(Image.fromDockerfile(root).build('x', options), { message: `ended while ${phase}` })
  }
  assert.equal(fake.builds.length, 0)
})
