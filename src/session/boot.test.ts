import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate as nextRound } from 'node:timers/promises'
import { ensureSandbox } from './boot.ts'
import type { Session } from './session.ts'
import { orgId, refused, useWorld } from './testing/world.ts'

const world = useWorld()
const session = { orgId, sandboxId: 'sb-1', agentConfig: { envs: {} } } as Session

/** The boot of a session whose sandbox an earlier attempt creates, and how often it has looked. */
async function bootBehindAnother(signal = new AbortController().signal) {
  const sandboxes = world.sandboxes.service()
  await sandboxes.create(orgId, { id: session.sandboxId })
  world.sandboxes.set(session.sandboxId, 'creating')
  await nextRound()
  let looks = 0
  const counting = { ...sandboxes, get: (org: string, id: string) => (looks++, sandboxes.get(org, id)) }
  const boot = ensureSandbox({ sandboxes: counting, bus: world.bus }, session, signal)
  boot.catch(() => {})
  for (let round = 0; round < 10; round++) await nextRound()
  assert.equal(looks, 1)
  return { boot, looks: () => looks }
}

test('boot: the end of an earlier boot is awaited by its event', async () => {
  const { boot, looks } = await bootBehindAnother()
  world.sandboxes.set(session.sandboxId, 'running')
  await boot
  assert.equal(looks(), 2)
  assert.equal(world.sandboxes.created.length, 1)
})

test('boot: the failure of an earlier boot is followed by another one', async () => {
  const { boot } = await bootBehindAnother()
  world.sandboxes.set(session.sandboxId, 'error', 'runtime_failed')
  await boot
  assert.equal(world.sandboxes.created.length, 2)
})

test('boot: a sandbox that was deleted meanwhile is not created again', async () => {
  const { boot } = await bootBehindAnother()
  world.sandboxes.set(session.sandboxId, 'stopped')
  await assert.rejects(boot, refused('sandbox_stopped'))
})

test('boot: the wait for an earlier boot ends with the session', async () => {
  const ended = new AbortController()
  const { boot } = await bootBehindAnother(ended.signal)
  ended.abort(new Error('the session has ended'))
  await assert.rejects(boot, /the session has ended/)
})
