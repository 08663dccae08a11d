import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { Sandbox } from '@opencomputer/sdk'
import { askPreviewUntil } from './preview.ts'
import { AtollServer } from './server.ts'

const server = await AtollServer.startForFile()
const connection = { apiUrl: server.url, apiKey: server.key }

test('the public SDK, unchanged, creates, runs, moves files, exposes, checkpoints, patches, forks and kills', async () => {
  const sandbox = await Sandbox.create({ ...connection, envs: { GREETING: 'hello' }, timeout: 600 })
  assert.match(sandbox.sandboxId, /^sb-[a-z0-9]{12,}$/)
  assert.equal(await sandbox.isRunning(), true)

  const run = await sandbox.exec.run('echo "$GREETING from $(hostname)"; echo oops >&2; exit 4')
  assert.deepEqual(run, { exitCode: 4, stdout: `hello from ${sandbox.sandboxId}\n`, stderr: 'oops\n' })
  assert.equal((await sandbox.exec.run('sleep 30', { timeout: 1 })).exitCode, 124)

  await sandbox.files.write('/workspace/deep/er/a.txt', 'some text')
  assert.equal(await sandbox.files.read('/workspace/deep/er/a.txt'), 'some text')
  const bytes = Uint8Array.from({ length: 1000 }, (_, index) => index % 256)
  await sandbox.files.write('/workspace/bytes', bytes)
  assert.deepEqual(await sandbox.files.readBytes('/workspace/bytes'), bytes)
  await sandbox.files.makeDir('/workspace/dir/sub')
  const names = (await sandbox.files.list('/workspace')).map((entry) => entry.name).toSorted()
  assert.deepEqual(names, ['bytes', 'deep', 'dir'])
  await sandbox.files.remove('/workspace/dir')
  assert.equal(await sandbox.files.exists('/workspace/dir'), false)

  const uploadUrl = await sandbox.uploadUrl('/workspace/up.bin')
  assert.equal((await fetch(uploadUrl, { method: 'PUT', body: bytes })).status, 204)
  const downloaded = await fetch(await sandbox.downloadUrl('/workspace/up.bin'))
  assert.equal(downloaded.headers.get('content-length'), '1000')
  assert.deepEqual(new Uint8Array(await downloaded.arrayBuffer()), bytes)
  assert.equal((await fetch(uploadUrl)).status, 404, 'an upload URL downloads nothing')

  await sandbox.exec.start('python3', { args: ['-m', 'http.server', '3000', '--bind', '127.0.0.1'], cwd: '/workspace' })
  const preview = await sandbox.createPreviewURL({ port: 3000 })
  assert.equal(preview.hostname, `${sandbox.sandboxId}-p3000.preview.localhost`)
  const page = await askPreviewUntil(server, preview.hostname, (answer) => answer.status === 200)
  assert.match(page.body, /up\.bin/)
  assert.equal((await sandbox.listPreviewURLs()).length, 1)

  const checkpoint = await sandbox.createCheckpoint('prepared', { kind: 'disk_only' })
  const { patch } = (await Sandbox.createCheckpointPatch(checkpoint.id, {
    script: 'echo "patched in $(hostname) with $GREETING" > /workspace/patched',
    description: 'writes a file',
    ...connection,
  })) as unknown as { patch: { sequence: number; strategy: string } }
  assert.deepEqual([patch.sequence, patch.strategy], [1, 'on_wake'])
  const fork = await Sandbox.createFromCheckpoint(checkpoint.id, { ...connection, timeout: 60 })
  assert.equal(await fork.files.read('/workspace/patched'), `patched in ${fork.sandboxId} with hello\n`)
  assert.equal(await fork.files.read('/workspace/deep/er/a.txt'), 'some text')
  assert.equal(await sandbox.files.exists('/workspace/patched'), false)
  await fork.files.write('/workspace/deep/er/a.txt', 'changed in the fork')
  assert.equal(await sandbox.files.read('/workspace/deep/er/a.txt'), 'some text')

  await sandbox.setTimeout(120)
  assert.equal((await sandbox.listCheckpoints()).length, 1)
  await fork.kill()
  await sandbox.kill()
  await sandbox.kill()
  assert.equal(await sandbox.isRunning(), false)
  await assert.rejects(sandbox.files.read('/workspace/bytes'), /410/)
  await sandbox.deleteCheckpoint(checkpoint.id)
})

test('a process started through the SDK streams its output, takes input, and tells its end', async () => {
  const sandbox = await Sandbox.create(connection)
  const chunks: string[] = []
  const session = await sandbox.exec.start('sh', {
    args: ['-c', 'echo ready; read line; echo "got $line"; exit 7'],
    onStdout: (chunk) => chunks.push(Buffer.from(chunk).toString()),
  })
  session.sendStdin('a line\n')
  assert.equal(await session.done, 7)
  assert.equal(chunks.join(''), 'ready\ngot a line\n')

  const shell = await sandbox.exec.shell()
  await shell.run('cd /tmp && export X=5')
  assert.equal((await shell.run('echo $X in $(pwd)')).stdout.trim(), '5 in /tmp')
  await shell.close()
  await sandbox.kill()
})

test('a terminal opened through the SDK echoes and has the size that was asked for', async () => {
  const sandbox = await Sandbox.create(connection)
  let screen = ''
  const pty = await sandbox.pty.create({
    cols: 101,
    rows: 33,
    onOutput: (chunk) => (screen += Buffer.from(chunk).toString()),
  })
  // The SDK returns before its socket is open, and sends nothing until then. The prompt comes through it.
  while (screen.length === 0) await sleep(20)
  pty.send('stty size\n')
  while (!screen.includes('33 101')) await sleep(20)
  pty.close()
  await sandbox.kill()
})

test('a hibernated sandbox keeps its files and wakes for the next operation', async () => {
  const sandbox = await Sandbox.create(connection)
  await sandbox.files.write('/workspace/kept', 'yes')
  await sandbox.hibernate()
  assert.equal(await sandbox.isRunning(), false)
  assert.equal(await sandbox.files.read('/workspace/kept'), 'yes')
  assert.equal(await sandbox.isRunning(), true)
  await sandbox.kill()
})
