/** The command line against the API: what it passes on, prints and ends with. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { text } from 'node:stream/consumers'
import type { HostReport } from '../../src/http/server/server.ts'
import { beginAtoll, type Ended, type RunOptions } from '../support/command-line.ts'
import { freePort } from '../support/listen.ts'
import { makeWorld } from '../support/world.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

const program = join(import.meta.dirname, '../../bin/atoll')
const home = await mkdtemp(join(tmpdir(), 'atoll-cli-'))
after(() => rm(home, { recursive: true }))

const world = await makeWorld({ host: async () => hostReport })
after(() => world[Symbol.asyncDispose]())
const id = await world.sandbox()

const hostReport: HostReport = {
  kernel: '6.1',
  runtime: 'fake',
  startedAt: new Date(0),
  checkedAt: new Date(0),
  capacity: {
    ...{ cpuCount: 1, memoryBytes: 1, memoryAvailableBytes: 1, diskBytes: 1, diskAvailableBytes: 1 },
    ...{ runningSandboxes: 1, warmSandboxes: 0 },
  },
  checks: [{ name: 'CRIU', status: 'fails', detail: 'odd' }],
}

/** Runs the command line as a user would, without a terminal. */
async function atoll(argv: readonly string[], { input, env }: RunOptions = {}): Promise<Ended> {
  return await beginAtoll(world, argv, { input, env: { HOME: home, ...env } }).ended
}

/** What a command prints that must work. */
async function printed(argv: readonly string[], options?: RunOptions): Promise<string> {
  const { status, stdout, stderr } = await atoll(argv, options)
  assert.equal(status, 0, stderr)
  return stdout.trim()
}

/** Runs the command line in a terminal of this machine. */
async function inTerminal(argv: readonly string[]): Promise<string> {
  const quoted = [program, ...argv].map((word) => `'${word}'`).join(' ')
  const env = { PATH: process.env['PATH'], HOME: home, ATOLL_URL: world.origin, ATOLL_API_KEY: world.api.key }
  const child = spawn('script', ['-qec', quoted, '/dev/null'], { cwd: home, stdio: ['pipe', 'pipe', 'inherit'], env })
  const closed = once(child, 'close')
  const [stdout] = await Promise.all([text(child.stdout), closed])
  return stdout
}

test('cli: what follows the target of exec is the command, with its flags', async () => {
  const show = ['sh', '-c', 'echo "$@"', 'sh']
  const lines: [string[], string][] = [
    [['exec', id, ...show, '--json', '-e', '--', '--url', 'x'], '--json -e -- --url x'],
    [['exec', id, '--', ...show, '--help', '-t'], '--help -t'],
    [['exec', '-e', 'A=1', id, 'sh', '-c', 'echo $A'], '1'],
    [['exec', id, '-e', 'A=2', '--', 'sh', '-c', 'echo $A'], '2'],
    [['exec', id, '--env=A=3', 'sh', '-c', 'echo $A'], '3'],
    [['exec', '--cwd', '/usr', id, 'pwd'], '/usr'],
    [['exec', id, 'echo a | tr a b'], 'b'],
  ]
  await Promise.all(lines.map(async ([argv, line]) => assert.equal(await printed(argv), line, argv.join(' '))))
  const json = await printed(['exec', '--json', id, 'echo', '--json'])
  assert.deepEqual(JSON.parse(json), { exitCode: 0, stdout: '--json\n', stderr: '' })
})

test('cli: exec -n gives no input, so that a loop keeps its lines', async () => {
  assert.equal(await printed(['exec', id, 'cat'], { input: 'lines' }), 'lines')
  assert.equal(await printed(['exec', '-n', id, 'cat'], { input: 'lines' }), '')
  for (const [flags, both] of [
    [['-n', '-i'], '-i and -n'],
    [['-t', '-d'], '-t and -d'],
    [['-d', '-i'], '-i and -d'],
    [['-t', '--json'], '-t and --json'],
  ] as const) {
    const { status, stderr } = await atoll(['exec', ...flags, id, 'true'])
    assert.deepEqual([status, stderr.includes(`${both} do not go together`)], [125, true], stderr)
  }
})

test('cli: exec -d prints an id at once, ps and kill see to the process, and logs has its output', async () => {
  const reader = await printed(['exec', '-d', id, 'sh', '-c', 'cat; echo the input has ended'], { input: 'lines' })
  assert.equal(await printed(['logs', id, reader, '--follow']), 'the input has ended')
  const started = await printed(['exec', '-d', id, 'sleep', '600'])
  assert.match(started, /^es-[a-z0-9]+$/)
  const other = await printed(['exec', '-d', id, 'sh', '-c', 'echo $$; exec sleep 601'])
  // The shell may not have come so far.
  const pid = await eventually(async () => {
    const said = await printed(['logs', id, other])
    assert.notEqual(said, '')
    return said
  })
  await eventually(async () => {
    const processes = JSON.parse(await printed(['ps', id, '--json'])) as { pid: number; command: string }[]
    assert.equal(processes.find((one) => one.pid === Number(pid))?.command, 'sleep 601')
  })
  assert.match(await printed(['ps', id]), /^PID +PARENT +USER +STATE +MEMORY +CPU +STARTED +COMMAND\n/)
  assert.equal(await printed(['kill', id, started, pid, '-s', 'int']), '')
  const ended = async (session: string) => {
    const follow = await atoll(['logs', id, session, '--follow'])
    assert.equal(follow.status, 0, follow.stderr)
    const list = JSON.parse(await printed(['logs', id, '--json'])) as { sessionID: string; exitCode: number | null }[]
    return list.find(({ sessionID }) => sessionID === session)?.exitCode
  }
  assert.deepEqual([await ended(started), await ended(other)], [130, 130])
  for (const [argv, status, message] of [
    [['kill', id], 2, /atoll ps sb-.* lists them, "atoll rm sb-.*" ends the sandbox/],
    [['kill', id, 'sleep'], 2, /"sleep" is no process/],
    [['kill', id, pid, '-s', 'NOPE'], 2, /It must be a signal/],
    [['kill', id, 'es-0000000000000000'], 5, /es-0000000000000000/],
  ] as const) {
    const refused = await atoll(argv)
    assert.equal(refused.status, status, refused.stderr)
    assert.match(refused.stderr, message)
  }
})

test('cli: exec -t runs in a terminal, of this machine where there is one', async () => {
  const piped = await atoll(['exec', '-t', id, 'sh', '-c', 'test -t 0 && test -t 1 && cat; exit 7'], { input: 'typed' })
  assert.equal(piped.status, 7, piped.stderr)
  assert.match(piped.stdout, /typed/)
  assert.match(
    await inTerminal(['exec', '-t', id, 'sh', '-c', 'stty size; test -t 2 && echo two']),
    /^\d+ \d+\r\n[^]*two\r\n/,
  )
})

test('cli: a flag that is not known is refused with the nearest, also below groups and for exec', async () => {
  const expectations: [string[], number, RegExp][] = [
    [['ls', '--stauts', 'running'], 2, /unknown option '--stauts' \(Did you mean --status\?\) \(see atoll help ls\)/],
    [['volume', 'ls', '--jsn'], 2, /--jsn' \(Did you mean --json\?\) \(see atoll help volume (ls|list)\)/],
    [['--jsn', 'ls'], 2, /--jsn' \(Did you mean --json\?\)/],
    [['exec', id, '--cw', '/', 'true'], 125, /--cw' \(Did you mean --cwd\?\) \(see atoll help exec\)/],
    [['sesion', 'ls'], 2, /'sesion' \(Did you mean session\?\)/],
    [['help', 'session', 'wach'], 2, /'wach' \(Did you mean watch\?\)/],
    [['help', 'ls', 'all'], 2, /"atoll ls" has no commands below it/],
    [['stop', id], 2, /atoll hibernate keeps a sandbox for later, atoll rm ends it for good/],
  ]
  for (const [argv, status, message] of expectations) {
    const ended = await atoll(argv)
    assert.equal(ended.status, status, ended.stderr)
    assert.match(ended.stderr, message)
    assert.match(ended.stderr, /^atoll: [^\n]+\n$/)
  }
  assert.equal(await printed(['list', '-q']), await printed(['ls', '-q']))
})

test('cli: every error in JSON has a code, and a flag of the remote command is none of its own', async () => {
  const nowhere = await freeUrl()
  const expectations: [string[], string][] = [
    [['ls', '--json', '--url', nowhere], 'unreachable'],
    [['ls', '--json', '--key', 'wrong'], 'unauthorized'],
    [['--json', 'get', 'sb-0000000000000000'], 'not_found'],
    [['ls', '--json', '--bogus'], 'usage'],
    [['bogus', '--json'], 'usage'],
    [['stop', '--json'], 'usage'],
    [['use', 'nothing', '--json'], 'usage'],
    [['exec', '--json', 'sb-0000000000000000', 'true'], 'not_found'],
    [['api', 'POST', '/api/sandboxes', '--data', '@missing', '--json'], 'local_error'],
    [['session', 'send', 'session_0000000000000000', 'hi', '--json'], 'not_found'],
  ]
  for (const [argv, code] of expectations) {
    const { stderr } = await atoll(argv)
    assert.equal((JSON.parse(stderr) as { code: string }).code, code, argv.join(' '))
  }
  assert.match((await atoll(['exec', 'sb-0000000000000000', 'ls', '--json'])).stderr, /^atoll: /)
})

test('cli: a server that does not answer is given up after --request-timeout', async () => {
  const silent = createServer().listen(0, '127.0.0.1')
  await once(silent, 'listening')
  after(() => silent.close())
  const url = `http://127.0.0.1:${(silent.address() as AddressInfo).port}`
  const { status, stderr } = await atoll(['api', 'POST', '/x', '--request-timeout', '1', '--url', url])
  silent.closeAllConnections()
  assert.deepEqual(
    [status, stderr],
    [3, 'atoll: POST /x was not answered within 1 s (--request-timeout SECONDS gives it longer)\n'],
  )
})

test('cli: status and whoami say what the server knows, and logout removes a saved key', async () => {
  const env = { ATOLL_URL: undefined, ATOLL_API_KEY: undefined, XDG_CONFIG_HOME: join(home, 'config') }
  const file = join(home, 'config/atoll/config.json')
  const login = ['login', '--url', world.origin, '--name']
  for (const name of ['here', 'there']) await printed([...login, name], { env, input: world.api.key })
  const status = JSON.parse(await printed(['status', '--json'], { env })) as {
    key: string
    sandboxes: { running: number }
  }
  assert.deepEqual([status.key, status.sandboxes.running > 0], ['accepted', true])
  assert.match(
    await printed(['status'], { env }),
    /^server +http:.* answers\nversion +\d+\.\d+\.\d+\nkey +accepted, of .+\nsandboxes +\d+ running/,
  )
  const refused = await atoll(['status', '--key', 'wrong'], { env })
  assert.equal(refused.status, 4)
  assert.match(refused.stdout, /answers\nkey +refused/)
  assert.equal((await atoll(['status', '--url', await freeUrl()], { env })).status, 3)
  const who = JSON.parse(await printed(['whoami', '--json'], { env })) as { org_id: string; key: { id: string } }
  assert.equal(who.org_id, world.orgId)
  assert.match(await printed(['whoami'], { env }), new RegExp(`\nkey ${who.key.id}$`))
  assert.match((await atoll(['logout', 'nowhere'], { env })).stderr, /no context "nowhere"; there are: here, there/)
  await printed(['logout'], { env })
  const saved = JSON.parse(await readFile(file, 'utf8')) as object
  assert.deepEqual(saved, { contexts: { here: { url: world.origin, apiKey: world.api.key } } })
  await printed(['logout', '--all'], { env })
  assert.ok(!(await readFile(file, 'utf8')).includes(world.api.key))
  assert.equal((await atoll(['logout'], { env })).status, 2)
})

test('cli: what it compiles is kept in the cache of the user, and a home that is not there is not made', async () => {
  const env = { HOME: join(home, 'new'), XDG_CACHE_HOME: undefined }
  assert.match(await printed(['--version'], { env }), /^\d/)
  assert.ok(!(await readdir(home)).includes('new'))
  await printed(['--version'])
  assert.ok((await readdir(join(home, '.cache/atoll'))).includes('compile'))
  await rm(join(home, '.cache'), { recursive: true })
  await writeFile(join(home, '.cache'), 'no folder')
  assert.match(await printed(['--version']), /^\d/)
  await rm(join(home, '.cache'))
})

async function freeUrl(): Promise<string> {
  return `http://127.0.0.1:${await freePort()}`
}
