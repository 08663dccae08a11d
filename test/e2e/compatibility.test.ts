import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { opencomputer } from '@computesdk/opencomputer'
import { Sandbox, ScalingLockedError, SecretStore, Tags, Usage } from '@opencomputer/sdk'
import { askPreview, askPreviewUntil } from './preview.ts'
import { AtollServer } from './server.ts'

// Every method of the public clients that touches sandboxes; `sdk.test.ts` has those of a first hour. The table in
// docs/use/compatibility.md names the tests of both files.

const server = await AtollServer.startForFile()
const connection = { apiUrl: server.url, apiKey: server.key }

async function ready(sandbox: Sandbox, checkpointId: string): Promise<void> {
  for (;;) {
    const found = (await sandbox.listCheckpoints()).find((checkpoint) => checkpoint.id === checkpointId)
    if (found?.status === 'ready') return
    assert.notEqual(found?.status, 'failed', JSON.stringify(found))
    await sleep(50)
  }
}

test('connect finds a sandbox again, and an unknown id is an error', async () => {
  const sandbox = await Sandbox.create(connection)
  const again = await Sandbox.connect(sandbox.sandboxId, connection)
  assert.equal(again.status, 'running')
  assert.equal(again.getPreviewDomain(8080), `${sandbox.sandboxId}-p8080.preview.localhost:${server.port}`)
  await assert.rejects(Sandbox.connect('sb-000000000000', connection), /404/)
  await sandbox.kill()
})

test('a checkpoint without a kind is full: its forks and its restore go on in memory', async () => {
  const sandbox = await Sandbox.create(connection)
  const program = 'let n=0; require("http").createServer((q,s)=>s.end(String(++n))).listen(3000)'
  await sandbox.exec.start('node', { args: ['-e', program] })
  const host = `${sandbox.sandboxId}-p3000.preview.localhost`
  await askPreviewUntil(server, host, (answer) => answer.status === 200)
  const counted = Number((await askPreview(server, host)).body)
  const checkpoint = await sandbox.createCheckpoint('memory')
  await ready(sandbox, checkpoint.id)
  const fork = await Sandbox.createFromCheckpoint(checkpoint.id, { ...connection, envs: { EXTRA: 'yes' } })
  assert.equal(Number((await askPreview(server, `${fork.sandboxId}-p3000.preview.localhost`)).body), counted + 1)
  assert.equal((await fork.exec.run('echo $EXTRA')).stdout, 'yes\n')
  await askPreview(server, host)
  await sandbox.restoreCheckpoint(checkpoint.id)
  assert.equal(Number((await askPreview(server, host)).body), counted + 1)
  await fork.kill()
  await sandbox.deleteCheckpoint(checkpoint.id)
  await sandbox.kill()
})

test('hibernate and wake keep what runs', async () => {
  const sandbox = await Sandbox.create(connection)
  const session = await sandbox.exec.start('sh', { args: ['-c', 'read line; echo "woke to $line"'] })
  session.close()
  await sandbox.hibernate()
  assert.equal(await sandbox.isRunning(), false)
  await sandbox.wake({ timeout: 300 })
  assert.equal(sandbox.status, 'running')
  let output = ''
  const again = await sandbox.exec.attach(session.sessionId, {
    onStdout: (chunk) => (output += Buffer.from(chunk).toString()),
  })
  again.sendStdin('a new day\n')
  assert.equal(await again.done, 0)
  assert.equal(output, 'woke to a new day\n')
  await sandbox.kill()
})

test('reboot and powerCycle end the processes and keep the disk; scale changes the size', async () => {
  const sandbox = await Sandbox.create(connection)
  await sandbox.files.write('/workspace/kept', 'yes')
  for (const restart of [() => sandbox.reboot(), () => sandbox.powerCycle()]) {
    await sandbox.exec.background('sleep', { args: ['1000'] })
    await restart()
    assert.equal((await sandbox.exec.run('pgrep sleep')).exitCode, 1)
    assert.equal(await sandbox.files.read('/workspace/kept'), 'yes')
  }
  const scaled = await sandbox.scale({ memoryMB: 4096 })
  assert.deepEqual([scaled.memoryMB, scaled.cpuPercent], [4096, 100])
  await sandbox.kill()
})

test('autoscale is set and read, a manual scale turns it off, and a lock refuses both', async () => {
  const sandbox = await Sandbox.create(connection)
  const { sandboxId: sandboxID } = sandbox
  assert.deepEqual(await sandbox.getAutoscale(), { sandboxID, enabled: false, minMemoryMB: 0, maxMemoryMB: 0 })
  const wanted = { enabled: true, minMemoryMB: 1024, maxMemoryMB: 8192 }
  assert.deepEqual(await sandbox.setAutoscale(wanted), { sandboxID, ...wanted })
  await sandbox.scale({ memoryMB: 2048 })
  assert.equal((await sandbox.getAutoscale()).enabled, false)
  assert.deepEqual(await sandbox.getScalingLock(), { sandboxID, locked: false })
  assert.deepEqual(await sandbox.setScalingLock(true), { sandboxID, locked: true })
  await assert.rejects(sandbox.scale({ memoryMB: 1024 }), ScalingLockedError)
  await assert.rejects(sandbox.setAutoscale(wanted), ScalingLockedError)
  assert.equal((await sandbox.setAutoscale({ enabled: false })).enabled, false)
  await sandbox.setScalingLock(false)
  assert.equal((await sandbox.scale({ memoryMB: 1024 })).memoryMB, 1024)
  await sandbox.kill()
})

test('patches are listed and deleted', async () => {
  const sandbox = await Sandbox.create(connection)
  const checkpoint = await sandbox.createCheckpoint('disk', { kind: 'disk_only' })
  await ready(sandbox, checkpoint.id)
  const created = await Sandbox.createCheckpointPatch(checkpoint.id, { script: 'exit 3', ...connection })
  await assert.rejects(Sandbox.createFromCheckpoint(checkpoint.id, connection), /422.*patch_failed/)
  assert.equal((await Sandbox.listCheckpointPatches(checkpoint.id, connection)).length, 1)
  await Sandbox.deleteCheckpointPatch(checkpoint.id, created.patch.id, connection)
  const fork = await Sandbox.createFromCheckpoint(checkpoint.id, connection)
  await fork.kill()
  await sandbox.kill()
})

test('previews are listed, guarded by a token that rotates, and deleted', async () => {
  const sandbox = await Sandbox.create({ ...connection, previewAuth: {} })
  await sandbox.exec.start('python3', { args: ['-m', 'http.server', '3000'] })
  const host = `${sandbox.sandboxId}-p3000.preview.localhost`
  assert.equal((await askPreview(server, host)).status, 401)
  const first = { 'X-OC-Preview-Token': sandbox.previewAuthToken }
  while ((await askPreview(server, host, '/', first)).status !== 200) await sleep(50)
  const token = await sandbox.rotatePreviewAuthToken()
  assert.equal((await askPreview(server, host, '/', first)).status, 401)
  assert.equal((await askPreview(server, host, '/', { Authorization: `Bearer ${token}` })).status, 200)
  await sandbox.createPreviewURL({ port: 3000 })
  assert.deepEqual(
    (await sandbox.listPreviewURLs()).map((preview) => preview.port),
    [3000],
  )
  await sandbox.deletePreviewURL(3000)
  assert.deepEqual(await sandbox.listPreviewURLs(), [])
  await sandbox.kill()
})

test('exec sessions are listed, killed, attached to again, and shells go on after a client has gone', async () => {
  const sandbox = await Sandbox.create(connection)
  const session = await sandbox.exec.background('sleep', { args: ['1000'] })
  assert.deepEqual(
    (await sandbox.exec.list()).map((item) => item.sessionID),
    [session.sessionId],
  )
  await session.kill(15)
  assert.equal(await session.done, 128 + 15)
  const shell = await sandbox.exec.shell()
  await shell.run('cd /workspace; NAME=atoll')
  const same = await sandbox.exec.reattachShell(shell.sessionId)
  assert.equal((await same.run('echo $NAME $PWD')).stdout.trim(), 'atoll /workspace')
  await same.close()
  await sandbox.kill()
})

test('usage is read by sandbox, by tag and minute by minute', async () => {
  const usage = new Usage(connection.apiUrl, connection.apiKey)
  const sandbox = await Sandbox.create({ ...connection, memoryMB: 512 })
  await new Tags(connection.apiUrl, connection.apiKey).set(sandbox.sandboxId, { team: 'reef' })
  await sandbox.exec.run('sleep 2')
  const bySandbox = await usage.bySandbox({ filter: { 'tag:team': 'reef' } })
  const [item] = bySandbox.items
  assert.equal(item?.sandboxId, sandbox.sandboxId)
  // 512 MiB for two seconds and more.
  assert.ok(item.memoryGbSeconds >= 1 && bySandbox.total.memoryGbSeconds >= item.memoryGbSeconds)
  const byTag = await usage.byTag('team')
  assert.deepEqual([byTag.items[0]?.tagValue, byTag.items[0]?.sandboxCount], ['reef', 1])
  assert.ok(byTag.untagged.sandboxCount >= 0)
  const { totals, points } = await usage.forSandbox(sandbox.sandboxId)
  assert.ok(points.length >= 60 && totals.uptimeSeconds >= 2 && totals.memoryAllocatedPeakMb === 512)
  await sandbox.kill()
  const after = await usage.forSandbox(sandbox.sandboxId)
  assert.ok(after.totals.uptimeSeconds >= totals.uptimeSeconds, 'a stopped one answers')
})

test('what is not built answers 501, and never something else', async () => {
  const sandbox = await Sandbox.create(connection)
  await assert.rejects(sandbox.mounts.list(), /501|not_implemented/)
  await sandbox.kill()
})

test('a secret store is named by creations and forks, and its hosts are told', async () => {
  const store = await SecretStore.create({ ...connection, name: 'reef', egressAllowlist: ['api.example.com'] })
  await SecretStore.setSecret(store.id, 'API_KEY', 'the-value', { ...connection, allowedHosts: ['api.example.com'] })
  await assert.rejects(Sandbox.create({ ...connection, secretStore: 'none-such' }), /400|invalid_request/)
  const sandbox = await Sandbox.create({ ...connection, secretStore: 'reef' })
  const seen = await sandbox.exec.run('echo "$API_KEY"')
  assert.match(seen.stdout, /^osb_sealed_[0-9a-f]{32}\n$/)
  const hosts = await sandbox.getAllowedHosts()
  assert.deepEqual(
    [hosts.secretStore, hosts.egressAllowlist, hosts.perSecretAllowedHosts],
    ['reef', ['api.example.com'], { API_KEY: ['api.example.com'] }],
  )
  const plain = await Sandbox.create(connection)
  assert.deepEqual((await plain.getAllowedHosts()).egressAllowlist, [])
  for (const one of [sandbox, plain]) await one.kill()
  await SecretStore.delete(store.id, connection)
})

test('the ComputeSDK adapter, unchanged, does all that it offers', async () => {
  const compute = opencomputer(connection)
  const sandbox = await compute.sandbox.create({ envs: { A: 'b' }, metadata: { team: 'x' } })
  const result = await sandbox.runCommand('echo $A; exit 2')
  assert.deepEqual([result.exitCode, result.stdout], [2, 'b\n'])
  await sandbox.filesystem.mkdir('/workspace/d')
  await sandbox.filesystem.writeFile('/workspace/d/f', 'text')
  assert.equal(await sandbox.filesystem.readFile('/workspace/d/f'), 'text')
  assert.deepEqual(
    (await sandbox.filesystem.readdir('/workspace/d')).map((entry) => entry.name),
    ['f'],
  )
  await sandbox.filesystem.remove('/workspace/d/f')
  assert.equal(await sandbox.filesystem.exists('/workspace/d/f'), false)
  assert.match(
    await sandbox.getUrl({ port: 3000 }),
    new RegExp(`^https://${sandbox.sandboxId}-p3000\\.preview\\.localhost`),
  )
  assert.equal((await sandbox.getInfo()).status, 'running')
  assert.equal((await compute.sandbox.getById(sandbox.sandboxId))?.sandboxId, sandbox.sandboxId)
  assert.equal(await compute.sandbox.getById('sb-000000000000'), null)
  await sandbox.filesystem.writeFile('/workspace/kept', 'yes')
  const snapshot = await compute.snapshot?.create(sandbox.sandboxId, { name: 'one' })
  assert.ok(snapshot)
  assert.equal((await compute.snapshot?.list({ sandboxId: sandbox.sandboxId }))?.length, 1)
  const copy = await compute.sandbox.create({ snapshotId: snapshot.id })
  assert.equal(await copy.filesystem.readFile('/workspace/kept'), 'yes')
  await compute.snapshot?.delete(snapshot.id)
  await copy.destroy()
  await sandbox.destroy()
  assert.equal((await sandbox.getInfo()).status, 'stopped')
})
