/** Changes after memory or disk was refused or gone, each ended at every step; see `agreement-world.ts`. */
import assert from 'node:assert/strict'
import { readmitCheckpoint, readmitSandbox } from '../../src/sandbox/index.ts'
import { type Host, serve, type Server } from '../support/server-lives.ts'
import { agreementTests, asleep, type Change, sandbox, useStore } from './agreement-world.ts'
import { throwsCode } from './world.ts'

useStore()

async function refused(server: Server): Promise<string> {
  const { service, host } = server
  const id = await asleep(server)
  host.machines.refused.add(host.machines.contents.get(id)?.memory ?? '')
  await assert.rejects(service.wake(host.orgId, id), throwsCode('memory_not_restorable'))
  return id
}

async function withCheckpoint(server: Server): Promise<string> {
  const { service, host } = server
  const id = await sandbox(server)
  const { id: made } = await service.checkpoints.create(host.orgId, id, { name: 'a', kind: 'disk_only' })
  await service.checkpoints.settled(host.orgId, made)
  await service.hibernate(host.orgId, id)
  return id
}

async function checkpointOf({ machines }: Host): Promise<string> {
  const [id = ''] = machines.checkpoints
  return id
}

/** Records say that both are lost by the time that they can be taken back. */
async function lose(host: Host, id: string): Promise<void> {
  const { machines, orgId } = host
  const checkpointId = await checkpointOf(host)
  machines.moveToQuarantine({ kind: 'sandbox', id })
  machines.moveToQuarantine({ kind: 'checkpoint', id: checkpointId })
  const { service, close } = await serve(host)
  assert.equal((await service.get(orgId, id)).status, 'error')
  assert.equal((await service.checkpoints.usable(orgId, checkpointId)).status, 'failed')
  await close()
  machines.mendQuarantined()
}

/** Another database knows neither. */
async function forget(host: Host, id: string): Promise<void> {
  const { machines, store } = host
  const checkpointId = await checkpointOf(host)
  machines.moveToQuarantine({ kind: 'sandbox', id })
  machines.moveToQuarantine({ kind: 'checkpoint', id: checkpointId })
  await store.sandboxes.updateSandbox(id, { status: 'stopped', stoppedAt: new Date(0) })
  await store.sandboxes.purgeSandboxes([id])
  await store.sandboxes.deleteCheckpoint(checkpointId)
  await store.sandboxes.forgetCheckpoints([checkpointId])
  machines.mendQuarantined()
}

/** What `npm run quarantine -- restore` does with each. */
async function takeBack({ host, life }: Server, id: string): Promise<void> {
  const store = life.wrap(host.store.sandboxes, 'sandboxes')
  const quarantine = life.wrap({ restore: async (item: string) => host.machines.takeBack(item) }, 'quarantine')
  const [checkpointId = ''] = host.machines.inQuarantine('checkpoint')
  await readmitSandbox(store, host.orgId, id)
  await quarantine.restore(id)
  if (checkpointId === '') return
  await readmitCheckpoint(store, host.orgId, { id: checkpointId, kind: 'disk_only', sizeBytes: 11, sandboxId: id })
  await quarantine.restore(checkpointId)
}

async function areBack({ service, host }: Server, id: string): Promise<void> {
  assert.equal((await service.get(host.orgId, id)).status, 'hibernated')
  const all = await service.checkpoints.list(host.orgId, id)
  assert.deepEqual(
    all.map(({ status, error }) => [status, error]),
    [['ready', undefined]],
  )
}

const changes: Record<string, Change> = {
  'cold wake': {
    steps: [
      'sandboxes.insertCheckpoint 1',
      'driver.checkpoint 1',
      'sandboxes.updateCheckpoint 1',
      'driver.restart 1',
      'machine.restart 1',
      'sandboxes.updateSandbox 1',
    ],
    prepare: refused,
    change: ({ service, host }, id) => service.wake(host.orgId, id, { memory: false }),
    check: async ({ service, host: { orgId, machines } }, id) => {
      const { status, reason } = await service.get(orgId, id)
      assert.deepEqual([status, reason], ['running', undefined])
      const all = await service.checkpoints.list(orgId, id)
      for (const one of all) {
        assert.match(one.name, /^before-cold-wake-/)
        assert.deepEqual([one.status, one.kind, one.error], ['ready', 'full', undefined])
      }
      const kept = all.map((one) => machines.contents.get(one.id)?.memory)
      assert.equal(kept.filter((memory) => machines.refused.has(memory ?? '')).length, 1)
      assert.equal(new Set(kept).size, kept.length, 'each memory is kept once')
    },
  },
  'return from quarantine in a start': {
    steps: ['driver.open 1', 'machine.takeBack 1', 'sandboxes.updateCheckpoint 1', 'sandboxes.updateSandbox 1'],
    isInStart: true,
    prepare: withCheckpoint,
    meanwhile: lose,
    change: async () => undefined,
    check: areBack,
  },
  'return from quarantine by hand': {
    steps: [
      'sandboxes.insertSandbox 1',
      'quarantine.restore 1',
      'sandboxes.insertCheckpoint 1',
      'quarantine.restore 2',
    ],
    prepare: withCheckpoint,
    meanwhile: forget,
    change: takeBack,
    check: areBack,
  },
}

agreementTests(changes)
