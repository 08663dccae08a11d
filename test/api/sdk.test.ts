import assert from 'node:assert/strict'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { ExecTimeoutError, Sandbox } from '@opencomputer/sdk'
import { exchange } from '../support/api-client.ts'
import { useWorld } from '../support/world.ts'

let connection: { apiUrl: string; apiKey: string }
const world = useWorld({ hasCustomDomains: true }, async () => {
  connection = { apiUrl: world.origin, apiKey: world.api.key }
})

test('sdk: the public SDK, unchanged: life, files, commands, checkpoints, patches, previews', async () => {
  const sandbox = await Sandbox.create({
    ...connection,
    timeout: 60,
    envs: { A: 'b' },
    previewAuth: { scheme: 'bearer' },
  })
  assert.equal(sandbox.status, 'running')
  assert.ok(sandbox.previewAuthToken)
  assert.equal(sandbox.getPreviewDomain(3000), `${sandbox.sandboxId}-p3000.preview.test`)
  const folder = join(world.machines.folder(sandbox.sandboxId), 'sdk')
  mkdirSync(folder)

  assert.deepEqual(await sandbox.exec.run('echo $A; echo c >&2; exit 3'), { exitCode: 3, stdout: 'b\n', stderr: 'c\n' })
  await assert.rejects(sandbox.exec.run('sleep 5', { timeoutMs: 1 }), ExecTimeoutError)

  const file = join(folder, 'a', 'b.txt')
  await sandbox.files.write(file, 'text')
  assert.equal(await sandbox.files.read(file), 'text')
  await sandbox.files.write(file, new Blob(['streamed']).stream())
  assert.deepEqual(await sandbox.files.readBytes(file), new TextEncoder().encode('streamed'))
  await sandbox.files.makeDir(join(folder, 'dir'))
  assert.deepEqual((await sandbox.files.list(folder)).map(({ name }) => name).toSorted(), ['a', 'dir'])
  await sandbox.files.remove(join(folder, 'dir'))
  assert.deepEqual([await sandbox.files.exists(file), await sandbox.files.exists(join(folder, 'dir'))], [true, false])
  assert.equal((await fetch(await sandbox.uploadUrl(file), { method: 'PUT', body: 'signed' })).status, 204)
  assert.equal(await (await fetch(await sandbox.downloadUrl(file))).text(), 'signed')

  const checkpoint = await sandbox.createCheckpoint('one', { kind: 'disk_only' })
  assert.equal((await sandbox.listCheckpoints()).length, 1)
  await Sandbox.createCheckpointPatch(checkpoint.id, {
    ...connection,
    script: `echo patched > ${join(folder, 'patched')}`,
  })
  const [patch] = await Sandbox.listCheckpointPatches(checkpoint.id, connection)
  assert.ok(patch)
  const fork = await Sandbox.createFromCheckpoint(checkpoint.id, { ...connection, timeout: 30 })
  assert.equal(await fork.files.read(join(folder, 'patched')), 'patched\n')
  await Sandbox.deleteCheckpointPatch(checkpoint.id, patch.id, connection)
  await sandbox.deleteCheckpoint(checkpoint.id)

  const preview = await sandbox.createPreviewURL({ port: 3000 })
  assert.equal(preview.hostname, `${sandbox.sandboxId}-p3000.preview.test`)
  assert.equal((await sandbox.listPreviewURLs()).length, 1)
  const old = sandbox.previewAuthToken
  assert.notEqual(await sandbox.rotatePreviewAuthToken(), old)
  await sandbox.deletePreviewURL(3000)

  await sandbox.setTimeout(90)
  await sandbox.hibernate()
  assert.equal(await sandbox.isRunning(), false)
  await sandbox.wake({ timeout: 80 })
  assert.equal(await (await Sandbox.connect(sandbox.sandboxId, connection)).isRunning(), true)
  await sandbox.reboot()
  await sandbox.powerCycle()
  assert.equal((await sandbox.scale({ memoryMB: 2048 })).memoryMB, 2048)
  assert.equal((await sandbox.getAutoscale()).enabled, false)
  await sandbox.kill()
  await fork.kill()
  assert.equal(await sandbox.isRunning(), false)
})

test('sdk: the public SDK, unchanged: a port that is declared again keeps its guard and its domain', async () => {
  const sandbox = await Sandbox.create(connection)
  const authConfig = { scheme: 'bearer', token: 'token-of-sixteen-characters' }
  world.prove('sdk.example.com')
  await sandbox.createPreviewURL({ port: 3000, domain: 'sdk.example.com', authConfig })
  const again = await sandbox.createPreviewURL({ port: 3000 })
  assert.deepEqual([again.customHostname, again.authConfig], ['sdk.example.com', { scheme: 'bearer' }])
  const refused = await exchange(world.origin, { headers: { host: 'sdk.example.com' } })
  assert.equal(refused.status, 401)
  await sandbox.kill()
})

test('sdk: the public SDK, unchanged: exec sessions, a stateful shell, and a terminal over WebSockets', async () => {
  const sandbox = await Sandbox.create(connection)
  let text = ''
  const session = await sandbox.exec.start('cat', {
    onStdout: (data) => {
      text += Buffer.from(data).toString()
      if (text.includes('hello')) void session.kill()
    },
  })
  session.sendStdin('hello\n')
  assert.equal(await session.done, 137)
  assert.equal(text, 'hello\n')
  assert.equal((await sandbox.exec.list()).length, 1)

  const shell = await sandbox.exec.shell({ env: { B: 'c' } })
  assert.deepEqual(await shell.run('cd /tmp; X=$B'), { exitCode: 0, stdout: '', stderr: '' })
  const second = await shell.run('pwd; echo $X; echo no >&2; (exit 9)')
  assert.deepEqual(second, { exitCode: 9, stdout: '/tmp\nc\n', stderr: 'no\n' })
  await shell.close()

  let shown = ''
  const seen = Promise.withResolvers<void>()
  const pty = await sandbox.pty.create({
    cols: 91,
    rows: 31,
    onOutput: (data) => {
      shown += Buffer.from(data).toString()
      if (shown.includes('31 91')) seen.resolve()
    },
  })
  // The SDK does not say when its socket is open: a `send` before that throws.
  for (let isSent = false; !isSent;) {
    await new Promise((resolve) => setTimeout(resolve, 20))
    try {
      pty.send('stty size\n')
      isSent = true
    } catch {
      // Not yet.
    }
  }
  await seen.promise
  pty.close()
  await sandbox.kill()
})

test('sdk: its package is given out without a key, and where it is missing the answer says how to make it', async () => {
  const missing = await world.api.get('/sdk.tgz', { key: null })
  assert.deepEqual([missing.status, missing.body.code], [404, 'not_found'])
  assert.match(missing.body.error, /npm run setup/)
  writeFileSync(world.sdkPackage, 'the package')
  const { status, text, headers } = await world.api.get('/sdk.tgz', { key: null })
  assert.deepEqual([status, text, headers['content-type']], [200, 'the package', 'application/gzip'])
  assert.equal(headers['content-disposition'], 'attachment; filename="atoll-sdk-1.2.3.tgz"')
  const head = await world.api.raw('HEAD', '/sdk.tgz', { key: null })
  assert.deepEqual([head.status, head.text, head.headers['content-length']], [200, '', '11'])
})
