import assert from 'node:assert/strict'
import { test } from 'node:test'
import { sha256 } from '../lib/secret.ts'
import type { CapsuleView } from './capsules.ts'
import { answering } from './testing/fake-agent.ts'
import { capsuleStore } from './testing/store.ts'
import { Story } from './testing/turns.ts'
import { orgId, refused, simple, useWorld } from './testing/world.ts'
import type { Sessions } from './service.ts'
import type { Session } from './session.ts'

const world = useWorld()
const serve = (limits = {}): Sessions => world.serve({ checkpoints: 'disk', limits })

/** A session that has had a turn for each of these messages, with a checkpoint of each. */
async function turns(service: Sessions, texts: string[], agentConfig = {}): Promise<Session> {
  return await world.turns(service, texts, { agentConfig })
}

async function share(service: Sessions, session: Pick<Session, 'id'>, input: object = {}) {
  return await service.capsules.create(orgId, session.id, { userId: 'u1', scope: 'read', ...input })
}

const read = (service: Sessions, token: string): Promise<CapsuleView> => service.capsules.read(token, { limit: 100 })
const texts = ({ messages }: CapsuleView) => messages.map(({ content }) => content)

/** Who the user and the agent said something to, at each moment. */
async function saidAt(service: Sessions, session: Pick<Session, 'id'>, event: number): Promise<string[]> {
  const { token, capsule } = await share(service, session, { event })
  const said = texts(await read(service, token))
  await service.capsules.revoke(orgId, session.id, capsule.id)
  return said
}

async function numberOf(sessionId: string, type: string, nth = 0): Promise<number> {
  return (await world.streamed(sessionId)).filter(({ data }) => data.type === type)[nth]!.sequence
}

test('capsule: it shows the session up to its event, and nothing of what comes', async () => {
  const service = serve()
  const session = await turns(service, ['one'])
  const { token, capsule } = await share(service, session)
  await service.sendMessage(orgId, session.id, { message: 'two', userId: 'u1' })
  await world.saved(session.id, 2)
  const view = await read(service, token)
  assert.equal(texts(view)[0], 'one')
  assert.equal(view.messages.length, 2)
  assert.deepEqual([view.capsule.event, view.nextCursor], [capsule.event, undefined])
  const { events, nextAfter } = await service.capsules.events(token, { after: 0, limit: 500 })
  assert.equal(nextAfter, undefined)
  assert.deepEqual(
    events.map(({ id }) => id),
    Array.from({ length: capsule.event }, (_, index) => index + 1),
  )
  assert.equal(JSON.parse(events[0]!.text).type, 'ready')
})

test('capsule: the messages are those of the branch of then', async () => {
  const service = serve()
  const { id } = await turns(service, ['zero'])
  const first = await world.store.firstMessage(id, 'consumed')
  const story = new Story(world.store, id)
  const a = await story.turn('a', { parentId: first!.id })
  const atA = await world.store.lastSequence(id)
  const b = await story.begin('b', a.id)
  const inB = await world.store.lastSequence(id)
  const checkpointOfB = await story.end(b)
  const atB = await world.store.lastSequence(id)
  const undo = await story.rewind({ turnId: a.id, checkpointId: a.checkpointId })
  const rewound = await world.store.lastSequence(id)
  await story.turn('c', { parentId: a.id })
  const atC = await world.store.lastSequence(id)
  await story.rewind({ turnId: b, checkpointId: checkpointOfB }, 'machine')
  const machine = await world.store.lastSequence(id)
  await story.rewind({ turnId: b, checkpointId: undo })
  const undone = await world.store.lastSequence(id)
  const session = { id }
  const users = async (event: number) => (await saidAt(service, session, event)).filter((text) => text.length <= 4)
  assert.deepEqual(await users(atA), ['zero', 'a'])
  assert.deepEqual(await users(inB), ['zero', 'a', 'b'])
  assert.deepEqual(await users(atB), ['zero', 'a', 'b'])
  assert.deepEqual(await users(rewound), ['zero', 'a'])
  assert.deepEqual(await users(atC), ['zero', 'a', 'c'])
  assert.deepEqual(await users(machine), ['zero', 'a', 'c'])
  assert.deepEqual(await users(undone), ['zero', 'a', 'b'])
})

test('capsule: an answer is shown from the end of its turn on, and what waits is not', async () => {
  const service = serve()
  world.sandboxes.script = {
    turn(agent, content, resumed) {
      if (content === 'one') answering.turn(agent, content, resumed)
      else agent.say('I begin')
    },
  }
  const session = await turns(service, ['one'])
  const complete = await numberOf(session.id, 'turn_complete')
  assert.deepEqual(await saidAt(service, session, 1), [])
  assert.deepEqual(await saidAt(service, session, complete - 1), ['one'])
  assert.equal((await saidAt(service, session, complete)).length, 2)
  await service.sendMessage(orgId, session.id, { message: 'works', userId: 'u1' })
  await service.sendMessage(orgId, session.id, { message: 'waits', userId: 'u1' })
  const begun = await world.eventually('its words', async () => {
    const { sequence, data } = (await world.streamed(session.id)).at(-1)!
    assert.equal(data.type, 'assistant')
    return sequence
  })
  assert.deepEqual((await saidAt(service, session, begun)).slice(2), ['works'])
})

test('capsule: pages follow one another, and end with its revocation', async () => {
  const service = serve()
  const session = await turns(service, ['one', 'two'])
  const { token, capsule } = await share(service, session)
  const { capsules } = service
  const all = texts(await read(service, token))
  const paged: string[] = []
  let after: string | undefined
  do {
    const page = await capsules.read(token, { limit: 1, after })
    paged.push(...texts(page))
    after = page.nextCursor
  } while (after !== undefined)
  assert.deepEqual(paged, all)
  const first = await capsules.events(token, { after: 0, limit: 2 })
  assert.deepEqual([first.events.map(({ id }) => id), first.nextAfter], [[1, 2], 2])
  assert.deepEqual(await capsules.events(token, { after: capsule.event, limit: 2 }), { events: [] })
  assert.deepEqual(await capsules.events(token, { after: 1_000_000, limit: 2 }), { events: [] })
  await capsules.revoke(orgId, session.id, capsule.id, 'u1')
  await assert.rejects(capsules.events(token, { after: 2, limit: 2 }), refused('not_found'))
  await assert.rejects(capsules.read(token, { limit: 1 }), refused('not_found'))
  await capsules.revoke(orgId, session.id, capsule.id, 'u1')
})

test('capsule: an unknown, an expired and a purged one are refused in the same words', async () => {
  const service = serve()
  const session = await turns(service, ['one'])
  const words = async (token: string) =>
    await read(service, token).then(
      () => assert.fail(),
      (error: unknown) => String(error),
    )
  const { token } = await share(service, session, { expiresInSeconds: 1 })
  const unknown = await words(`moment_${'x'.repeat(43)}`)
  for (const bad of ['', 'x', '../x', `${token}0`, token.toUpperCase()]) assert.equal(await words(bad), unknown)
  await world.eventually('its end', async () => assert.equal(await words(token), unknown))
  const { token: other } = await share(service, session)
  await service.delete(orgId, session.id)
  assert.equal((await read(service, other)).messages.length, 2, 'an ended session is shown')
  await world.store.deleteSessions([session.id])
  assert.equal(await words(other), unknown)
})

test('capsule: what cannot be shared is refused', async () => {
  const service = serve()
  const session = await turns(service, ['one'])
  const last = await world.store.lastSequence(session.id)
  for (const event of [0, -1, last + 1])
    await assert.rejects(share(service, session, { event }), refused('invalid_request'))
  await assert.rejects(share(service, session, { userId: 'u2' }), refused('forbidden'))
  await assert.rejects(
    service.capsules.create('org_2', session.id, { userId: 'u1', scope: 'read' }),
    refused('not_found'),
  )
  await assert.rejects(share(service, session, { scope: 'fork', event: 1 }), refused('not_found'), 'no checkpoint')
  await assert.rejects(service.capsules.revoke(orgId, session.id, 'mom_unknown', 'u1'), refused('not_found'))
  const { capsule } = await share(service, session)
  await assert.rejects(service.capsules.revoke('org_2', session.id, capsule.id), refused('not_found'))
  await assert.rejects(service.capsules.list(orgId, session.id, 'u2'), refused('not_found'))
})

test('capsule: an event that holds a link is left out, and an error names no sandbox', async () => {
  const service = serve()
  const session = await turns(service, ['one'])
  const url = 'https://api.example.com/v1/capsules/moment_secret'
  const said = `the sandbox ${session.sandboxId} is stopped`
  await world.store.commit(session.id, {
    addStream: [
      { type: 'capsule_created', url },
      { type: 'error', message: said, code: 'x', fatal: false },
      { type: 'assistant', text: '"type":"capsule_created"' },
    ],
  })
  const { token } = await share(service, session)
  const { events } = await service.capsules.events(token, { after: 0, limit: 500 })
  const all = events.map(({ text }) => text).join('\n')
  assert.ok(!all.includes('moment_secret') && !all.includes(session.sandboxId), all)
  assert.match(all, /the sandbox sb-… is stopped/)
  assert.equal(JSON.parse(events.at(-1)!.text).type, 'assistant')
})

test('capsule: a fork has the conversation and the disk of the moment for another person, without what is secret', async () => {
  const service = serve()
  const agentConfig = { envs: { PUBLIC: '1', SECRET: 's3cret' }, secretEnvs: ['SECRET'], systemPrompt: 'be brief' }
  const session = await turns(service, ['one', 'two'], agentConfig)
  const { id: sourceId } = session
  const after = (await world.streamed(sourceId)).find(({ data }) => data.type === 'checkpoint_created')!
  const { token, isExact } = await share(service, session, { scope: 'fork', event: after.sequence })
  assert.equal(isExact, true)
  const view = await service.capsules.fork(orgId, token, { userId: 'u2', name: 'second' })
  const fork = (await world.store.session(view.session.id))!
  assert.deepEqual([fork.userId, fork.name, fork.userEmail, fork.forkedFrom], ['u2', 'second', undefined, sourceId])
  assert.deepEqual(fork.agentConfig.envs, { PUBLIC: '1' })
  assert.equal((await world.store.instructions(fork.id))?.systemPrompt, 'be brief')
  assert.deepEqual(
    view.messages.map(({ content }) => content),
    (await read(service, token)).messages.map(({ content }) => content),
  )
  assert.equal(view.messages[0]?.content, 'one')
  assert.notEqual(fork.gatewayTokenHash, session.gatewayTokenHash)
  await world.until(fork.id, 'idle')
  const started = world.sandboxes.created.find(({ id }) => id === fork.sandboxId)!
  assert.deepEqual(started.handover, { withoutEnvs: ['SECRET'] })
  assert.deepEqual([started.checkpointId, started.envs], [after.data['checkpoint_id'], { PUBLIC: '1' }])
  assert.equal((await world.store.head(fork.id))?.inputTokens, 0)
  const [listed] = await service.capsules.list(orgId, sourceId, 'u1')
  assert.equal(listed?.forks, 1)
  // A moment of the fork has what the fork began with.
  const { token: again } = await share(service, fork, { userId: 'u2' })
  assert.equal(texts(await read(service, again))[0], 'one')
})

test('capsule: a fork has no secret store and no volumes of the source, and keeps its policy', async () => {
  const service = serve()
  const session = await turns(service, ['one'])
  const config = { ...session.agentConfig, secretStore: 'prod', volumes: [{ name: 'v', path: '/v' }] }
  const egress = { mode: 'none' as const }
  const { agentConfig: _own, ...rest } = session
  const other = { ...rest, id: `${session.id}x`, sandboxId: 'sb-other', gatewayTokenHash: 'x', headTurnId: undefined }
  const source = { ...other, agentConfig: { ...config, egress } } as unknown as Session
  const event = { id: 'evt_other', type: 'session_started', level: 'info', message: '', createdAt: new Date() } as const
  await world.store.createSession(source, [], event)
  const story = new Story(world.store, source.id)
  await story.turn('a')
  const { token } = await share(service, source, { scope: 'fork' })
  const { session: fork } = await service.capsules.fork(orgId, token, { userId: 'u2' })
  const { agentConfig } = (await world.store.session(fork.id))!
  assert.deepEqual([agentConfig.secretStore, agentConfig.volumes, agentConfig.egress], [undefined, undefined, egress])
})

test('capsule: a fork is refused to another organisation, for scope read, beyond a key’s reach, and past its number', async () => {
  const service = serve()
  const session = await turns(service, ['one'])
  const { token: readable } = await share(service, session)
  const { token, capsule } = await share(service, session, { scope: 'fork' })
  const fork = (given: string, org = orgId, more = {}) => service.capsules.fork(org, given, { userId: 'u2', ...more })
  await assert.rejects(fork(token, 'org_2'), refused('not_found'))
  await assert.rejects(fork(readable, 'org_2'), refused('not_found'))
  await assert.rejects(fork(readable), refused('forbidden'))
  await assert.rejects(fork(token, orgId, { reach: { namePrefix: 'ci-', keyId: 'key_x' } }), refused('not_found'))
  for (let count = 0; count < 19; count += 1) await capsuleStore.addFork(capsule.id, new Date(), 20)
  await fork(token, orgId, { name: 'one' })
  await assert.rejects(fork(token), refused('conflict'))
  const next = await share(service, session, { scope: 'fork' })
  await assert.rejects(fork(next.token, orgId, { name: 'one' }), refused('conflict'), 'the name is taken')
  assert.equal((await capsuleStore.find(session.id, next.capsule.id))?.forks, 0)
  await service.capsules.revoke(orgId, session.id, next.capsule.id)
  await assert.rejects(fork(next.token), refused('not_found'))
})

test('capsule: its checkpoint stays when the policy would remove it, until the capsule is over', async () => {
  const service = serve({ turnCheckpointsMax: 2 })
  const session = await turns(service, ['one'])
  const [point] = await world.store.points(session.id)
  const { capsule, token } = await share(service, session, { scope: 'fork' })
  const short = await share(service, session, { scope: 'fork', expiresInSeconds: 1 })
  for (const [index, message] of ['two', 'three', 'four'].entries()) {
    await service.sendMessage(orgId, session.id, { message, userId: 'u1' })
    await world.saved(session.id, index + 2)
  }
  const kept = async () => (await world.store.points(session.id)).map(({ checkpointId }) => checkpointId)
  await world.eventually('the removal of the others', async () => assert.equal((await kept()).length, 3))
  assert.ok((await kept()).includes(point!.checkpointId))
  assert.equal((await service.capsules.fork(orgId, token, { userId: 'u2' })).session.checkpointId, point!.checkpointId)
  await service.capsules.revoke(orgId, session.id, capsule.id)
  await world.eventually('the end of the other', async () =>
    assert.equal(await capsuleStore.living(sha256(short.token), new Date()), undefined),
  )
  await world.eventually('the start of the fork', async () => {
    await service.sweepCapsules(new AbortController().signal)
    await service.capsules.revoke(orgId, session.id, capsule.id)
    assert.ok(!(await kept()).includes(point!.checkpointId))
  })
  assert.equal(await capsuleStore.find(session.id, short.capsule.id), undefined)
})

test('capsule: a turn that fails makes one where the session says so, and its link is in the stream', async () => {
  const service = world.serve({ capsuleUrl: (token) => `https://api.example.com/v1/capsules/${token}` })
  world.sandboxes.script = {
    turn(agent, content, resumed) {
      if (content === 'fine') return answering.turn(agent, content, resumed)
      agent.say('oh')
      agent.finish('error_during_execution', 'no')
    },
  }
  const { session } = await service.create(orgId, { ...simple, prompt: 'fine', agentConfig: { capsuleOnError: true } })
  await world.until(session.id, 'idle')
  await world.turn(service, session.id, 'fail')
  const made = await world.eventually('the capsule', async () => {
    const found = (await world.streamed(session.id)).filter(({ data }) => data.type === 'capsule_created')
    assert.equal(found.length, 1)
    return found[0]!.data
  })
  const [capsule] = await service.capsules.list(orgId, session.id, 'u1')
  assert.deepEqual([capsule?.id, capsule?.scope, capsule?.reason], [made['capsule_id'], 'read', 'error'])
  assert.equal(made['event'], await numberOf(session.id, 'turn_complete', 1))
  const view = await read(service, String(made['url']).split('/').at(-1)!)
  assert.ok(texts(view).includes('fail'))
})
