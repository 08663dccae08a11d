import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ServiceError } from '../../errors.ts'
import { refuses } from '../../lib/testing/refuses.ts'
import { withIds } from './names.ts'
import type { Call } from './route.ts'

/** A call of an organisation that has the sandbox `web` with the checkpoint `v1`, and the session `chat`. Notes what is looked up. */
function callOf(given: Partial<Pick<Call, 'params' | 'query' | 'body' | 'orgId' | 'creation'>>) {
  const lookups: string[] = []
  const find = (key: string, id: string | undefined) => {
    lookups.push(key)
    if (id === undefined) throw new ServiceError('not_found', key)
    return id
  }
  const deps = {
    sandboxes: {
      idNamed: async (_org: string, name: string) => find(name, name === 'web' ? 'sb-web' : undefined),
      checkpoints: {
        idNamed: async (_org: string, sandboxId: string, name: string) =>
          find(`${sandboxId}/${name}`, sandboxId === 'sb-web' && name === 'v1' ? 'cp-v1' : undefined),
      },
    },
    sessions: {
      idNamed: async (_org: string, name: string) => find(name, name === 'chat' ? 'session_chat' : undefined),
    },
  }
  const call = { orgId: 'org_1', params: {}, query: undefined, body: undefined, ...given, deps } as unknown as Call
  return { call, lookups }
}

test('names: ids cost no lookup', async () => {
  const given = {
    params: { id: 'sb-aaaaaaaaaaaaaaaa', checkpointId: 'cp-aaaaaaaaaaaaaaaa', sessionId: 'session_aaaaaaaaaaaaaaaa' },
    query: { sandbox: 'sb-bbbbbbbbbbbbbbbb', session: 'session_bbbbbbbbbbbbbbbb', status: 'running' },
    body: { checkpoint_id: 'cp-bbbbbbbbbbbbbbbb', name: 'web' },
  }
  const { call, lookups } = callOf(given)
  const { params, query, body } = await withIds(call)
  assert.deepEqual({ params, query, body }, given)
  assert.deepEqual(lookups, [])
})

test('names: one stands for an id in paths, queries and bodies', async () => {
  const { params, query, body } = await withIds(
    callOf({
      params: { id: 'web', checkpointId: 'v1', execId: 'web' },
      query: { sandbox: 'web', session: 'chat', name: 'web' },
      body: { checkpoint_id: 'web/v1', name: 'web' },
    }).call,
  )
  assert.deepEqual(params, { id: 'sb-web', checkpointId: 'cp-v1', execId: 'web' })
  assert.deepEqual(query, { sandbox: 'sb-web', session: 'session_chat', name: 'web' })
  assert.deepEqual(body, { checkpoint_id: 'cp-v1', name: 'web' })
})

test('names: a checkpoint is SANDBOX/NAME, by name or id of the sandbox; alone it is one of the sandbox in the path', async () => {
  const id = async (checkpointId: string, inSandbox?: string) => {
    const params = { ...(inSandbox === undefined ? {} : { id: inSandbox }), checkpointId }
    return (await withIds(callOf({ params }).call)).params['checkpointId']
  }
  assert.deepEqual([await id('web/v1'), await id('sb-web/v1'), await id('v1', 'web')], ['cp-v1', 'cp-v1', 'cp-v1'])
  for (const unknown of ['v1', 'web/v2', 'nope/v1', 'sb-nope/v1', 'web/V1', 'web/', '/v1', 'web/v1/v1']) {
    await refuses(id(unknown), 'not_found')
  }
})

test('names: a word of a route and what is no name reach the handler as they are', async () => {
  for (const id of ['from-checkpoint', 'Web', 'a.b', 'sb-x', '-']) {
    const { call, lookups } = callOf({ params: { id } })
    assert.deepEqual([(await withIds(call)).params['id'], lookups], [id, []])
  }
})

test('names: without a key nothing is looked up, and a repeat that has made something needs no name', async () => {
  const signed = callOf({ orgId: '', params: { id: 'web' } })
  assert.equal((await withIds(signed.call)).params['id'], 'web')
  assert.deepEqual(signed.lookups, [])
  const creation = { made: ['sb-made'] } as unknown as NonNullable<Call['creation']>
  const repeat = callOf({ params: { checkpointId: 'gone/v1' }, creation })
  assert.equal((await withIds(repeat.call)).params['checkpointId'], 'gone/v1')
})
