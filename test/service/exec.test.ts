import assert from 'node:assert/strict'
import { test } from 'node:test'
import { newId } from '../../src/lib/id.ts'
import type { ProcessKind } from '../../src/sandbox/process.ts'
import { guestProcess, throwsCode, worlds } from './world.ts'

const { makeWorld, makeSandbox } = worlds()

test('process: an exec session, a terminal and an internal process is found under its own kind alone', async () => {
  const { service, machines, orgId, sandbox } = await makeSandbox()
  const ids = { exec: newId('es-'), pty: newId('ps-'), internal: newId('ag-') }
  machines.clientProcesses = Object.values(ids).map((id) => guestProcess(id))
  const kinds = ['exec', 'pty', 'internal'] as const
  const { exec } = service
  const listed = async (kind?: ProcessKind) => (await exec.list(orgId, sandbox.id, kind)).map(({ id }) => id)
  for (const kind of kinds) {
    assert.deepEqual(await listed(kind), [ids[kind]])
    for (const other of kinds) {
      const attaching = exec.attach(orgId, sandbox.id, ids[other], { kind })
      const killing = exec.kill(orgId, sandbox.id, ids[other], 9, kind)
      // The fake guest can do neither, and says so where it is asked.
      const code = other === kind ? 'not_implemented' : 'not_found'
      await assert.rejects(attaching, throwsCode(code))
      await assert.rejects(killing, throwsCode(code))
    }
  }
  assert.deepEqual(await listed(), [ids.exec])
  await assert.rejects(exec.result(orgId, sandbox.id, ids.pty), throwsCode('not_found'))
  await assert.rejects(exec.deletePty(orgId, sandbox.id, ids.exec), throwsCode('not_found'))
})

test('exec output: clients that read slowly delay only large outputs of their own organisation', async () => {
  const { service, machines, orgId, store } = await makeWorld()
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

test('signed URL: it expires after the requested time, rounded up to a second', async (t) => {
  const { service, orgId, sandbox } = await makeSandbox()
  const second = Math.ceil(Date.now() / 1000) * 1000
  t.mock.timers.enable({ apis: ['Date'], now: second + 900 })
  const short = await service.files.sign(orgId, sandbox.id, { operation: 'download', path: '/a', expiresInSeconds: 1 })
  const query = Object.fromEntries(new URLSearchParams(short.query))
  t.mock.timers.setTime(second + 1999)
  await service.files.verify('download', sandbox.id, query)
  t.mock.timers.setTime(second + 2000)
  await assert.rejects(service.files.verify('download', sandbox.id, query), throwsCode('signature_expired'))
})
