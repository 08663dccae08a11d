/** An organisation of a real server that is suspended and deleted, in the middle of its work and of crashes. */
import assert from 'node:assert/strict'
import { randomInt } from 'node:crypto'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { Host } from './host.ts'
import { AtollServer } from './server.ts'

const operatorKey = 'atoll_op_of-the-tests-000000'
const server = await AtollServer.startForFile({ env: { ATOLL_OPERATOR_KEY: operatorKey } })

// oxlint-disable-next-line typescript/no-explicit-any
type Answer = { status: number; body: any }

async function call(key: string, method: string, path: string, body?: object): Promise<Answer> {
  const answer = await fetch(server.url + path, {
    method,
    headers: { 'x-api-key': key, 'content-type': 'application/json' },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  })
  const text = await answer.text()
  return { status: answer.status, body: text === '' ? undefined : JSON.parse(text) }
}

async function tenant(): Promise<{ id: string; key: string }> {
  const { body: made } = await call(operatorKey, 'POST', '/api/orgs', { name: 'tenant' })
  const { body: key } = await call(operatorKey, 'POST', `/api/orgs/${made.id}/keys`, {})
  return { id: made.id as string, key: key.key as string }
}

async function sandboxOf(key: string, body: object = {}): Promise<string> {
  const { status, body: made } = await call(key, 'POST', '/api/sandboxes', { timeout: 0, ...body })
  assert.equal(status, 201, JSON.stringify(made))
  return made.sandboxID as string
}

async function shell(key: string, id: string, cmd: string): Promise<string> {
  const { body } = await call(key, 'POST', `/api/sandboxes/${id}/exec/run`, { cmd: 'sh', args: ['-c', cmd] })
  return String(body.stdout).trim()
}

test('organisation: a suspended one sleeps in the middle of a turn, over a crash too, and goes on where it was', async () => {
  const host = await Host.of(server)
  const { id, key } = await tenant()
  const counter = await sandboxOf(key)
  const loop =
    'n=0; while true; do n=$((n+1)); echo $n > /tmp/count.new; mv /tmp/count.new /tmp/count; sleep 0.05; done'
  await call(key, 'POST', `/api/sandboxes/${counter}/exec`, { cmd: 'sh', args: ['-c', loop] })
  const { body: session } = await call(key, 'POST', '/v1/sessions', {
    // Long enough to be seen at work, and to be suspended then.
    prompt: 'run: sleep 15; echo slept',
    user_id: 'ada',
  })
  await eventually(async () => (await call(key, 'GET', `/v1/sessions/${session.id}`)).body.activity === 'working')
  const counted = Number(await shell(key, counter, 'cat /tmp/count'))

  await call(operatorKey, 'POST', `/api/orgs/${id}/suspend`, { reason: 'a pause' })
  assert.equal((await call(key, 'GET', '/api/sandboxes')).body.code, 'organisation_suspended')
  await eventually(async () => (await host.sandboxes()).length === 0, { what: 'all sleep' })
  await server.kill()
  await server.restart()
  // Another organisation works meanwhile.
  const other = await tenant()
  await call(other.key, 'DELETE', `/api/sandboxes/${await sandboxOf(other.key)}`)
  assert.deepEqual(await host.sandboxes(), [], 'nothing wakes by itself')

  await call(operatorKey, 'POST', `/api/orgs/${id}/resume`)
  const idle = async () => {
    const { body } = await call(key, 'GET', `/v1/sessions/${session.id}`)
    assert.notEqual(body.activity, 'failed', JSON.stringify(body.events))
    return body.activity === 'idle' && body.messages.some(({ role }: { role: string }) => role === 'assistant')
  }
  await eventually(idle, { what: 'the turn ends' })
  assert.ok(Number(await shell(key, counter, 'cat /tmp/count')) > counted, 'the same process counts on')
  await call(operatorKey, 'DELETE', `/api/orgs/${id}`)
  await eventually(async () => (await call(operatorKey, 'GET', `/api/orgs/${id}`)).status === 404)
})

test('organisation: a deletion goes on after a crash at any moment, and leaves nothing on the host', async () => {
  const host = await Host.of(server)
  for (let round = 0; round < 3; round += 1) {
    const { id, key } = await tenant()
    await call(key, 'POST', '/api/volumes', { name: 'data', sizeMB: 64 })
    await call(key, 'POST', '/api/volumes/data/snapshots', { name: 'one' })
    const first = await sandboxOf(key, { volumes: [{ name: 'data', path: '/data' }] })
    const second = await sandboxOf(key)
    await call(key, 'POST', `/api/sandboxes/${second}/checkpoints`, { name: 'a', kind: 'disk_only' })
    const calls = [
      call(key, 'POST', `/api/sandboxes/${second}/hibernate`),
      call(key, 'POST', '/api/sandboxes', {}),
      call(key, 'POST', '/api/snapshots', {
        name: 'tools',
        image: { steps: [{ type: 'run', args: { commands: ['sleep 30'] } }] },
      }),
      call(key, 'POST', '/v1/sessions', { prompt: 'A page', user_id: 'ada' }),
    ].map((one) => one.catch(() => undefined))
    await sleep(randomInt(400))
    assert.equal((await call(operatorKey, 'DELETE', `/api/orgs/${id}`)).status, 202)
    await sleep(randomInt(600))
    await server.kill()
    await Promise.all(calls)
    await server.restart()
    await eventually(async () => (await call(operatorKey, 'GET', `/api/orgs/${id}`)).status === 404, {
      what: 'it is gone',
    })
    assert.equal((await call(key, 'GET', '/api/whoami')).status, 401)
    assert.deepEqual(await host.sandboxes(), [])
    const names = await readdir(server.dataDir, { recursive: true }).catch(() => [])
    assert.deepEqual(
      names.filter((name) => [first, second, id].some((gone) => name.includes(gone)) && !name.startsWith(join('db'))),
      [],
    )
  }
})
