/** Checkpoints that forks are made of: whatever goes wrong, none stays of which no fork has use. */
import assert from 'node:assert/strict'
import { afterEach, beforeEach, test } from 'node:test'
import { ServiceError } from '../errors.ts'
import type { SandboxService } from '../sandbox/index.ts'
import type { RunningSessionService } from './service.ts'
import type { Session } from './session.ts'
import { orgId, simple, World } from './testing/world.ts'

let world: World
let service: RunningSessionService
beforeEach(() => {
  world = new World()
  service = world.serve()
})
afterEach(() => world.close())

async function idle(): Promise<Session> {
  const { session } = await service.create(orgId, simple)
  await world.until(session.id, 'idle')
  return session
}

async function nextServer(): Promise<void> {
  await service.close()
  service = world.serve()
  await service.start()
}

async function noneLeft(): Promise<void> {
  await world.eventually('no checkpoint is left', () => assert.equal(world.sandboxes.checkpoints.size, 0))
}

const storeAway = () => Promise.reject(new Error('the database is away'))
const busy = () => Promise.reject(new ServiceError('unavailable', 'the machine is busy'))

/** One that a server made, and did not live to write down what for. */
async function abandoned({ sandboxId }: Session): Promise<void> {
  const { checkpoints } = world.sandboxes.service()
  await checkpoints.create(orgId, sandboxId, { id: 'cp-lost', name: 'fork session_lost' })
}

test('the next server removes a checkpoint that nobody wrote down, also when the source has ended', async () => {
  const [first, second] = [await idle(), await idle()]
  await abandoned(first)
  await service.delete(orgId, first.id)
  await nextServer()
  await noneLeft()
  await abandoned(second)
  await nextServer()
  await noneLeft()
})

test('a server that runs on removes it too', async () => {
  const source = await idle()
  await abandoned(source)
  const other = world.serve({ timings: { forkSweepMs: 10 } })
  await other.start()
  await noneLeft()
})

test('a fork whose checkpoint cannot be looked at leaves none', async () => {
  const source = await idle()
  world.sandboxes.beforeSettled = storeAway
  await assert.rejects(service.fork(orgId, source.id, 'u1'), /the database is away/)
  world.sandboxes.beforeSettled = async () => {}
  await noneLeft()
  const { session: fork } = await service.fork(orgId, source.id, 'u1')
  await world.until(fork.id, 'idle')
  await noneLeft()
})

test('a fork that fails says why, and what it could not remove goes with the next server', async () => {
  const source = await idle()
  world.sandboxes.beforeSettled = storeAway
  world.sandboxes.beforeCheckpointDelete = busy
  await assert.rejects(service.fork(orgId, source.id, 'u1'), /the database is away/)
  assert.equal(world.sandboxes.checkpoints.size, 1)
  world.sandboxes.beforeSettled = async () => {}
  world.sandboxes.beforeCheckpointDelete = async () => {}
  await nextServer()
  await noneLeft()
})

test('a fork that was deleted while its checkpoint could not be removed has none after the next start', async () => {
  const source = await idle()
  world.sandboxes.beforeCreate = () => Promise.reject(new ServiceError('conflict', 'it does not start'))
  const { session: fork } = await service.fork(orgId, source.id, 'u1')
  await world.until(fork.id, 'failed')
  world.sandboxes.beforeCheckpointDelete = busy
  await service.delete(orgId, fork.id)
  assert.equal(world.sandboxes.checkpoints.size, 1)
  world.sandboxes.beforeCheckpointDelete = async () => {}
  await nextServer()
  await noneLeft()
})

test('a fork that stands and whose checkpoint could not be removed has none after the next start', async () => {
  const source = await idle()
  world.sandboxes.beforeCheckpointDelete = busy
  const { session: fork } = await service.fork(orgId, source.id, 'u1')
  await world.until(fork.id, 'idle')
  assert.equal(world.sandboxes.checkpoints.size, 1)
  world.sandboxes.beforeCheckpointDelete = async () => {}
  await nextServer()
  await noneLeft()
})

test('a checkpoint that a fork is made of, or still needs, stays', async () => {
  const source = await idle()
  await service.close()
  let sweeps = 0
  const { checkpoints } = world.sandboxes
  const sweeping = world.serve({ timings: { forkSweepMs: 1 } }, (port) => {
    if ('checkpoints' in port) {
      const kept = (port as unknown as SandboxService).checkpoints
      const { named } = kept
      kept.named = async (prefix) => {
        sweeps += 1
        return await named(prefix)
      }
    }
    return port
  })
  service = sweeping
  await service.start()
  const swept = async () => {
    const until = sweeps + 3
    await world.eventually('it was looked at', () => assert.ok(sweeps >= until))
    assert.equal(checkpoints.size, 1)
  }
  const go = Promise.withResolvers<void>()
  world.sandboxes.beforeSettled = () => go.promise
  world.sandboxes.beforeCreate = () => Promise.reject(new ServiceError('conflict', 'it does not start'))
  const forking = service.fork(orgId, source.id, 'u1')
  await world.eventually('the checkpoint', () => assert.equal(checkpoints.size, 1))
  await swept()
  go.resolve()
  const { session: fork } = await forking
  await world.until(fork.id, 'failed')
  await swept()
  world.sandboxes.beforeCreate = async () => {}
  await service.sendMessage(orgId, fork.id, { message: 'again', userId: 'u1' })
  await world.until(fork.id, 'idle')
  await noneLeft()
})
