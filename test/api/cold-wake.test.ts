/** A sandbox whose memory does not come back, as the API, the SDK and the command line tell it. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { beforeEach, test } from 'node:test'
import { Atoll, MemoryNotRestorableError, Sandbox } from '../../sdk/src/index.ts'
import { ServiceError } from '../../src/errors.ts'
import { useWorld } from '../support/world.ts'

const program = join(import.meta.dirname, '../../bin/atoll')
const conflict = 6
let id: string

const world = useWorld({}, async () => {
  const { machines } = world
  const refuse = () => Promise.reject(new ServiceError('memory_not_restorable', 'the memory cannot be restored: odd'))
  const start = machines.wake.bind(machines)
  machines.wake = refuse
  machines.restart = start
  machines.hasMemory = (sandboxId) => !machines.machines.has(sandboxId)
  machines.checkpoint = async (_sandboxId, checkpointId) => {
    machines.checkpoints.add(checkpointId)
    return { sizeBytes: 4096 }
  }
})

beforeEach(async () => {
  id = await world.sandbox()
  await world.sandboxes.hibernate(world.orgId, id)
})

/** Names and kinds of what cold wakes have kept. */
async function kept(): Promise<string[]> {
  const { body } = await world.api.get(`/api/sandboxes/${id}/checkpoints`)
  const of = (info: { name: string; kind: string; status: string }) =>
    `${info.name.replace(/-\d.*$/, '')} ${info.kind} ${info.status}`
  return (body as Parameters<typeof of>[0][]).map(of)
}

const one = ['before-cold-wake full ready']

test('api: memory that does not come back is a conflict without Retry-After, and the record tells it', async () => {
  const { api } = world
  const path = `/api/sandboxes/${id}`
  const calls = [`${path}/wake`, `${path}/wake`, `${path}/exec/run`]
  for (const call of calls) {
    const refused = await api.post(call, call.endsWith('run') ? { cmd: 'true' } : {})
    assert.deepEqual([refused.status, refused.body.code], [409, 'memory_not_restorable'])
    assert.match(refused.body.error, /odd; wake sandbox .* "memory": false/)
    assert.equal(refused.headers['retry-after'], undefined)
  }
  const { body } = await api.get(path)
  assert.deepEqual([body.status, body.reason], ['hibernated', 'memory_not_restorable'])
  assert.equal((await api.post(`${path}/wake`, { memory: 'no' })).status, 400)
  const woken = await api.post(`${path}/wake`, { memory: false, timeout: 90 })
  assert.deepEqual([woken.status, woken.body.status], [200, 'running'])
  assert.deepEqual(await kept(), one)
  assert.equal((await api.get(path)).body.reason, undefined)
})

test('sdk: memory that does not come back is an error of its own, and a cold wake keeps it', async () => {
  const client = new Atoll({ url: world.origin, apiKey: world.api.key })
  const sandbox = await Sandbox.connect(id, { client })
  const refusals = [() => sandbox.wake(), () => sandbox.run('true'), () => sandbox.wake({ memory: true })]
  for (const call of refusals) await assert.rejects(call(), MemoryNotRestorableError)
  assert.equal((await sandbox.wake({ memory: false })).status, 'running')
  assert.deepEqual(await kept(), one)
})

test('atoll wake: --cold starts a sandbox from its disk', async () => {
  const refused = await atoll('wake', id)
  assert.equal(refused.status, conflict)
  assert.match(refused.stderr, /odd; wake sandbox/)
  const cold = await atoll('wake', id, '--cold')
  assert.deepEqual(cold, { status: 0, stderr: '' })
  assert.deepEqual(await kept(), one)
})

async function atoll(...argv: string[]): Promise<{ status: number | null; stderr: string }> {
  const env = { PATH: process.env['PATH'], HOME: '/nonexistent', ATOLL_URL: world.origin, ATOLL_API_KEY: world.api.key }
  const child = spawn(program, argv, { stdio: ['ignore', 'ignore', 'pipe'], env })
  const closed = once(child, 'close')
  const stderr = await text(child.stderr)
  await closed
  return { status: child.exitCode, stderr }
}
