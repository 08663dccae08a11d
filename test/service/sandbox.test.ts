import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { ServiceError } from '../../src/errors.ts'
import { newId } from '../../src/lib/id.ts'
import type { Sandbox } from '../../src/sandbox/index.ts'
import { type Store, openStore } from '../../src/store/index.ts'
import { imageDir } from '../support/images.ts'
import { makeWorld, throwsCode } from './world.ts'

let dataDir: string
let store: Store

before(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'atoll-service-'))
  store = await openStore({ dataDir, imageDir })
})

after(async () => {
  await store.close()
  await rm(dataDir, { recursive: true })
})

async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await sleep(20)
}

test('a sandbox that asks for nothing runs with the defaults', async () => {
  const { service, machines, orgId } = await makeWorld(store)
  const { sandbox } = await service.create(orgId, {})
  assert.equal(sandbox.status, 'running')
  assert.equal(machines.state(sandbox.id), 'running')
  const { cpuCount, memoryMb, diskMb, timeoutSeconds, image } = sandbox
  assert.deepEqual([cpuCount, memoryMb, diskMb, timeoutSeconds, image], [1, 1024, 10_240, 300, 'base'])
})

test('what another organisation owns is not found', async () => {
  const { service, orgId } = await makeWorld(store)
  const { sandbox } = await service.create(orgId, {})
  const stranger = newId('org_')
  await assert.rejects(service.get(stranger, sandbox.id), throwsCode('not_found'))
  await assert.rejects(service.delete(stranger, sandbox.id), throwsCode('not_found'))
  await assert.rejects(service.exec.list(stranger, sandbox.id), throwsCode('not_found'))
  assert.equal((await service.list(stranger, {})).items.length, 0)
})

test('bad input names its field and creates nothing', async () => {
  const { service, machines, orgId } = await makeWorld(store)
  const wrong = [
    [{ timeoutSeconds: -1 }, /timeout/],
    [{ timeoutSeconds: 2_592_001 }, /timeout/],
    [{ memoryMb: 1.5 }, /memoryMB/],
    [{ cpuCount: 0 }, /cpuCount/],
    [{ envs: { 'A=B': 'c' } }, /envs/],
    [{ envs: { A: 'b\0' } }, /envs\.A/],
    [{ previewAuth: { scheme: 'bearer', token: 'short' } }, /previewAuth\.token/],
    [{ image: '../base' }, /templateID/],
  ] as const
  for (const [input, field] of wrong) {
    await assert.rejects(service.create(orgId, input), throwsCode('invalid_request', field))
  }
  assert.equal(machines.machines.size, 0)
})

test('a start that fails leaves no machine and says why in the record', async () => {
  const { service, machines, orgId } = await makeWorld(store)
  machines.before.create = () => Promise.reject(new ServiceError('no_capacity', 'the pool is full'))
  await assert.rejects(service.create(orgId, {}), throwsCode('no_capacity', /pool/))
  const [stopped] = (await service.list(orgId, { status: 'stopped' })).items
  assert.equal(stopped?.reason, 'runtime_failed')
  assert.equal(stopped?.reasonMessage, 'the pool is full')
  assert.equal(machines.machines.size, 0)
})

test('a start that fails under an announced id can be tried again under that id', async () => {
  const { service, machines, orgId } = await makeWorld(store)
  const id = newId('sb-')
  machines.before.create = () => Promise.reject(new Error('a fault of ours'))
  await assert.rejects(service.create(orgId, { id }), /a fault of ours/)
  assert.equal((await service.get(orgId, id)).status, 'error')
  await assert.rejects(service.exec.list(orgId, id), throwsCode('conflict'))
  machines.before = {}
  const { sandbox } = await service.create(orgId, { id })
  assert.equal(sandbox.status, 'running')
  assert.equal(sandbox.reason, undefined)
})

test('a start that is tried again keeps the tags, the timeout and the guard that it was given meanwhile', async () => {
  const { service, machines, orgId } = await makeWorld(store)
  const id = newId('sb-')
  machines.before.create = async () => {
    await service.setTags(orgId, id, { team: 'reef' })
    await service.setTimeout(orgId, id, 7)
    await service.previews.rotate(orgId, id)
    throw new Error('a fault of ours')
  }
  await assert.rejects(service.create(orgId, { id }), /a fault of ours/)
  machines.before = {}
  const failed = await service.get(orgId, id)
  assert.ok(failed.previewTokenHash)
  const { sandbox } = await service.create(orgId, { id })
  const kept = ({ tags, tagsUpdatedAt, timeoutSeconds, previewTokenHash }: Sandbox) =>
    [tags, tagsUpdatedAt, timeoutSeconds, previewTokenHash] as const
  assert.deepEqual(kept(sandbox), kept(failed))
  assert.deepEqual([sandbox.tags, sandbox.timeoutSeconds], [{ team: 'reef' }, 7])
})

test('a delete in the middle of a start aborts it and leaves nothing', async () => {
  const { service, machines, orgId } = await makeWorld(store)
  const id = newId('sb-')
  machines.before.create = (signal) =>
    new Promise((_resolve, reject) => signal?.addEventListener('abort', () => reject(new Error('aborted'))))
  const creating = service.create(orgId, { id })
  await until(async () => (await store.sandboxes.sandbox(id)) !== undefined)
  const outcome = assert.rejects(creating, throwsCode('sandbox_stopped'))
  await service.delete(orgId, id)
  await outcome
  assert.equal((await service.get(orgId, id)).status, 'stopped')
  assert.equal(machines.machines.size, 0)
})

test('slow starts and dumps of one organisation leave places to the others, and who waits for one can be deleted', async () => {
  const { service, machines, orgId } = await makeWorld(store, { startsAtOnce: 2 })
  machines.capabilities = { fullCheckpoints: true }
  const { sandbox } = await service.create(orgId, {})
  const hold = Promise.withResolvers<void>()
  let under = 0
  const slow = async () => {
    under += 1
    await hold.promise
  }
  machines.before = { create: slow, checkpoint: slow }
  const checkpoint = await service.checkpoints.create(orgId, sandbox.id, { name: 'slow' })
  const started = service.create(orgId, {})
  await until(() => under === 2)
  const id = newId('sb-')
  const outcome = assert.rejects(service.create(orgId, { id }), throwsCode('sandbox_stopped'))
  await until(async () => (await store.sandboxes.sandbox(id)) !== undefined)
  await service.delete(orgId, id)
  await outcome
  assert.equal(under, 2)

  machines.before = {}
  const other = newId('org_')
  await store.organisations.insertOrganisation({ id: other, name: 'other' })
  assert.equal((await service.create(other, {})).sandbox.status, 'running')
  hold.resolve()
  assert.equal((await started).sandbox.status, 'running')
  assert.equal((await service.checkpoints.settled(orgId, checkpoint.id)).status, 'ready')
})

/** An organisation with one turn, which a checkpoint has until `end`, and a sandbox that is none of its business. */
async function busyWorld(timeoutSeconds: number) {
  const world = await makeWorld(store, { startsAtOnce: 1, wakeWaitMs: 50 })
  const { service, machines, orgId } = world
  const dumped = (await service.create(orgId, {})).sandbox
  const { id } = (await service.create(orgId, { timeoutSeconds })).sandbox
  const begun = Promise.withResolvers<void>()
  const hold = Promise.withResolvers<void>()
  machines.before.checkpoint = () => {
    begun.resolve()
    return hold.promise
  }
  const checkpoint = await service.checkpoints.create(orgId, dumped.id, { name: 'slow', kind: 'disk_only' })
  await begun.promise
  return { ...world, id, dumpedId: dumped.id, checkpointId: checkpoint.id, end: hold.resolve }
}

test('an idle sandbox that waits for its turn to sleep serves its users, and does not sleep once it is used', async () => {
  const { service, machines, orgId, id, end } = await busyWorld(1)
  const asked = Promise.withResolvers<void>()
  machines.before.processes = async () => asked.resolve()
  await asked.promise
  await sleep(20)
  await service.files.list(orgId, id, '/')
  const release = service.previews.hold(id)
  end()
  // Its turn comes after that of the sandbox which waited.
  await service.create(orgId, {})
  assert.equal(machines.state(id), 'running')
  release()
  await until(() => machines.state(id) === 'hibernated')
})

test('an idle sandbox that waits for its turn to sleep is asked once more whether a client runs something', async () => {
  const { service, machines, orgId, id, end } = await busyWorld(1)
  const asked = Promise.withResolvers<void>()
  machines.before.processes = async () => asked.resolve()
  await asked.promise
  await sleep(20)
  const process = { pid: 9, argv: ['sleep'], running: true, startedAt: '', attachedClients: 0, pty: false }
  machines.clientProcesses = [{ id: newId('es-'), ...process }]
  end()
  await service.create(orgId, {})
  assert.equal(machines.state(id), 'running')
})

test('who waits for a turn can be deleted, and a server that stops waits for what has begun alone', async () => {
  const { service, machines, orgId, id, dumpedId, checkpointId, end } = await busyWorld(0)
  const other = (await store.sandboxes.sandbox(id))!
  const givesUp = throwsCode('unavailable', /server stops/)
  const rebooted = assert.rejects(service.reboot(orgId, id), givesUp)
  await sleep(20)
  await service.delete(orgId, id)
  assert.equal(machines.state(id), undefined)
  const slept = assert.rejects(service.hibernate(orgId, dumpedId), givesUp)
  await sleep(20)
  const closed = service.close()
  end()
  await Promise.all([closed, rebooted, slept])
  assert.equal(machines.state(dumpedId), 'running')
  assert.equal((await store.sandboxes.checkpoint(checkpointId, other.orgId))?.status, 'ready')
})

test('a delete is final, can be repeated, and ends every operation with sandbox_stopped', async () => {
  const { service, machines, events, orgId } = await makeWorld(store)
  const { sandbox } = await service.create(orgId, {})
  await service.delete(orgId, sandbox.id)
  await service.delete(orgId, sandbox.id)
  assert.equal(machines.machines.size, 0)
  await assert.rejects(service.files.list(orgId, sandbox.id, '/'), throwsCode('sandbox_stopped'))
  await assert.rejects(service.wake(orgId, sandbox.id), throwsCode('sandbox_stopped'))
  await assert.rejects(service.setTimeout(orgId, sandbox.id, 5), throwsCode('sandbox_stopped'))
  const signing = service.files.sign(orgId, sandbox.id, { operation: 'upload', path: '/a' })
  await assert.rejects(signing, throwsCode('sandbox_stopped'))
  await assert.rejects(
    service.checkpoints.create(orgId, sandbox.id, { name: 'x', kind: 'disk_only' }),
    throwsCode('sandbox_stopped'),
  )
  await until(() => events.length >= 2)
  const statuses = events.map((event) => event.type === 'sandbox_changed' && event.status)
  assert.deepEqual(statuses, ['running', 'stopped'])
})

test('an idle sandbox hibernates by its timeout and the next operation wakes it', async () => {
  const { service, machines, orgId } = await makeWorld(store)
  const { sandbox } = await service.create(orgId, { timeoutSeconds: 1 })
  await until(() => machines.state(sandbox.id) === 'hibernated')
  await until(async () => (await service.get(orgId, sandbox.id)).status === 'hibernated')
  await service.files.list(orgId, sandbox.id, '/')
  assert.equal(machines.state(sandbox.id), 'running')
})

test('operations at the same time wake a sandbox once', async () => {
  const { service, machines, orgId } = await makeWorld(store)
  const { sandbox } = await service.create(orgId, {})
  await service.hibernate(orgId, sandbox.id)
  let wakes = 0
  machines.before.wake = async () => {
    wakes += 1
    await sleep(30)
  }
  await Promise.all(Array.from({ length: 8 }, () => service.files.list(orgId, sandbox.id, '/')))
  assert.equal(wakes, 1)
})

test('a wake that takes too long answers unavailable and goes on', async () => {
  const { service, machines, orgId } = await makeWorld(store, { wakeWaitMs: 50 })
  const { sandbox } = await service.create(orgId, {})
  await service.hibernate(orgId, sandbox.id)
  const held = Promise.withResolvers<void>()
  machines.before.wake = () => held.promise
  await assert.rejects(service.files.list(orgId, sandbox.id, '/'), throwsCode('unavailable'))
  held.resolve()
  await until(async () => (await service.get(orgId, sandbox.id)).status === 'running')
})

test('a wake that fails keeps the sandbox hibernated', async () => {
  const { service, machines, orgId } = await makeWorld(store)
  const { sandbox } = await service.create(orgId, {})
  await service.hibernate(orgId, sandbox.id)
  machines.before.wake = () => Promise.reject(new ServiceError('no_capacity', 'no memory left'))
  await assert.rejects(service.wake(orgId, sandbox.id), throwsCode('no_capacity'))
  assert.equal((await service.get(orgId, sandbox.id)).status, 'hibernated')
})

test('a wake that fails fails once for all who wait for it', async () => {
  const { service, machines, orgId } = await makeWorld(store)
  const { sandbox } = await service.create(orgId, {})
  await service.hibernate(orgId, sandbox.id)
  const begun = Promise.withResolvers<void>()
  const held = Promise.withResolvers<void>()
  let wakes = 0
  machines.before.wake = async () => {
    wakes += 1
    begun.resolve()
    await held.promise
    throw new ServiceError('no_capacity', 'no memory left')
  }
  const list = () => assert.rejects(service.files.list(orgId, sandbox.id, '/'), throwsCode('no_capacity'))
  const first = Array.from({ length: 20 }, list)
  await begun.promise
  const then = [...Array.from({ length: 20 }, list), assert.rejects(service.wake(orgId, sandbox.id, 60))]
  await sleep(20)
  held.resolve()
  await Promise.all([...first, ...then])
  assert.equal(wakes, 1)
  machines.before = {}
  assert.equal((await service.wake(orgId, sandbox.id, 60)).timeoutSeconds, 60)
})

test('a sandbox that was stopped by a sleep which failed counts as hibernated, with the reason, and can be woken', async () => {
  const { service, machines, orgId } = await makeWorld(store)
  const { sandbox } = await service.create(orgId, {})
  machines.before.hibernate = async () => {
    machines.machines.get(sandbox.id)!.state = 'hibernated'
    throw new Error('the disk could not be measured')
  }
  await assert.rejects(service.hibernate(orgId, sandbox.id), /could not be measured/)
  const asleep = await service.get(orgId, sandbox.id)
  assert.deepEqual([asleep.status, asleep.reason], ['hibernated', 'runtime_failed'])
  await service.files.list(orgId, sandbox.id, '/')
  const awake = await service.get(orgId, sandbox.id)
  assert.deepEqual([awake.status, awake.reason], ['running', undefined])
})

test('a sandbox that a patch keeps from waking and that ends as it is put back to sleep stays hibernated', async () => {
  const { service, machines, orgId } = await makeWorld(store)
  const source = await service.create(orgId, {})
  const checkpoint = await service.checkpoints.create(orgId, source.sandbox.id, { name: 'x', kind: 'disk_only' })
  const { sandbox } = await service.checkpoints.start(orgId, checkpoint.id, {})
  await service.hibernate(orgId, sandbox.id)
  await service.patches.create(orgId, checkpoint.id, { script: 'exit 3', strategy: 'on_resume' })
  machines.before.hibernate = async () => {
    machines.machines.get(sandbox.id)!.state = 'hibernated'
    throw new Error('the disk could not be measured')
  }
  await assert.rejects(service.wake(orgId, sandbox.id), throwsCode('patch_failed'))
  const asleep = await service.get(orgId, sandbox.id)
  assert.deepEqual([asleep.status, asleep.reason], ['hibernated', 'patch_failed'])
})

test('a held sandbox and one that runs a client process do not hibernate', async () => {
  const { service, machines, orgId } = await makeWorld(store)
  const { sandbox } = await service.create(orgId, { timeoutSeconds: 1 })
  const release = service.previews.hold(sandbox.id)
  await sleep(1300)
  assert.equal(machines.state(sandbox.id), 'running')
  machines.clientProcesses = [
    { id: newId('es-'), pid: 9, argv: ['sleep'], running: true, startedAt: '', attachedClients: 0, pty: false },
  ]
  release()
  await sleep(1300)
  assert.equal(machines.state(sandbox.id), 'running')
  machines.clientProcesses = []
  await until(() => machines.state(sandbox.id) === 'hibernated')
})

test('the clock begins at the end of a client process, whose last second is not known better', async () => {
  const { service, machines, orgId } = await makeWorld(store)
  const endedAt = `${new Date().toISOString().slice(0, 19)}Z`
  const process = {
    pid: 9,
    argv: ['true'],
    running: false,
    exitCode: 0,
    startedAt: endedAt,
    attachedClients: 0,
    pty: false,
  }
  machines.clientProcesses = [{ ...process, id: newId('es-'), endedAt }]
  const slept = Promise.withResolvers<number>()
  machines.before.hibernate = async () => slept.resolve(Date.now())
  await service.create(orgId, { timeoutSeconds: 1 })
  assert.ok((await slept.promise) >= Date.parse(endedAt) + 2000)
})

test('what another organisation tries does not restart the clock', async () => {
  const { service, orgId } = await makeWorld(store)
  const { sandbox } = await service.create(orgId, {})
  const end = service.endAt(sandbox)
  const stranger = newId('org_')
  await sleep(5)
  for (const operation of [
    service.exec.run(stranger, sandbox.id, { cmd: 'true' }),
    service.exec.attach(stranger, sandbox.id, newId('es-')),
    service.files.read(stranger, sandbox.id, '/a'),
    service.files.list(stranger, sandbox.id, '/'),
  ]) {
    await assert.rejects(operation, throwsCode('not_found'))
  }
  assert.deepEqual(service.endAt(sandbox), end)
})

test('records are read and the timeout is set without a wake; what only the sandbox knows wakes it, bad input does not', async () => {
  const { service, machines, orgId } = await makeWorld(store)
  const { sandbox } = await service.create(orgId, {})
  const { id } = sandbox
  await service.hibernate(orgId, id)
  const { exec, files, previews } = service
  await service.get(orgId, id)
  await service.checkpoints.list(orgId, id)
  await previews.put(orgId, id, { port: 3000 })
  await previews.list(orgId, id)
  await service.setTags(orgId, id, { team: 'a' })
  await service.setTimeout(orgId, id, 60)
  await files.sign(orgId, id, { operation: 'upload', path: '/a' })
  for (const input of [
    { cmd: 'ls', cwd: 'relative' },
    { cmd: 'ls', envs: { 'A=B': 'c' } },
    { cmd: 'ls', user: 'a b' },
    { cmd: 'ls', args: ['\0'] },
    { cmd: ' ' },
    { cmd: 'ls', timeoutSeconds: -1 },
  ]) {
    await assert.rejects(exec.run(orgId, id, input), throwsCode('invalid_request'))
    await assert.rejects(exec.runAsync(orgId, id, input), throwsCode('invalid_request'))
    await assert.rejects(exec.start(orgId, id, input), throwsCode('invalid_request'))
  }
  await assert.rejects(exec.startPty(orgId, id, { cwd: 'relative' }), throwsCode('invalid_request'))
  await assert.rejects(exec.kill(orgId, id, newId('ps-')), throwsCode('not_found'))
  await assert.rejects(exec.attach(orgId, id, newId('ps-')), throwsCode('not_found'))
  assert.equal(machines.state(id), 'hibernated')
  await exec.list(orgId, id)
  assert.equal(machines.state(id), 'running')
})

test('exec sessions, terminals and internal processes are known under their own kind alone', async () => {
  const { service, machines, orgId } = await makeWorld(store)
  const { sandbox } = await service.create(orgId, {})
  const ids = { exec: newId('es-'), pty: newId('ps-'), internal: newId('ag-') }
  const process = { pid: 9, argv: ['sh'], running: true, startedAt: '', attachedClients: 0, pty: false }
  machines.clientProcesses = Object.values(ids).map((id) => ({ id, ...process }))
  const kinds = ['exec', 'pty', 'internal'] as const
  const { exec } = service
  for (const kind of kinds) {
    assert.deepEqual(
      (await exec.list(orgId, sandbox.id, kind)).map(({ id }) => id),
      [ids[kind]],
    )
    for (const other of kinds) {
      const attaching = exec.attach(orgId, sandbox.id, ids[other], { kind })
      const killing = exec.kill(orgId, sandbox.id, ids[other], 9, kind)
      // The fake guest can do neither, and says so where it is asked.
      const code = other === kind ? 'not_implemented' : 'not_found'
      await assert.rejects(attaching, throwsCode(code))
      await assert.rejects(killing, throwsCode(code))
    }
  }
  assert.deepEqual(
    (await exec.list(orgId, sandbox.id)).map(({ id }) => id),
    [ids.exec],
  )
  await assert.rejects(exec.result(orgId, sandbox.id, ids.pty), throwsCode('not_found'))
  await assert.rejects(exec.deletePty(orgId, sandbox.id, ids.exec), throwsCode('not_found'))
})

test('clients that take large outputs slowly hold up their own large outputs alone', async () => {
  const { service, machines, orgId } = await makeWorld(store)
  const other = newId('org_')
  await store.organisations.insertOrganisation({ id: other, name: 'other' })
  const mine = (await service.create(orgId, {})).sandbox
  const theirs = (await service.create(other, {})).sandbox
  const never = new Promise<void>(() => undefined)
  const sent = Promise.withResolvers<void>()
  const run = async (org: string, id: string, stdout: string, taken: Promise<void>) => {
    machines.stdout = stdout
    return (await service.exec.run(org, id, { cmd: 'true' }, { sent: taken })).stdout.length
  }
  const large = 'x'.repeat(100_000)
  for (const taken of [sent.promise, never, never, never]) {
    assert.equal(await run(orgId, mine.id, large, taken), large.length)
  }
  let hasCome = false
  const waiting = run(orgId, mine.id, large, never).finally(() => {
    hasCome = true
  })
  assert.equal(await run(other, theirs.id, large, never), large.length)
  // A guest may forget what it has sent, so what waits in line was not.
  assert.equal(machines.outputsSent, 5)
  for (let index = 0; index < 20; index++) assert.equal(await run(orgId, mine.id, 'hi', never), 2)
  assert.equal(hasCome, false)
  machines.stdout = large
  const { outputsSent } = machines
  sent.resolve()
  assert.equal(await waiting, large.length)
  assert.equal(machines.outputsSent, outputsSent + 1)
})

test('a refused idle hibernation leaves the sandbox running with the reason', async () => {
  const { service, machines, orgId } = await makeWorld(store)
  machines.before.hibernate = () => Promise.reject(new Error('an open io_uring'))
  const { sandbox } = await service.create(orgId, { timeoutSeconds: 1 })
  await until(async () => (await service.get(orgId, sandbox.id)).reason !== undefined)
  const still = await service.get(orgId, sandbox.id)
  assert.equal(still.status, 'running')
  assert.match(still.reasonMessage ?? '', /io_uring/)
})

test('a timeout of 0 never ends and endAt says when another does', async () => {
  const { service, orgId } = await makeWorld(store)
  const { sandbox } = await service.create(orgId, { timeoutSeconds: 0 })
  assert.equal(service.endAt(sandbox), undefined)
  await service.setTimeout(orgId, sandbox.id, 2_592_000)
  const end = service.endAt(await service.get(orgId, sandbox.id))
  assert.ok(end && end.getTime() - Date.now() > 2_591_000_000)
})

test('a sandbox that ends by itself is in error with the reason, and all that can be done is to delete it', async () => {
  const { service, machines, orgId } = await makeWorld(store)
  const { sandbox } = await service.create(orgId, {})
  machines.exit({ sandboxId: sandbox.id, reason: 'oom', message: 'out of memory' })
  await until(async () => (await service.get(orgId, sandbox.id)).status === 'error')
  assert.equal((await service.get(orgId, sandbox.id)).reason, 'oom')
  for (const operation of [
    service.files.list(orgId, sandbox.id, '/'),
    service.setTimeout(orgId, sandbox.id, 60),
    service.setTags(orgId, sandbox.id, { team: 'a' }),
    service.scale(orgId, sandbox.id, 2048),
    service.previews.put(orgId, sandbox.id, { port: 3000 }),
    service.previews.rotate(orgId, sandbox.id),
    service.files.sign(orgId, sandbox.id, { operation: 'download', path: '/a' }),
  ]) {
    await assert.rejects(operation, throwsCode('conflict', /out of memory/))
  }
  await service.delete(orgId, sandbox.id)
  assert.equal((await service.get(orgId, sandbox.id)).status, 'stopped')
})

test('a sandbox that ends as it is restarted runs when the restart has ended', async () => {
  const { service, machines, orgId } = await makeWorld(store)
  const { sandbox } = await service.create(orgId, {})
  machines.before.restart = async () => {
    machines.exit({ sandboxId: sandbox.id, reason: 'runtime_failed', message: 'the first process ended' })
  }
  await service.powerCycle(orgId, sandbox.id)
  // Waits until all that was told of it has been written down.
  await service.wake(orgId, sandbox.id)
  assert.equal((await service.get(orgId, sandbox.id)).status, 'running')
})

test('a sandbox that ends as it hibernates is in error, because its memory is lost', async () => {
  const { service, machines, orgId } = await makeWorld(store)
  const { sandbox } = await service.create(orgId, {})
  machines.before.hibernate = async () => {
    machines.exit({ sandboxId: sandbox.id, reason: 'oom', message: 'out of memory' })
  }
  await assert.rejects(service.hibernate(orgId, sandbox.id), throwsCode('unavailable'))
  await until(async () => (await service.get(orgId, sandbox.id)).status === 'error')
  assert.equal((await service.get(orgId, sandbox.id)).reason, 'oom')
})

test('the limit of running sandboxes holds for creations at the same time', async () => {
  const { service, machines, orgId } = await makeWorld(store, { runningSandboxesMax: 3 })
  const outcomes = await Promise.allSettled(Array.from({ length: 6 }, () => service.create(orgId, {})))
  assert.equal(outcomes.filter((outcome) => outcome.status === 'fulfilled').length, 3)
  assert.equal(machines.machines.size, 3)
  const [refused] = outcomes.filter((outcome) => outcome.status === 'rejected')
  assert.ok(refused && throwsCode('rate_limited')(refused.reason))
})

test('the limit of running sandboxes holds for wakes and restarts at the same time, too', async () => {
  const { service, orgId } = await makeWorld(store, { runningSandboxesMax: 6 })
  const created = await Promise.all(Array.from({ length: 6 }, () => service.create(orgId, {})))
  const ids = created.map(({ sandbox }) => sandbox.id)
  for (const id of ids) await service.hibernate(orgId, id)
  for (let index = 0; index < 4; index++) await service.create(orgId, {})
  const outcomes = await Promise.allSettled(
    ids.map((id, index) => (index % 2 === 0 ? service.wake(orgId, id) : service.reboot(orgId, id))),
  )
  const refused = outcomes.filter((outcome) => outcome.status === 'rejected')
  assert.equal(refused.length, 4)
  for (const { reason } of refused) assert.ok(throwsCode('rate_limited')(reason))
  const { items } = await service.list(orgId, { status: 'running' })
  assert.equal(items.length, 6)
  const [first] = items
  await service.delete(orgId, first!.id)
  const left = (await service.list(orgId, { status: 'hibernated' })).items
  await service.wake(orgId, left[0]!.id)
})

test('a checkpoint is processing, then ready, and its name is taken', async () => {
  const { service, machines, orgId } = await makeWorld(store)
  const { sandbox } = await service.create(orgId, { envs: { A: '1' }, memoryMb: 512 })
  const checkpoint = await service.checkpoints.create(orgId, sandbox.id, { name: 'one', kind: 'disk_only' })
  assert.equal(checkpoint.status, 'processing')
  const settled = await service.checkpoints.settled(orgId, checkpoint.id)
  assert.deepEqual([settled.status, settled.sizeBytes], ['ready', 11])
  await assert.rejects(
    service.checkpoints.create(orgId, sandbox.id, { name: 'one', kind: 'disk_only' }),
    throwsCode('conflict'),
  )
  const fork = await service.checkpoints.start(orgId, checkpoint.id, { envs: { B: '2' } })
  assert.deepEqual(fork.sandbox.envs, { A: '1', B: '2' })
  assert.deepEqual([fork.sandbox.memoryMb, fork.sandbox.timeoutSeconds], [512, 300])
  assert.equal(machines.machines.get(fork.sandbox.id)?.spec.from?.checkpointId, checkpoint.id)
  await service.delete(orgId, sandbox.id)
  assert.equal((await service.checkpoints.list(orgId, sandbox.id)).length, 1)
  await service.checkpoints.delete(orgId, sandbox.id, checkpoint.id)
  assert.equal(machines.checkpoints.size, 0)
})

test('a full checkpoint is refused with the reason where memory cannot be kept', async () => {
  const { service, orgId } = await makeWorld(store)
  const { sandbox } = await service.create(orgId, {})
  await assert.rejects(
    service.checkpoints.create(orgId, sandbox.id, { name: 'x' }),
    throwsCode('full_checkpoint_unavailable', /this is a test/),
  )
})

test('a dump that fails is a failed checkpoint with its reason, and nothing starts from it', async () => {
  const { service, machines, orgId } = await makeWorld(store)
  const { sandbox } = await service.create(orgId, {})
  machines.before.checkpoint = () => Promise.reject(new ServiceError('no_capacity', 'the disk is full'))
  const { id } = await service.checkpoints.create(orgId, sandbox.id, { name: 'x', kind: 'disk_only' })
  const settled = await service.checkpoints.settled(orgId, id)
  assert.deepEqual([settled.status, settled.error], ['failed', 'the disk is full'])
  await assert.rejects(service.checkpoints.start(orgId, id, {}), throwsCode('conflict', /disk is full/))
})

test('the limit of checkpoints holds unless the oldest may go', async () => {
  const { service, orgId } = await makeWorld(store, { diskOnlyCheckpointsMax: 2 })
  const { sandbox } = await service.create(orgId, {})
  for (const name of ['a', 'b']) {
    const { id } = await service.checkpoints.create(orgId, sandbox.id, { name, kind: 'disk_only' })
    await service.checkpoints.settled(orgId, id)
  }
  await assert.rejects(
    service.checkpoints.create(orgId, sandbox.id, { name: 'c', kind: 'disk_only' }),
    throwsCode('conflict'),
  )
  const retentionPolicy = { mode: 'delete_oldest', maxCount: 2 } as const
  const third = await service.checkpoints.create(orgId, sandbox.id, { name: 'c', kind: 'disk_only', retentionPolicy })
  await service.checkpoints.settled(orgId, third.id)
  const names = (await service.checkpoints.list(orgId, sandbox.id)).map((checkpoint) => checkpoint.name)
  assert.deepEqual(names, ['b', 'c'])
})

test('patches run in order at a start, and one that fails leaves nothing running', async () => {
  const { service, machines, events, orgId } = await makeWorld(store)
  const { sandbox } = await service.create(orgId, {})
  const checkpoint = await service.checkpoints.create(orgId, sandbox.id, { name: 'x', kind: 'disk_only' })
  const first = await service.patches.create(orgId, checkpoint.id, { script: 'echo one' })
  assert.deepEqual([first.sequence, first.strategy, first.description], [1, 'on_wake', ''])
  await service.patches.create(orgId, checkpoint.id, { script: 'echo two', strategy: 'on_resume' })
  const fork = await service.checkpoints.start(orgId, checkpoint.id, {})
  assert.deepEqual(machines.scripts, [`${fork.sandbox.id}: echo one`, `${fork.sandbox.id}: echo two`])
  machines.scripts.length = 0
  await service.hibernate(orgId, fork.sandbox.id)
  await service.wake(orgId, fork.sandbox.id)
  assert.deepEqual(machines.scripts, [`${fork.sandbox.id}: echo two`])

  const failing = await service.patches.create(orgId, checkpoint.id, { script: 'exit 3' })
  await service.patches.create(orgId, checkpoint.id, { script: 'echo never' })
  await assert.rejects(service.checkpoints.start(orgId, checkpoint.id, {}), (error: unknown) => {
    assert.ok(throwsCode('patch_failed')(error))
    assert.deepEqual((error as ServiceError).details, {
      patchId: failing.id,
      exitCode: 3,
      stderr: 'told on stderr',
    })
    return true
  })
  assert.ok(!machines.scripts.some((script) => script.includes('never')))
  const told = () => events.filter((event) => event.type === 'patch_applied')
  await until(() => told().some((event) => event.patchId === failing.id))
  assert.deepEqual(
    told().map((event) => [event.sequence, event.exitCode]),
    [
      [1, 0],
      [2, 0],
      [2, 0],
      [1, 0],
      [2, 0],
      [3, 3],
    ],
  )
  assert.equal(told().at(-1)?.output, 'told on stderr')
  assert.deepEqual([...machines.machines.keys()].toSorted(), [sandbox.id, fork.sandbox.id].toSorted())
})

test('a patch must have a script of bounded size and a known checkpoint', async () => {
  const { service, orgId } = await makeWorld(store)
  const { sandbox } = await service.create(orgId, {})
  const { id } = await service.checkpoints.create(orgId, sandbox.id, { name: 'x', kind: 'disk_only' })
  await assert.rejects(service.patches.create(orgId, id, { script: ' ' }), throwsCode('invalid_request', /script/))
  const large = 'x'.repeat(256 * 1024 + 1)
  await assert.rejects(service.patches.create(orgId, id, { script: large }), throwsCode('too_large', /script/))
  const unknown = newId('cp-')
  await assert.rejects(service.patches.create(orgId, unknown, { script: 'x' }), throwsCode('not_found'))
})

test('host names resolve to a sandbox and port, and hostile ones to nothing', async () => {
  const { service, orgId } = await makeWorld(store)
  const { sandbox } = await service.create(orgId, {})
  const target = await service.previews.resolve(service.previews.hostname(sandbox.id, 3000))
  assert.deepEqual([target?.sandbox.id, target?.port, target?.tokenHash], [sandbox.id, 3000, undefined])
  for (const label of [
    `${sandbox.id}-p0`,
    `${sandbox.id}-p65536`,
    `${sandbox.id}-p03000`,
    sandbox.id,
    `x.${sandbox.id}-p1`,
  ]) {
    assert.equal(await service.previews.resolve(`${label}.preview.test`), undefined, label)
  }
  assert.equal(await service.previews.resolve('preview.test'), undefined)
  assert.equal(await service.previews.resolve(`${newId('sb-')}-p80.preview.test`), undefined)
})

test('a preview of a port is updated in place, with a domain and a token of its own', async () => {
  const { service, orgId, records } = await makeWorld(store)
  const { sandbox } = await service.create(orgId, {})
  const first = await service.previews.put(orgId, sandbox.id, { port: 3000 })
  assert.deepEqual([first.created, first.preview.sslStatus, first.token], [true, 'disabled', undefined])
  const domain = `App-${sandbox.id.slice(3)}.Example.com`
  const record = service.previews.verification({ orgId, customHostname: domain.toLowerCase() })
  records.texts.set(record?.name ?? '', [record?.value ?? ''])
  const second = await service.previews.put(orgId, sandbox.id, { port: 3000, domain, auth: { scheme: 'bearer' } })
  assert.deepEqual([second.created, second.preview.id], [false, first.preview.id])
  assert.ok((second.token?.length ?? 0) >= 16)
  const target = await service.previews.resolve(domain.toLowerCase())
  assert.deepEqual([target?.port, target?.tokenHash], [3000, second.preview.tokenHash])

  const other = await service.create(orgId, {})
  await assert.rejects(service.previews.put(orgId, other.sandbox.id, { port: 1, domain }), throwsCode('conflict'))
  for (const own of ['preview.test', 'x.preview.test', 'api.test', 'nodots', '-a.example.com', '10.0.0.1']) {
    await assert.rejects(
      service.previews.put(orgId, sandbox.id, { port: 2, domain: own }),
      throwsCode('invalid_request', /domain/),
    )
  }
  for (const port of [0, 65_536, 1.5]) {
    await assert.rejects(service.previews.put(orgId, sandbox.id, { port }), throwsCode('invalid_request', /port/))
  }
})

test('a rotated token guards the ports that have none of their own', async () => {
  const { service, orgId } = await makeWorld(store)
  const { sandbox, previewAuthToken } = await service.create(orgId, { previewAuth: { scheme: 'bearer' } })
  const host = service.previews.hostname(sandbox.id, 80)
  const tokenBefore = (await service.previews.resolve(host))?.tokenHash
  assert.ok(previewAuthToken && tokenBefore)
  await service.previews.rotate(orgId, sandbox.id)
  const tokenAfter = (await service.previews.resolve(host))?.tokenHash
  assert.ok(tokenAfter && tokenAfter !== tokenBefore)
})

test('a signed URL authorises one operation on one path until it expires', async () => {
  const { service, orgId } = await makeWorld(store)
  const { sandbox } = await service.create(orgId, {})
  const signed = await service.files.sign(orgId, sandbox.id, { operation: 'upload', path: '/a b', bytesMax: 5 })
  const query = Object.fromEntries(new URLSearchParams(signed.query))
  assert.deepEqual(await service.files.verify('upload', sandbox.id, query), { orgId, bytesMax: 5 })
  const altered = [
    { ...query, path: '/a' },
    { ...query, expires: String(Number(query['expires']) + 1) },
    { ...query, maxBytes: '6' },
    { ...query, maxBytes: undefined },
    { ...query, signature: query['signature']?.toUpperCase() },
    { ...query, signature: '' },
    { path: '/a b' },
  ]
  for (const wrong of altered) {
    await assert.rejects(service.files.verify('upload', sandbox.id, wrong), throwsCode('signature_invalid'))
  }
  await assert.rejects(service.files.verify('download', sandbox.id, query), throwsCode('signature_invalid'))
  await assert.rejects(service.files.verify('upload', newId('sb-'), query), throwsCode('signature_invalid'))
})

test('a signed URL lives as long as was asked for, to the end of a second', async (t) => {
  const { service, orgId } = await makeWorld(store)
  const { sandbox } = await service.create(orgId, {})
  const second = Math.ceil(Date.now() / 1000) * 1000
  t.mock.timers.enable({ apis: ['Date'], now: second + 900 })
  const short = await service.files.sign(orgId, sandbox.id, { operation: 'download', path: '/a', expiresInSeconds: 1 })
  const query = Object.fromEntries(new URLSearchParams(short.query))
  t.mock.timers.setTime(second + 1999)
  await service.files.verify('download', sandbox.id, query)
  t.mock.timers.setTime(second + 2000)
  await assert.rejects(service.files.verify('download', sandbox.id, query), throwsCode('signature_expired'))
})

test('tags are bounded, and the first cause of refusal is named', async () => {
  const { service, orgId } = await makeWorld(store)
  const { sandbox } = await service.create(orgId, {})
  const tagged = await service.setTags(orgId, sandbox.id, { team: 'a', 'x:y': '1' })
  assert.deepEqual(tagged.tags, { team: 'a', 'x:y': '1' })
  assert.ok(tagged.tagsUpdatedAt)
  assert.deepEqual(await service.tagKeys(orgId), [
    { key: 'team', sandboxCount: 1, valueCount: 1 },
    { key: 'x:y', sandboxCount: 1, valueCount: 1 },
  ])
  const many = Object.fromEntries(Array.from({ length: 51 }, (_, index) => [`k${index}`, '']))
  for (const tags of [many, { 'a b': '' }, { a: 'x'.repeat(257) }]) {
    await assert.rejects(service.setTags(orgId, sandbox.id, tags), throwsCode('invalid_request', /tags/))
  }
})

test('a reboot leaves the sandbox running, and one that fails leaves it hibernated with the reason', async () => {
  const { service, machines, orgId } = await makeWorld(store)
  const { sandbox } = await service.create(orgId, {})
  assert.equal((await service.reboot(orgId, sandbox.id)).status, 'running')
  machines.before.restart = async () => {
    await machines.hibernate(sandbox.id)
    throw new ServiceError('no_capacity', 'the pool is full')
  }
  await assert.rejects(service.powerCycle(orgId, sandbox.id), throwsCode('no_capacity'))
  const asleep = await service.get(orgId, sandbox.id)
  assert.deepEqual([asleep.status, asleep.reasonMessage], ['hibernated', 'the pool is full'])
  await service.files.list(orgId, sandbox.id, '/')
  assert.equal((await service.get(orgId, sandbox.id)).status, 'running')
})

/** What happens when an idle sandbox is rebooted just as it is asked whether anything runs in it. */
async function rebootedWhileIdle(asked: () => Promise<void>) {
  const world = await makeWorld(store)
  const { service, machines, orgId } = world
  const restart = Promise.withResolvers<void>()
  const reboot = Promise.withResolvers<unknown>()
  machines.before.restart = () => restart.promise
  machines.before.hibernate = () => Promise.reject(new Error('it was put to sleep'))
  machines.before.processes = async () => {
    delete machines.before.processes
    reboot.resolve(service.reboot(orgId, id))
    // The clock must not run out once more before the test has ended.
    await service.setTimeout(orgId, id, 3600)
    setImmediate(restart.resolve)
    await asked()
  }
  const { id } = (await service.create(orgId, { timeoutSeconds: 1 })).sandbox
  await reboot.promise
  // Waits for the moves that have been asked for meanwhile.
  await service.wake(orgId, id)
  return { ...world, sandbox: await service.get(orgId, id) }
}

test('a sandbox that is rebooted as its clock runs out is not put to sleep after it', async () => {
  const { sandbox, warnings } = await rebootedWhileIdle(async () => undefined)
  assert.deepEqual([sandbox.status, sandbox.reason, warnings], ['running', undefined, []])
})

test('a guest that cannot be asked because its sandbox is rebooted is no reason on the record', async () => {
  const { sandbox, warnings } = await rebootedWhileIdle(() =>
    Promise.reject(new ServiceError('unavailable', 'the guest does not answer')),
  )
  assert.deepEqual([sandbox.status, sandbox.reason, warnings], ['running', undefined, []])
})

test('the clock stands still during a reboot', async () => {
  const { service, machines, orgId } = await makeWorld(store)
  const { sandbox } = await service.create(orgId, {})
  const restart = Promise.withResolvers<void>()
  const begun = Promise.withResolvers<void>()
  machines.before.restart = () => {
    begun.resolve()
    return restart.promise
  }
  const reboot = service.reboot(orgId, sandbox.id)
  await begun.promise
  const beganMs = Date.now()
  await sleep(5)
  assert.ok(service.endAt(sandbox)!.getTime() > beganMs + 300_000)
  restart.resolve()
  await reboot
})

test('a restore puts a sandbox back in place, and one that fails before the switch changes nothing', async () => {
  const { service, machines, orgId } = await makeWorld(store)
  const { sandbox } = await service.create(orgId, {})
  const { id } = await service.checkpoints.create(orgId, sandbox.id, { name: 'x', kind: 'disk_only' })
  await service.checkpoints.restore(orgId, sandbox.id, id)
  assert.equal(machines.machines.get(sandbox.id)?.spec.from?.checkpointId, id)
  await service.hibernate(orgId, sandbox.id)
  await service.checkpoints.restore(orgId, sandbox.id, id)
  assert.equal((await service.get(orgId, sandbox.id)).status, 'running')
  machines.before.restore = () => Promise.reject(new ServiceError('no_capacity', 'the pool is full'))
  await assert.rejects(service.checkpoints.restore(orgId, sandbox.id, id), throwsCode('no_capacity'))
  assert.equal((await service.get(orgId, sandbox.id)).status, 'running')
  const other = await service.create(orgId, {})
  await assert.rejects(service.checkpoints.restore(orgId, other.sandbox.id, id), throwsCode('not_found'))
})

test('a restore after which the sandbox was started anew on its old disk is a reason on it, until the next success', async () => {
  const { service, machines, orgId } = await makeWorld(store)
  const { sandbox } = await service.create(orgId, {})
  const { id } = await service.checkpoints.create(orgId, sandbox.id, { name: 'x', kind: 'disk_only' })
  const message = 'the memory cannot be restored; the sandbox was started anew'
  machines.before.restore = () =>
    Promise.reject(new ServiceError('full_checkpoint_unavailable', message, { details: { startedAnew: true } }))
  await assert.rejects(service.checkpoints.restore(orgId, sandbox.id, id), throwsCode('full_checkpoint_unavailable'))
  const anew = await service.get(orgId, sandbox.id)
  assert.deepEqual([anew.status, anew.reason, anew.reasonMessage], ['running', 'runtime_failed', message])
  machines.before = {}
  await service.checkpoints.restore(orgId, sandbox.id, id)
  assert.equal((await service.get(orgId, sandbox.id)).reason, undefined)
})

test('a scale changes memory, with CPU in step, at once or at the next wake', async () => {
  const { service, machines, orgId } = await makeWorld(store)
  const { sandbox } = await service.create(orgId, {})
  const scaled = await service.scale(orgId, sandbox.id, 16_384)
  assert.deepEqual([scaled.memoryMb, scaled.cpuCount], [16_384, 4])
  assert.equal(machines.machines.get(sandbox.id)?.spec.memoryMb, 16_384)
  await service.hibernate(orgId, sandbox.id)
  const smaller = await service.scale(orgId, sandbox.id, 2048)
  assert.deepEqual([smaller.status, smaller.memoryMb, smaller.cpuCount], ['hibernated', 2048, 4])
  for (const memoryMb of [0, 1.5, 1e9]) {
    await assert.rejects(service.scale(orgId, sandbox.id, memoryMb), throwsCode('invalid_request', /memoryMB/))
  }
})
