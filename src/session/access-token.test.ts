import assert from 'node:assert/strict'
import { afterEach, beforeEach, test } from 'node:test'
import { isServiceError, type ErrorCode } from '../errors.ts'
import { orgId, simple, World } from './testing/world.ts'

let world: World
beforeEach(() => {
  world = new World()
})
afterEach(() => world.close())

const refused = (code: ErrorCode) => (error: unknown) => isServiceError(error, code)

test('a token outlives the server that made it, opens its own session alone, and ends with it but for the stream', async () => {
  const first = world.serve()
  const { session } = await first.create(orgId, simple)
  const { session: other } = await first.create(orgId, simple)
  await world.until(session.id, 'idle')
  const { token: read } = await first.createToken(orgId, session.id, { userId: 'u1', scope: 'read' })
  const { token: steer, expiresAt } = await first.createToken(orgId, session.id, { userId: 'u1', scope: 'steer' })
  await assert.rejects(first.createToken(orgId, session.id, { userId: 'u2', scope: 'read' }), refused('forbidden'))
  await first.close()
  const second = world.serve()
  await second.start()
  assert.deepEqual(await second.access(steer, session.id, 'steer'), { orgId, expiresAt })
  await second.access(read, session.id, 'read')
  await assert.rejects(second.access(read, session.id, 'steer'), refused('forbidden'))
  await assert.rejects(second.access(read, other.id, 'read'), refused('not_found'))
  for (const forged of [
    '',
    '.',
    'st.read',
    `${read}A`,
    read.replace('.read.', '.steer.'),
    read.replace(session.id, other.id),
  ]) {
    for (const id of [session.id, other.id]) {
      await assert.rejects(second.access(forged, id, 'read'), refused('unauthorized'))
    }
  }
  await second.delete(orgId, session.id)
  await second.access(read, session.id, 'stream')
  for (const use of ['read', 'steer'] as const) {
    await assert.rejects(second.access(steer, session.id, use), refused('unauthorized'))
  }
  await assert.rejects(second.createToken(orgId, session.id, { userId: 'u1', scope: 'read' }), refused('conflict'))
})
