/** A newcomer with nothing but the command line: from a machine without a server to a fork of a session. */
import assert from 'node:assert/strict'
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { after, test } from 'node:test'
import { freePort } from '../../support/listen.ts'
import { askPreviewUntil } from '../preview.ts'
import { freeSubnet } from '../server.ts'

const program = join(import.meta.dirname, '../../../bin/atoll')
const home = await mkdtemp('/var/tmp/atoll-newcomer-')
const port = await freePort()
const url = `http://127.0.0.1:${port}`
const base = { PATH: process.env['PATH'] ?? '', HOME: home }
let server: ChildProcess | undefined

after(async () => {
  if (server !== undefined && server.exitCode === null) {
    server.kill('SIGINT')
    await once(server, 'exit')
  }
  await rm(home, { recursive: true, force: true })
})

async function run(
  argv: readonly string[],
  input?: string,
): Promise<{ status: number | null; out: string; err: string }> {
  const child = spawn(program, argv, {
    cwd: home,
    env: base,
    stdio: [input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
  })
  assert.ok(child.stdout !== null && child.stderr !== null)
  child.stdin?.end(input)
  const [out, err] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')])
  return { status: child.exitCode, out, err }
}

/** What a command that works prints. */
async function said(...argv: string[]): Promise<string> {
  const { status, out, err } = await run(argv)
  assert.equal(status, 0, `${argv.join(' ')}: ${err}`)
  return out.trim()
}

/** Starts the server as a newcomer does, and returns the key that it shows. */
async function up(): Promise<string> {
  const variables = {
    ATOLL_LISTEN: `127.0.0.1:${port}`,
    ATOLL_DATA_DIR: join(home, 'data'),
    ATOLL_SUBNET: freeSubnet(),
    ATOLL_PREVIEW_URL: `http://preview.localhost:${port}`,
    ATOLL_DISK_POOL_MB: '8192',
    ATOLL_WARM_POOL: '0',
  }
  server = spawn(program, ['up'], { env: { ...base, ...variables }, stdio: ['ignore', 'pipe', 'inherit'] })
  let shown = ''
  for await (const piece of server.stdout!) {
    shown += String(piece)
    const key = /^API key, shown this once: (\S+)$/m.exec(shown)?.[1]
    if (key !== undefined && shown.includes('Create a session')) return key
  }
  throw new Error(`the server ended: ${shown}`)
}

test('from nothing to a forked session, by the command line alone', async () => {
  assert.equal((await run(['ls', '--url', url])).status, 3, 'there is no server yet')
  const key = await up()
  const login = await run(['login', '--url', url, '--name', 'here'], `${key}\n`)
  assert.equal(login.status, 0, login.err)
  assert.equal((await stat(join(home, '.config/atoll/config.json'))).mode & 0o777, 0o600)
  assert.match(await said('contexts'), /here/)

  const sandbox = await said('create', '--timeout', '600')
  await mkdir(join(home, 'src'))
  await writeFile(join(home, 'src/index.html'), '<h1>reefs</h1>')
  await said('cp', '-r', 'src', `${sandbox}:/workspace`)
  assert.equal(await said('exec', sandbox, '--', 'cat', '/workspace/src/index.html'), '<h1>reefs</h1>')
  const serve = 'cd /workspace/src && (setsid python3 -m http.server 3000 --bind 127.0.0.1 >/dev/null 2>&1 &)'
  await said('exec', sandbox, serve)
  const preview = new URL(await said('open', sandbox, '3000'))
  const seen = await askPreviewUntil({ port }, preview.hostname, ({ status }) => status === 200)
  assert.equal(seen.body, '<h1>reefs</h1>')
  const ports = JSON.parse(await said('ports', sandbox, '--json')) as { port: number; url: string }[]
  assert.deepEqual(
    ports.map((one) => [one.port, one.url]),
    [[3000, preview.href]],
  )

  const checkpoint = await said('checkpoint', sandbox, '--name', 'served')
  const forks = (await said('fork', checkpoint, '--count', '2')).split('\n')
  assert.equal(forks.length, 2)
  for (const fork of forks)
    assert.equal(await said('exec', fork, 'curl -s http://127.0.0.1:3000/'), '<h1>reefs</h1>', 'its server runs on')
  await said('exec', forks[0] ?? '', 'echo changed > /workspace/src/index.html')
  await said('cp', `${forks[0]}:/workspace/src/index.html`, 'back.html')
  assert.equal(await readFile(join(home, 'back.html'), 'utf8'), 'changed\n')
  assert.equal(await said('exec', sandbox, '--', 'cat', '/workspace/src/index.html'), '<h1>reefs</h1>')
  await said('rm', sandbox, ...forks)

  const session = await said('session', 'new', 'A page about coral reefs', '--user', 'ada')
  assert.match(await said('session', 'watch', session, '--once'), /coral reefs/)
  await said('session', 'send', session, 'Add a section about sea turtles')
  const twice = JSON.parse(await said('api', 'GET', `/v1/sessions/${session}`)) as { messages: { role: string }[] }
  assert.equal(twice.messages.filter(({ role }) => role === 'user').length, 2)
  let fork = await run(['session', 'fork', session])
  // The agent may still work: 6 is a conflict.
  while (fork.status === 6) fork = await run(['session', 'fork', session])
  assert.equal(fork.status, 0, fork.err)
  const forked = fork.out.trim()
  assert.notEqual(forked, session)
  assert.match(await said('session', 'ls'), new RegExp(`${forked}[^]*${session}|${session}[^]*${forked}`))
  for (const id of [session, forked]) await said('session', 'rm', id)
  assert.equal(await said('ls', '--status', 'running', '-q'), '')
})
