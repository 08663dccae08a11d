/** The database does not answer while a machine changes: its record follows when it does again. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ServiceError } from '../../src/errors.ts'
import type { SandboxStore } from '../../src/sandbox/ports/sandbox-store.ts'
import type { Store } from '../../src/store/index.ts'
import { makeWorld, throwsCode, worlds } from './world.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

const { sharedStore } = worlds()

/** A sandbox over a database that does not answer while `outage.isNow`. */
async function makeSandbox() {
  const outage = { isNow: false, refused: 0 }
  const sandboxes = new Proxy(sharedStore().sandboxes, {
    get(target, name: keyof SandboxStore) {
      const call = target[name] as (...args: unknown[]) => Promise<unknown>
      return async (...args: unknown[]) => {
        if (!outage.isNow) return await call(...args)
        outage.refused += 1
        throw new ServiceError('unavailable', 'the database does not answer')
      }
    },
  })
  const store = Object.create(sharedStore(), { sandboxes: { value: sandboxes } }) as Store
  const world = await makeWorld(store)
  const { sandbox } = await world.service.create(world.orgId, {})
  return { ...world, outage, sandbox, record: () => world.service.get(world.orgId, sandbox.id) }
}

test('outage: a sandbox that has hibernated meanwhile can be woken when the database is back', async () => {
  const { service, machines, orgId, sandbox, outage, record } = await makeSandbox()
  machines.before.hibernate = async () => void (outage.isNow = true)
  await assert.rejects(service.hibernate(orgId, sandbox.id), throwsCode('unavailable'))
  assert.equal(machines.state(sandbox.id), 'hibernated')
  outage.isNow = false
  await eventually(async () => (await record()).status === 'hibernated')
  await service.files.list(orgId, sandbox.id, '/')
  assert.deepEqual([machines.state(sandbox.id), (await record()).status], ['running', 'running'])
})

test('outage: a sandbox that has ended meanwhile is in error when the database is back', async () => {
  const { machines, sandbox, outage, record } = await makeSandbox()
  outage.isNow = true
  machines.exit({ sandboxId: sandbox.id, reason: 'oom', message: 'it took too much' })
  await eventually(() => outage.refused > 0)
  outage.isNow = false
  await eventually(async () => (await record()).status === 'error')
  const { reason, reasonMessage } = await record()
  assert.deepEqual([reason, reasonMessage], ['oom', 'it took too much'])
})

test('outage: the end of the server ends the wait for the database', async () => {
  const { service, machines, orgId, sandbox, outage, errors } = await makeSandbox()
  machines.before.hibernate = async () => void (outage.isNow = true)
  await assert.rejects(service.hibernate(orgId, sandbox.id), throwsCode('unavailable'))
  await service.close()
  assert.deepEqual(errors, [])
})
