import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { buffer, text } from 'node:stream/consumers'
import { imageOf, ociArchiveOf, tarOf } from '../../support/oci-image.ts'
import { AtollServer } from '../server.ts'

const server = await AtollServer.startForFile()
const program = join(import.meta.dirname, '../../../bin/atoll')
const dir = await mkdtemp('/var/tmp/atoll-cli-')
after(() => rm(dir, { recursive: true }))

interface Ended {
  status: number | null
  stdout: string
  stderr: string
}

interface RunOptions {
  input?: string | Buffer
  env?: NodeJS.ProcessEnv
}

/** Runs the command line as a user would, without a terminal. */
async function atoll(argv: readonly string[], { input, env = {} }: RunOptions = {}): Promise<Ended> {
  const child = spawn(program, argv, {
    cwd: dir,
    stdio: [input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
    env: {
      PATH: process.env['PATH'],
      NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'],
      HOME: dir,
      ATOLL_URL: server.url,
      ATOLL_API_KEY: server.key,
      ...env,
    },
  })
  assert.ok(child.stdout !== null && child.stderr !== null)
  child.stdin?.end(input)
  const closed = once(child, 'close')
  const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr), closed])
  return { status: child.exitCode, stdout, stderr }
}

/** The one line that a command prints. */
async function line(argv: readonly string[], options?: RunOptions): Promise<string> {
  const { status, stdout, stderr } = await atoll(argv, options)
  assert.equal(status, 0, stderr)
  assert.match(stdout, /^[^\n]+\n$/)
  assert.equal(stderr, '')
  return stdout.trim()
}

const sandbox = await line(['create', '--timeout', '600', '-e', 'GREETING=hello'])

test('atoll exec: output arrives apart, with the exit code, the variables and standard input', async () => {
  const argv = [
    'exec',
    sandbox,
    '--cwd',
    '/usr',
    '-e',
    'B=2',
    '--',
    'sh',
    '-c',
    'echo $GREETING $B; pwd; echo bad >&2; exit 7',
  ]
  assert.deepEqual(await atoll(argv), { status: 7, stdout: 'hello 2\n/usr\n', stderr: 'bad\n' })
  const late = await atoll(['exec', sandbox, '--timeout', '1', '--', 'sleep', '30'])
  assert.deepEqual(late, { status: 124, stdout: '', stderr: 'atoll: the time limit ended the command\n' })
  assert.deepEqual(await atoll(['exec', sandbox, '--', 'sh', '-c', 'exit 124']), {
    status: 124,
    stdout: '',
    stderr: '',
  })
  const input = Buffer.alloc(3_000_000, 'x')
  const counted = await atoll(['exec', sandbox, '--', 'wc', '-c'], { input })
  assert.deepEqual(counted, { status: 0, stdout: '3000000\n', stderr: '' })
  assert.equal((await atoll(['exec', sandbox], { input: 'echo script; exit 3' })).status, 3)
  assert.equal((await atoll(['exec', sandbox, 'echo a | tr a b'])).stdout, 'b\n')
  const json = await atoll(['exec', sandbox, '--json', '--', 'echo', 'a'])
  assert.deepEqual(JSON.parse(json.stdout), { exitCode: 0, stdout: 'a\n', stderr: '' })
})

test('atoll exec: the output of a command is never lost', async () => {
  for (let run = 0; run < 5; run += 1) {
    const { status, stdout } = await atoll(['exec', sandbox, '--', 'head', '-c', '700000', '/dev/zero'])
    assert.deepEqual([status, stdout.length], [0, 700_000])
  }
  const { status, stdout } = await atoll(['exec', sandbox, '--', 'head', '-c', '50000000', '/dev/zero'])
  assert.deepEqual([status, stdout.length], [0, 50_000_000])
})

test('atoll exec: an interrupt reaches the command', async () => {
  const child = spawn(program, ['exec', sandbox, '--', 'sh', '-c', 'echo ready; exec sleep 60'], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, ATOLL_URL: server.url, ATOLL_API_KEY: server.key },
  })
  const closed = once(child, 'close')
  await once(child.stdout, 'data')
  child.kill('SIGINT')
  await closed
  assert.equal(child.exitCode, 130)
})

test('atoll cp: a folder of odd names goes both ways, and a file with its permission to run', async () => {
  const source = join(dir, 'source')
  await mkdir(join(source, 'deep/empty'), { recursive: true })
  const names = ['plain', 'with blank', 'new\nline', '-dash', 'quote"\'$x'].map((name) => Buffer.from(name))
  for (const name of [...names, Buffer.from([0x62, 0xff, 0xfe])]) {
    await writeFile(Buffer.concat([Buffer.from(`${source}/`), name]), name)
  }
  await writeFile(join(source, 'deep/large'), Buffer.alloc(5_000_001, 'abc'))
  await symlink('../plain', join(source, 'deep/link'))
  const done = { status: 0, stdout: '', stderr: '' }
  assert.deepEqual(await atoll(['cp', '-r', 'source', `${sandbox}:/workspace`]), done)
  assert.deepEqual(await atoll(['cp', '-r', `${sandbox}:/workspace/source`, 'back']), done)
  const listed = async (path: string) =>
    (await readdir(path, { encoding: 'buffer' })).map((name) => name.toString('latin1')).toSorted()
  assert.deepEqual(await listed(join(dir, 'back')), await listed(source))
  assert.deepEqual(await listed(join(dir, 'back/deep')), ['empty', 'large', 'link'])
  assert.deepEqual(await readFile(join(dir, 'back/deep/large')), await readFile(join(source, 'deep/large')))

  await chmod(join(source, 'plain'), 0o755)
  assert.deepEqual(await atoll(['cp', 'source/plain', `${sandbox}:/tmp/run`]), done)
  assert.deepEqual(await atoll(['cp', `${sandbox}:/tmp/run`, 'run']), done)
  assert.equal((await stat(join(dir, 'run'))).mode & 0o111, 0o111)
  assert.equal(await readFile(join(dir, 'run'), 'utf8'), 'plain')
})

test('atoll cp: files and folders go as the user that is named', async () => {
  await mkdir(join(dir, 'of-user'), { recursive: true })
  await writeFile(join(dir, 'of-user/file'), 'x', { mode: 0o755 })
  const as = ['cp', '--user', 'sandbox']
  const done = { status: 0, stdout: '', stderr: '' }
  assert.deepEqual(await atoll([...as, 'of-user/file', `${sandbox}:/home/sandbox/file`]), done)
  assert.deepEqual(await atoll([...as, '-r', 'of-user', `${sandbox}:/home/sandbox/folder`]), done)
  const owners = ['stat', '-c', '%U %A', '/home/sandbox/file', '/home/sandbox/folder/file']
  assert.equal(await line(['exec', sandbox, '--', ...owners.slice(0, 4)]), 'sandbox -rwxr-xr-x')
  assert.match((await atoll(['exec', sandbox, '--', ...owners])).stdout, /^(sandbox -rwxr-xr-x\n){2}$/)
  assert.deepEqual(await atoll([...as, `${sandbox}:/home/sandbox/file`, 'of-user/back']), done)
  for (const argv of [
    [...as, 'of-user/file', `${sandbox}:/etc/made`],
    [...as, '-r', 'of-user', `${sandbox}:/etc/made`],
    [...as, `${sandbox}:/etc/shadow`, 'shadow'],
  ]) {
    const { status, stderr } = await atoll(argv)
    assert.ok(status !== 0, argv.join(' '))
    assert.match(stderr, /denied|forbidden|may not|cannot/i)
  }
  assert.deepEqual(await atoll(['cp', `${sandbox}:/etc/shadow`, 'shadow']), done)
})

test('atoll cp: what cannot be copied is named, with what is left', async () => {
  const expectations: [string[], number, RegExp][] = [
    [['source', `${sandbox}:/x`], 2, /source is a folder: add -r/],
    [['nothing', `${sandbox}:/x`], 1, /nothing on this machine: there is no such file/],
    [[`${sandbox}:/nothing`, 'x'], 5, /no file sb-.*:\/nothing/],
    [['a', 'b'], 2, /one of source and target/],
    [['source/plain', `${sandbox}:/proc/x/y`], 5, /was not completed/],
    [['-r', 'source', `${sandbox}:/proc/x`], 1, /:\/proc\/x is left incomplete/],
  ]
  for (const [argv, status, message] of expectations) {
    const ended = await atoll(['cp', ...argv])
    assert.equal(ended.status, status, ended.stderr)
    assert.match(ended.stderr, message)
  }
})

test('atoll checkpoint, fork, restore, rm: a machine goes on twice', async () => {
  await atoll(['exec', sandbox, 'echo before > /workspace/state'])
  const checkpoint = await line(['checkpoint', sandbox, '--name', 'one', '--kind', 'disk_only'])
  await atoll(['exec', sandbox, 'echo after > /workspace/state'])
  const named = `${sandbox}/one`
  const patch = await line(['patch', checkpoint, '-'], { input: 'echo patched > /workspace/patched' })
  const useless = await line(['patch', 'add', named, '-'], { input: 'exit 1' })
  assert.equal((await atoll(['patch', 'rm', named, useless])).status, 0)
  assert.equal((await atoll(['patch', 'ls', '-q', named])).stdout, `${patch}\n`)
  const lives = ['--timeout', '60', '--on-idle', 'stop', '--max-age', '3600']
  const forks = (await atoll(['fork', named, '--count', '2', ...lives])).stdout.trim().split('\n')
  assert.equal(forks.length, 2)
  const created = await line(['create', ...lives])
  for (const id of [...forks, created]) {
    const { timeout, onIdle, maxAgeSeconds } = (await server.json('GET', `/api/sandboxes/${id}`)) as Record<
      string,
      unknown
    >
    assert.deepEqual([timeout, onIdle, maxAgeSeconds], [60, 'stop', 3600])
  }
  assert.equal((await atoll(['create', '--on-idle', 'sleep'])).status, 2)
  const read = await atoll(['exec', forks[0] ?? '', 'cat /workspace/state /workspace/patched'])
  assert.equal(read.stdout, 'before\npatched\n')
  assert.equal((await atoll(['restore', sandbox, 'one'])).status, 0)
  assert.equal((await atoll(['exec', sandbox, '--', 'cat', '/workspace/state'])).stdout, 'before\n')
  assert.deepEqual(await atoll(['rm', ...forks, created]), { status: 0, stdout: '', stderr: '' })
  assert.equal((await atoll(['exec', forks[0] ?? '', '--', 'true'])).status, 125)
  assert.equal((await atoll(['wake', forks[0] ?? ''])).status, 6)
  const listed = (await atoll(['checkpoint', 'ls', sandbox])).stdout
  assert.match(listed, new RegExp(`\\n${checkpoint} +${named} +disk_only +ready +[\\d.]+ k?M?B .* client `))
  assert.equal((await atoll(['checkpoint', 'ls', '-q', '--owner', 'client'])).stdout, `${checkpoint}\n`)
  assert.match((await atoll(['checkpoint', 'get', named])).stdout, new RegExp(`^id +${checkpoint}\n`))
  assert.equal((await atoll(['checkpoint', 'rm', named])).status, 0)
  assert.equal((await atoll(['checkpoint', 'get', checkpoint])).status, 5)
})

test('atoll volume: one is made, mounted, frozen, cloned and deleted', async () => {
  assert.equal(await line(['volume', 'create', 'data', '--size', '64']), 'data')
  const writer = await line(['create', '--volume', 'data:/data', '--timeout', '600'])
  assert.equal((await atoll(['exec', writer, 'echo kept > /data/file'])).status, 0)
  assert.equal(await line(['volume', 'snapshot', 'data', 'before']), 'data@before')
  assert.match((await atoll(['volume', 'snapshot', 'data', '--list'])).stdout, /before/)
  assert.equal(await line(['volume', 'create', 'copy', '--from', 'data@before']), 'copy')
  const reader = await line(['create', '--volume', 'copy:/a b:ro', '--timeout', '600'])
  const read = await atoll(['exec', reader, 'cat "/a b/file"; touch "/a b/x" 2>/dev/null'])
  assert.deepEqual([read.stdout, read.status], ['kept\n', 1])
  const inUse = await atoll(['volume', 'delete', 'data', 'copy'])
  assert.deepEqual([inUse.status, inUse.stderr.includes(writer)], [6, true])
  assert.equal(JSON.parse(await line(['volume', 'get', 'copy', '--json'])).mountedBy[0].sandboxID, reader)
  assert.equal((await atoll(['rm', writer, reader])).status, 0)
  assert.equal((await atoll(['volume', 'snapshot', 'data', 'before', '--delete'])).status, 0)
  assert.equal((await atoll(['volume', 'rm', 'data', 'copy'])).status, 0)
  assert.deepEqual(JSON.parse((await atoll(['volume', 'ls', '--json'])).stdout), [])
  assert.equal((await atoll(['create', '--volume', 'data'])).status, 2)
  assert.equal((await atoll(['volume', 'get', 'data'])).status, 5)
})

test('atoll session: an agent is started, followed to the end of its turn, and ended', async () => {
  const first = await atoll(['session', 'new', '--wait', 'A page about reefs', '--user', 'ada', '--name', 'reefs'])
  assert.equal(first.status, 0, first.stderr)
  assert.match(first.stderr, /· The sandbox is ready\.\n[^]*· The agent is ready with model/)
  const session = /session_[a-z0-9]+/.exec(first.stderr)?.[0] ?? ''
  const told = (await atoll(['session', 'logs', 'reefs'])).stdout
  assert.ok(told.startsWith('> A page about reefs\n') && told.endsWith(first.stdout), told)
  const second = await atoll(['session', 'chat', 'reefs'], { input: 'And turtles\n' })
  assert.equal(second.status, 0, second.stderr)
  assert.match((await atoll(['session', 'logs', session])).stdout, /^> A page[^]*\n> And turtles\n/)
  const watched = await atoll(['session', 'watch', session, '--once'])
  assert.equal(watched.status, 0, watched.stderr)
  assert.match(watched.stdout, /reefs/)
  const events = (await atoll(['session', 'watch', session, '--once', '--json'])).stdout.trim().split('\n')
  assert.equal((JSON.parse(events.at(-1) ?? '') as { data: { type: string } }).data.type, 'turn_complete')
  assert.match((await atoll(['session', 'ls', '--user', 'ada'])).stdout, new RegExp(session))
  assert.equal((await atoll(['session', 'rm', 'reefs'])).status, 0)
  assert.equal((await atoll(['session', 'send', 'session_0000000000000000', 'hi'])).status, 5)
})

test('atoll --json: lists and errors are the objects of the API', async () => {
  const list = await atoll(['ls', '--json'])
  assert.deepEqual(JSON.parse(list.stdout), await server.json('GET', '/api/sandboxes'))
  const missing = await atoll(['get', 'sb-0000000000000000', '--json'])
  assert.equal(missing.status, 5)
  assert.deepEqual(JSON.parse(missing.stderr), { error: 'no sandbox sb-0000000000000000', code: 'not_found' })
  const raw = await atoll(['api', 'GET', `/api/sandboxes/${sandbox}`])
  assert.deepEqual(JSON.parse(raw.stdout), JSON.parse((await atoll(['get', sandbox, '--json'])).stdout))
})

test('atoll login: a key is checked, saved and used; a broken file is named and stays', async () => {
  const env = { ATOLL_URL: undefined, ATOLL_API_KEY: undefined, XDG_CONFIG_HOME: join(dir, 'config') }
  const login = ['login', '--url', server.url, '--name', 'here']
  assert.equal((await atoll(login, { env, input: 'wrong' })).status, 4)
  assert.equal((await atoll(login, { env, input: '' })).status, 2)
  assert.equal((await atoll(login, { env, input: `${server.key}\n` })).status, 0)
  assert.match((await atoll(['ls', '-q'], { env })).stdout, /^sb-/)
  assert.match((await atoll(['contexts'], { env })).stdout, /^\* {2}here {2}http/m)
  assert.match((await atoll(['use', 'there'], { env })).stderr, /no context "there"; there are: here/)
  const path = join(dir, 'config/atoll/config.json')
  await writeFile(path, '{')
  const broken = await atoll(login, { env, input: server.key })
  assert.equal(broken.status, 1)
  assert.ok(broken.stderr.includes(path))
  assert.equal(await readFile(path, 'utf8'), '{')
})

test('atoll: what is wrong is said in one line, with its exit code', async () => {
  const other = createServer((_request, response) => response.end('<h1>hello</h1>')).listen(0, '127.0.0.1')
  await once(other, 'listening')
  after(() => other.close())
  const { port } = other.address() as AddressInfo
  const expectations: [string[], number, RegExp][] = [
    [['ls', '--key', 'wrong'], 4, /key is not known/],
    [['ls', '--key', 'two words'], 2, /API key/],
    [['ls', '--url', 'http://127.0.0.1:9'], 3, /cannot be reached/],
    [['ls', '--url', `http://127.0.0.1:${port}`], 3, /something else than JSON/],
    [['ls', '--url', 'nowhere'], 2, /"nowhere" is no URL/],
    [['ls', '--context', 'x\ny'], 2, /no context "x\\ny"/],
    [['get', 'a b'], 2, /"a b" is no id/],
    [['get', 'sb-0000000000000000'], 5, /no sandbox sb-0000000000000000/],
    [['bogus'], 2, /unknown command/],
    [['exec', 'sb-0000000000000000', '--', 'true'], 125, /no sandbox/],
    [['shell', sandbox], 125, /needs a terminal/],
  ]
  const ends = await Promise.all(expectations.map(([argv]) => atoll(argv)))
  for (const [index, [argv, status, message]] of expectations.entries()) {
    const ended = ends[index]
    assert.equal(ended?.status, status, `${argv.join(' ')}: ${ended?.stderr}`)
    assert.match(ended?.stderr ?? '', message)
    assert.match(ended?.stderr ?? '', /^atoll: [^\n]+\n$/)
  }
})

test('atoll: a reader that closes the pipe ends it quietly', async () => {
  const child = spawn(program, ['help'], { stdio: ['ignore', 'pipe', 'pipe'] })
  child.stdout.destroy()
  const [stderr] = await Promise.all([buffer(child.stderr), once(child, 'close')])
  assert.equal(stderr.toString(), '')
  assert.equal(child.exitCode, 0)
})

test('an image is built from a file or standard input, followed, started from and deleted', async () => {
  const steps = (command: string) => JSON.stringify({ steps: [{ type: 'run', args: { commands: [command] } }] })
  await writeFile(join(dir, 'steps.json'), steps('echo built > /opt/state; echo said'))
  const built = await atoll(['image', 'build', 'tools', 'steps.json'])
  assert.equal(built.status, 0, built.stderr)
  assert.match(built.stdout, /^img-\w+\n$/)
  assert.match(built.stderr, /^building 1 step[^]*\nsaid\n/)
  const created = await atoll(['create', '--template', 'tools'])
  const id = created.stdout.trim()
  assert.equal((await atoll(['exec', id, '--', 'cat', '/opt/state'])).stdout, 'built\n')
  assert.equal((await atoll(['image', 'build', 'tools', 'steps.json'])).status, 6)
  const begun = await atoll(['image', 'build', 'broken', '-', '--background'], { input: steps('echo why >&2; exit 3') })
  assert.equal(begun.status, 0, begun.stderr)
  const followed = await atoll(['image', 'follow', 'broken'])
  assert.deepEqual([followed.status, followed.stdout], [1, ''])
  assert.match(followed.stderr, /atoll: step 1 \(run\) exited with 3: why/)
  const log = await atoll(['image', 'log', 'broken'])
  assert.match(log.stdout, /^building 1 step[^]*\nwhy\nended: step 1 \(run\) exited with 3: why\n$/)
  assert.match((await atoll(['image', 'log', '-f', 'tools'])).stdout, /\nsaid\n[^]*the image is ready\n$/)
  assert.match((await atoll(['image', 'ls'])).stdout, /base +installed[^]*broken +own +failed[^]*tools +own +ready +\d/)
  assert.equal((await atoll(['image', 'build', 'x', '-'], { input: '{' })).status, 2)
  assert.equal((await atoll(['image', 'rm', 'tools', 'broken'])).status, 0)
  assert.equal((await atoll(['image', 'get', 'tools'])).status, 5)
  await atoll(['rm', id])
})

test('an archive becomes an image, also from standard input', async () => {
  const archive = ociArchiveOf(imageOf([tarOf([{ path: 'etc/motto', content: 'imported' }])]))
  await writeFile(join(dir, 'image.tar'), archive)
  const made = await atoll(['image', 'import', 'from-file', 'image.tar'])
  assert.equal(made.status, 0, made.stderr)
  assert.equal((await atoll(['image', 'import', 'from-input', '-'], { input: archive })).status, 0)
  const id = (await atoll(['create', '--template', 'from-input'])).stdout.trim()
  assert.equal((await atoll(['cp', `${id}:/etc/motto`, 'motto'])).status, 0)
  assert.equal(await readFile(join(dir, 'motto'), 'utf8'), 'imported')
  await atoll(['rm', id])
  const wrong = await atoll(['image', 'import', 'wrong', '-'], { input: 'no archive' })
  assert.equal(wrong.status, 1)
  assert.match(wrong.stderr, /^atoll: archive /)
  assert.equal((await atoll(['image', 'import', 'x', 'missing.tar'])).status, 1)
  assert.equal((await atoll(['image', 'rm', 'from-file', 'from-input', 'wrong'])).status, 0)
})
