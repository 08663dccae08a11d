/** The command line moves bytes: copies, a folder in step, ports, terminals, and the machine's own ssh, scp, sftp and rsync. */
import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { join } from 'node:path'
import { buffer, text } from 'node:stream/consumers'
import { after, test } from 'node:test'
import { eventually } from '../../../src/lib/testing/eventually.ts'
import { AtollServer } from '../server.ts'

const server = await AtollServer.startForFile()
const program = join(import.meta.dirname, '../../../bin/atoll')
const dir = await mkdtemp('/var/tmp/atoll-cli-transfer-')
after(() => rm(dir, { recursive: true }))

interface Ended {
  status: number | null
  stdout: string
  stderr: string
}

function start(command: string, argv: readonly string[], input: 'ignore' | 'pipe' = 'ignore'): ChildProcess {
  return spawn(command, argv, {
    cwd: dir,
    stdio: [input, 'pipe', 'pipe'],
    env: { PATH: process.env['PATH'], HOME: dir, ATOLL_URL: server.url, ATOLL_API_KEY: server.key },
  })
}

async function run(command: string, argv: readonly string[], input?: string | Buffer): Promise<Ended> {
  const child = start(command, argv, input === undefined ? 'ignore' : 'pipe')
  child.stdin?.end(input)
  const closed = once(child, 'close')
  const [stdout, stderr] = await Promise.all([text(child.stdout!), text(child.stderr!), closed])
  return { status: child.exitCode, stdout, stderr }
}

const atoll = (argv: readonly string[], input?: string | Buffer) => run(program, argv, input)

/** What a command prints that must work. */
async function output(argv: readonly string[], input?: string | Buffer): Promise<string> {
  const { status, stdout, stderr } = await atoll(argv, input)
  assert.equal(status, 0, stderr)
  return stdout
}

const sh = (id: string, script: string) => output(['exec', id, '--', 'sh', '-c', script])

/** A command that runs until it is ended, and what it has said so far. */
function running(argv: readonly string[]): { child: ChildProcess; said: () => string } {
  const child = start(program, argv)
  let said = ''
  for (const stream of [child.stdout!, child.stderr!]) stream.on('data', (data: Buffer) => (said += data.toString()))
  return { child, said: () => said }
}

async function end(child: ChildProcess): Promise<void> {
  const exited = once(child, 'exit')
  child.kill('SIGINT')
  await exited
}

const [one = '', two = ''] = await Promise.all(
  [1, 2].map(async () => (await output(['create', '--timeout', '600', '-e', 'GREETING=a "b"'])).trim()),
)

test('atoll cp: what patterns and .gitignore files name stays out, each way', async () => {
  const source = join(dir, 'project')
  for (const folder of ['.git', 'node_modules/x', 'sub']) await mkdir(join(source, folder), { recursive: true })
  const files = { '.gitignore': 'node_modules/\n*.log\n!kept.log', '.git/x': '', 'node_modules/x/y': '', 'a.log': '' }
  const more = { 'kept.log': '', 'sub/.gitignore': '/own', 'sub/own': '', own: '', 'new\nline': '', 'b.tmp': '' }
  for (const [path, content] of Object.entries({ ...files, ...more })) await writeFile(join(source, path), content)
  await writeFile(Buffer.concat([Buffer.from(`${source}/c\\`), Buffer.from([0xff])]), 'bytes')
  await output(['cp', '-r', '--gitignore', '--exclude', '*.tmp', 'project', `${one}:/workspace`])
  const found = (id: string, path: string) =>
    sh(id, `cd ${path} && find . -mindepth 1 -print0 | sort -z | tr '\\0' ' '`)
  const all = './.gitignore ./c\\\ufffd ./kept.log ./new\nline ./own ./sub ./sub/.gitignore '
  assert.equal(await found(one, '/workspace/project'), all)
  await output(['cp', '-r', '--exclude', 'sub', '--exclude', '/own', `${one}:/workspace/project`, 'back'])
  assert.deepEqual((await readdir(join(dir, 'back'), { encoding: 'latin1' })).toSorted(), [
    '.gitignore',
    'c\\\xff',
    'kept.log',
    'new\nline',
  ])
  await output(['cp', '-r', `${one}:/workspace/project`, `${two}:/`])
  assert.equal(await found(two, '/project'), all)
})

test('atoll cp: several sources, standard input and output, and files between sandboxes', async () => {
  const large = Buffer.alloc(3_000_000, 'abc')
  await writeFile(join(dir, 'x'), 'x')
  await writeFile(join(dir, 'run'), large)
  await chmod(join(dir, 'run'), 0o755)
  await output(['cp', 'x', 'run', `${one}:/tmp`])
  await output(['cp', `${one}:/tmp/run`, `${two}:/tmp/run`])
  assert.equal(await sh(two, 'stat -c "%s %A" /tmp/run'), '3000000 -rwxr-xr-x\n')
  assert.equal(await output(['cp', `${two}:/tmp/run`, '-']), large.toString())
  await output(['cp', '-', `${one}:/tmp/typed`], 'typed')
  assert.equal(await output(['cp', `${one}:/tmp/typed`, '-']), 'typed')
  await sh(one, 'mkdir -p /tmp/folder/sub && echo deep > /tmp/folder/sub/file')
  const archive = start(program, ['cp', '-r', `${one}:/tmp/folder`, '-'])
  const [bytes] = await Promise.all([buffer(archive.stdout!), once(archive, 'close')])
  await output(['cp', '-r', '-', `${two}:/tmp/unpacked`], bytes)
  assert.equal(await sh(two, 'cat /tmp/unpacked/sub/file'), 'deep\n')
  const refused: [string[], RegExp][] = [
    [['x', 'run', `${one}:/tmp/x`], /is no folder that is there/],
    [['x', './x', `${one}:/tmp`], /two sources would be "x"/],
    [['-', '-'], /one of source and target must be in a sandbox/],
    [['x', '-', `${one}:/tmp`], /- goes with one source/],
    [['-', `${one}:/tmp/`], /standard input has no name/],
    [['-r', '--gitignore', `${one}:/tmp`, 'y'], /--gitignore is for a source on this machine/],
    [['x'], /there is no target/],
  ]
  for (const [argv, message] of refused) {
    const { status, stderr } = await atoll(['cp', ...argv])
    assert.equal(status, 2, stderr)
    assert.match(stderr, message)
  }
})

test('atoll sync: a folder that holds something gives way to no file, on neither side, and the rest is copied', async () => {
  const folder = join(dir, 'mixed')
  await mkdir(folder)
  await writeFile(join(folder, 'data'), 'a file here')
  await writeFile(join(folder, 'rest'), 'rest')
  await sh(one, 'mkdir -p /workspace/mixed/data && echo precious > /workspace/mixed/data/kept')
  const argv = ['sync', '--once', '--exclude', 'kept', 'mixed', `${one}:/workspace/mixed`]
  assert.match((await atoll(argv)).stderr, /data is not sent: a folder that is not empty is in its place/)
  assert.equal(await sh(one, 'cd /workspace/mixed && cat data/kept rest'), 'precious\nrest')
  assert.equal(await readFile(join(folder, 'data'), 'utf8'), 'a file here')
})

test('atoll cp: the longest name arrives; a pipe, and a folder into itself, are refused', async () => {
  const id = (await output(['create', '--name', 'edges'])).trim()
  const longest = 'k'.repeat(255)
  await sh(id, `mkdir /tmp/long && echo kept > /tmp/long/${longest}`)
  await output(['cp', `edges:/tmp/long/${longest}`, '.'])
  assert.equal(await readFile(join(dir, longest), 'utf8'), 'kept\n')
  await run('mkfifo', ['pipe'])
  const pipe = await atoll(['cp', 'pipe', `${id}:/tmp`])
  assert.deepEqual([pipe.status, pipe.stderr], [1, 'atoll: pipe on this machine is no regular file\n'])
  const inside = await atoll(['cp', '-r', 'edges:/tmp/long', `${id}:/tmp/long/copy`])
  assert.deepEqual([inside.status, inside.stderr], [2, 'atoll: edges:/tmp/long cannot be copied into itself\n'])
  await output(['rm', id])
})

test('atoll sync: changes and removals here are sent as they happen, and with --both those of the sandbox come back', async () => {
  const folder = join(dir, 'synced')
  await mkdir(join(folder, 'sub'), { recursive: true })
  await writeFile(join(folder, 'sub/a'), '1')
  await writeFile(join(folder, '.gitignore'), 'left')
  const push = running(['sync', '--gitignore', 'synced', `${one}:/workspace/synced`])
  await eventually(async () => assert.match(push.said(), /in step/))
  await writeFile(join(folder, 'left'), '')
  await writeFile(join(folder, 'sub/b'), '22')
  await eventually(async () => assert.match(push.said(), /^sent {2}sub\/b$/m))
  assert.equal(await sh(one, 'cd /workspace/synced && cat sub/a sub/b && ls'), '122sub\n')
  await rm(join(folder, 'sub'), { recursive: true })
  await eventually(async () => assert.match(push.said(), /^removed there {2}sub$/m))
  assert.equal(await sh(one, 'ls /workspace/synced'), '')
  await end(push.child)

  const both = running(['sync', '--both', '--gitignore', 'synced', `${one}:/workspace/synced`])
  await eventually(async () => assert.match(both.said(), /in step/))
  await sh(one, 'cd /workspace/synced && mkdir -p d && echo there > d/file && ln -s /etc link')
  await eventually(async () => assert.match(both.said(), /^received {2}link$/m))
  assert.equal(await readFile(join(folder, 'd/file'), 'utf8'), 'there\n')
  await rm(join(folder, 'd/file'))
  await eventually(async () => assert.match(both.said(), /^removed there {2}d\/file$/m))
  await sh(one, 'rm /workspace/synced/link')
  await eventually(async () => assert.match(both.said(), /^removed here {2}link$/m))
  assert.deepEqual((await readdir(folder)).toSorted(), ['.gitignore', 'd', 'left'])
  await end(both.child)
  const gone = await atoll(['sync', '--pull', '--once', 'synced', `${one}:/nothing`])
  assert.deepEqual([gone.status, /there is no folder sb-.*:\/nothing/.test(gone.stderr)], [1, true])
})

test('atoll forward: any protocol over TCP, of several ports, also of a server that starts later', async () => {
  const forward = running(['forward', one, '0:7000', '0:7001'])
  await eventually(async () => assert.match(forward.said(), /Ctrl-C ends it/))
  assert.match(forward.said(), /nothing listens on port 7000 of the sandbox yet/)
  const [, port = ''] = /^127\.0\.0\.1:(\d+) -> 7000$/m.exec(forward.said()) ?? []
  assert.match(forward.said(), /^127\.0\.0\.1:\d+ -> 7001$/m)
  const refused = connect(Number(port), '127.0.0.1')
  const [error] = (await once(refused, 'error')) as [NodeJS.ErrnoException]
  assert.equal(error.code, 'ECONNRESET')

  const echo = `require('net').createServer({ allowHalfOpen: true }, (s) => s.pipe(s)).listen(7000, '127.0.0.1')`
  await output(['exec', '-d', one, '--', 'node', '-e', echo])
  await eventually(async () => assert.match(await output(['ports', one]), /7000/))
  const socket = connect({ port: Number(port), host: '127.0.0.1', allowHalfOpen: true })
  const sent = Buffer.alloc(5_000_000, 'bytes')
  socket.end(sent)
  assert.ok((await buffer(socket)).equals(sent), 'all that was sent came back after the end of this side')
  const busy = await atoll(['forward', one, `${port}:7000`])
  assert.deepEqual([busy.status, /another program listens there/.test(busy.stderr)], [1, true], busy.stderr)
  await end(forward.child)
})

test('atoll shell: it runs a command in /workspace, shows output as it is, and terminals are listed', async () => {
  const line = `${program} shell ${one} -- sh -c 'stty -onlcr; pwd; printf "a\\nb"; exit 7'`
  // `script` gives it a terminal, which would turn each line feed into two characters.
  const { status, stdout } = await run('script', ['-qec', line, '/dev/null'], '')
  assert.equal(status, 7, stdout)
  assert.match(stdout, /\/workspace\na\nb/)
  const left = start(
    'script',
    ['-qec', `${program} shell ${one} -- sh -c 'echo ready; read -r _'`, '/dev/null'],
    'pipe',
  )
  await once(left.stdout!, 'data')
  left.stdin!.end('\x1d')
  await once(left, 'close')
  assert.match(await output(['shell', one, '--list']), /^ps-\w+ .* sh -c echo ready; read -r _$/m)
})

test('atoll ssh-config: ssh, scp, sftp and rsync reach a sandbox, by a key and a host key that nobody is asked about', async () => {
  const ssh = ['-F', 'config']
  await mkdir(join(dir, 'files'))
  await writeFile(join(dir, 'files/large'), Buffer.alloc(3_000_000))
  await writeFile(join(dir, 'config'), 'Host own\n  User me\n')
  for (const expected of [1, 1]) {
    await output(['ssh-config', '--file', 'config'])
    const blocks = (await readFile(join(dir, 'config'), 'utf8')).match(/^Host atoll-\* /gm)
    assert.equal(blocks?.length, expected, 'a second call replaces the block of the first')
  }
  assert.match(await readFile(join(dir, 'config'), 'utf8'), /\nHost own\n {2}User me\n$/)
  const host = `atoll-${one}`
  assert.deepEqual(await run('ssh', [...ssh, host, 'id -un; echo "$GREETING"; cat; exit 3'], 'typed'), {
    ...{ status: 3, stdout: 'root\na "b"\ntyped', stderr: '' },
  })
  assert.equal((await run('ssh', [...ssh, `sandbox@${host}`, 'pwd'])).stdout, '/home/sandbox\n')
  await output(['api', 'PATCH', `/api/sandboxes/${one}`, '--data', '{"name": "box"}'])
  assert.equal((await run('ssh', [...ssh, 'atoll-box', 'echo by name'])).stdout, 'by name\n')
  assert.equal(await output(['cp', 'box:/etc/hostname', '-']), await sh(one, 'cat /etc/hostname'))
  const copied = await run('scp', ['-q', ...ssh, 'files/large', `${host}:/workspace/scp`])
  assert.equal(copied.status, 0, copied.stderr)
  const fetched = await run('sftp', ['-q', ...ssh, '-b', '-', host], 'get /workspace/scp fetched\n')
  assert.equal(fetched.status, 0, fetched.stderr)
  assert.equal((await stat(join(dir, 'fetched'))).size, 3_000_000)
  const synced = await run('rsync', ['-a', '-e', `ssh ${ssh.join(' ')}`, 'files/', `${host}:/workspace/rsync/`])
  assert.equal(synced.status, 0, synced.stderr)
  assert.match(await sh(one, 'ls -A /workspace/rsync'), /^large$/m)
  assert.deepEqual(await atoll(['ssh', one, '--', '-q', 'exit 5']), { status: 5, stdout: '', stderr: '' })

  await run('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', 'other'])
  const asOther = ['IdentitiesOnly=yes', 'StrictHostKeyChecking=no', 'UserKnownHostsFile=/dev/null', 'LogLevel=ERROR']
  const proxy = ['-o', `ProxyCommand=${program} ssh-proxy %h`, ...asOther.flatMap((option) => ['-o', option])]
  const stranger = await run('ssh', ['-F', 'none', '-i', 'other', ...proxy, `root@${host}`, 'true'])
  assert.equal(stranger.status, 255)
  assert.match(stranger.stderr, /Permission denied/)
  await sh(two, 'rm /usr/sbin/sshd')
  const without = await run('ssh', [...ssh, `atoll-${two}`, 'true'])
  assert.equal(without.status, 255)
  assert.match(without.stderr, /atoll: there is no sshd in sb-.*install -y openssh-server/)
  // What has served the connections is gone with them.
  await eventually(async () => assert.doesNotMatch(await sh(one, 'ps ax -o comm='), /sshd/))
})
