/** One organisation takes all that it gets, on every axis at once; another works on. How long its calls take is measured by the bench `tenants`. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Cgroups } from '../../src/runtime/cgroups/index.ts'
import { HostNames } from '../../src/runtime/host-names.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { axes, Greed } from './greed.ts'
import { askPreview } from './preview.ts'
import { AtollServer } from './server.ts'
import { operatorKey, Tenant } from './tenant.ts'

const server = await AtollServer.startForFile({
  // Its starts wait for each other on a small machine, and none for so long that it is an error.
  env: { ATOLL_OPERATOR_KEY: operatorKey, ATOLL_LIMITS: JSON.stringify({ sandbox: { startWaitMs: 600_000 } }) },
})
const callsOfEach = 20

test('tenants: beside an organisation that is greedy on every axis another is refused nothing, and loses nothing', async () => {
  const much = { requestsPerSecond: 200 }
  await using greedy = await Tenant.make(server, 'greedy', { ...much, eventStreamsMax: 100 })
  await using modest = await Tenant.make(server, 'modest')
  const sandboxId = await modest.sandbox()
  const host = await modest.serve(sandboxId)
  const greed = await Greed.begin(greedy, axes)

  const path = `/api/sandboxes/${sandboxId}`
  for (let count = 0; count < callsOfEach; count += 1) {
    // On a busy machine its client asks for no more than it may have; then it may have less.
    if (count === callsOfEach / 2) await greedy.limit({ requestsPerSecond: 5 })
    const { status } = (await modest.json('GET', path)) as { status: string }
    assert.equal(status, 'running')
    assert.equal(await modest.run(sandboxId, `echo ${count}`), `${count}\n`)
    assert.equal((await askPreview(server, host)).body, 'page')
    await modest.json('PUT', `${path}/tags`, { count: String(count) })
    await modest.delete(await modest.sandbox())
  }
  const steps = [{ type: 'run', args: { commands: ['echo built'] } }]
  await modest.json('POST', '/api/snapshots', { name: 'tools', image: { steps } })
  const log = (await modest.json('GET', '/api/events?follow=false&limit=1000')) as { events: { type: string }[] }
  const created = log.events.filter(({ type }) => type === 'sandbox.created')
  assert.ok(created.length > callsOfEach, `${created.length} creations are in its log`)

  await greedy.limit(much)
  const answers = await greed.end()
  for (const axis of axes) {
    assert.ok((answers[axis]?.served ?? 0) > 0, `${axis}: ${JSON.stringify(answers)}`)
    assert.equal(answers[axis]?.failed, 0, `${axis}: ${JSON.stringify(answers)}`)
  }
  for (const axis of ['requests', 'exec', 'streams', 'log'] as const) {
    assert.ok((answers[axis]?.refused ?? 0) > 0, `${axis} is refused: ${JSON.stringify(answers)}`)
  }
})

test('tenants: busy sandboxes divide the weight of their organisation, also after a restart of the server', async () => {
  await using many = await Tenant.make(server, 'many')
  await using single = await Tenant.make(server, 'single', { weight: 200 })
  const [first, second] = [await many.sandbox(), await many.sandbox()]
  const only = await single.sandbox()
  const burn = { cmd: 'sh', args: ['-c', 'while :; do :; done'] }
  for (const id of [first, second]) await many.json('POST', `/api/sandboxes/${id}/exec`, burn)
  await single.json('POST', `/api/sandboxes/${only}/exec`, burn)
  const names = new HostNames(server.dataDir)
  const cgroups = await Cgroups.find()
  const weights = () => [first, second, only].map((id) => cgroups.weight(names.cgroup(id)))
  const divided = () => JSON.stringify(weights()) === '[500,500,2000]'
  await eventually(async () => divided())
  cgroups.setWeight(names.cgroup(first), 7)
  await server.kill()
  await server.restart()
  await eventually(async () => divided())
})
