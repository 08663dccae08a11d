/** Time travel of sessions (docs/use/time-travel.md) on a server that is killed, on a full disk, asked for what cannot be, and many times in a row. */
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { oneOf, roundsOf, someOf } from '../../src/lib/testing/thorough.ts'
import { ApiClient } from '../support/api-client.ts'
import { SmallDisk } from '../support/small-disk.ts'
import { HeldDatabase, type Statement } from './held-database.ts'
import { sh, startSandbox, takeCheckpoint } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'
import { createSession, endSession, getSession, type Session } from './session-client.ts'
import { operatorKey, Tenant } from './tenant.ts'
import { isRewound, isRun, isSaved, promptOf, TravellingSession } from './travelling-session.ts'

const database = await HeldDatabase.make()
const server = await AtollServer.startForFile({
  env: { ATOLL_SESSION_CHECKPOINTS: 'turn', DATABASE_URL: database.url, ATOLL_OPERATOR_KEY: operatorKey },
})
after(() => database.drop())
const api = new ApiClient(server.url, server.key)

type Forks = { sessions: Session[] }

const ofTurn = `new.owner = 'turn'`
const statements = {
  'its checkpoint begins': { event: 'insert on checkpoints', when: ofTurn },
  'its checkpoint is there': { event: 'update on checkpoints', when: `${ofTurn} and new.status = 'ready'` },
  'its point is named': { event: 'insert on session_points' },
  'it is decided': {
    event: 'update on sessions',
    when: 'new.pending_rewind is not null and old.pending_rewind is null',
  },
  'its restore begins': { event: 'update on sandboxes', when: 'new.restores > old.restores' },
  'its restore is done': { event: 'insert on session_rewinds' },
  'forks are archived': {
    event: 'update on sessions',
    when: 'new.archived_for is not null and old.archived_for is null',
  },
  'it is answered': { event: 'insert or update on idempotency_keys', when: 'new.status_code is not null' },
} satisfies Record<string, Statement>

type Step = [step: keyof typeof statements, isCarriedOut: boolean]

/** Steps of a rewind, and whether it is carried out after a crash there. */
const rewindSteps: Step[] = [
  ['its checkpoint begins', false],
  ['its checkpoint is there', false],
  ['it is decided', false],
  ['its restore begins', true],
  ['its restore is done', true],
  ['it is answered', true],
]

/** Asserts that each checkpoint of a turn, and each before a rewind, belongs to one of these sessions, which tell of it. */
async function assertNothingLeft(sessions: readonly TravellingSession[], what: string): Promise<void> {
  await eventually(
    async () => {
      const kept = (await server.json('GET', '/api/checkpoints?origin=turn')) as { id: string; status: string }[]
      const others = `select checkpoint_id from session_points where origin = 'undo' or session_id <> all($1)`
      const told = new Set(await database.values(others, [sessions.map(({ id }) => id)]))
      for (const session of sessions) {
        const { turns } = await session.timeline('all')
        for (const { checkpoint } of turns) told.add(checkpoint?.id)
      }
      assert.deepEqual(
        kept.filter(({ id, status }) => !told.has(id) || status !== 'ready'),
        [],
        what,
      )
    },
    { what: `the removal of checkpoints that nobody names: ${what}` },
  )
}

async function endAll(sessions: readonly { id: string }[]): Promise<void> {
  for (const { id } of sessions) await endSession(server, id)
}

test('checkpoint: that of a turn whose server is killed is taken afterwards, once, before the next turn', async () => {
  const one = await TravellingSession.begin(server, 1)
  let [last, asked] = [1, 1]
  for (const step of oneOf(['its checkpoint begins', 'its checkpoint is there', 'its point is named'] as const)) {
    last += 1
    let message: string | undefined
    await database.killAt(server, statements[step], async () => {
      message = await one.send(promptOf(last))
      await one.saved(message)
    })
    asked += 1
    // Its turn begins when the checkpoint of the one before is there, or told to be missing.
    const next = await one.send('run: cat page.txt')
    assert.equal((await one.saved(message))?.data.type, 'checkpoint_created', step)
    await one.saved(next)
    const events = await one.events(isSaved, last * 2 - 1)
    assert.equal(events.filter(isRun).length, last, step)
    await assertNothingLeft([one], step)
    const { turns } = await one.timeline()
    assert.ok(turns.every(({ checkpoint }) => checkpoint?.kind === 'full'))
    await one.rewind({ message_id: message })
    const ran = Array.from({ length: last }, (_one, index) => index + 1)
    await one.assertStands({ turns: ran, asked }, step)
    await one.rewind({ message_id: message })
  }
  await endAll([one])
})

test('rewind: one whose server is killed leaves all of the old state or all of the new one, and a repeat carries it out once', async () => {
  const one = await TravellingSession.begin(server, 2)
  const [first] = await one.messages()
  let [present, rewinds] = [{ turns: [1, 2] as readonly number[], asked: 2 }, 0]
  for (const index of someOf([...rewindSteps.keys()])) {
    const [step, isCarriedOut] = rewindSteps[index]!
    const key = `rewind ${step}`
    const to = { message_id: first }
    await database.killAt(server, statements[step], () => one.post('rewind', { to }, key))
    rewinds += 1
    if (isCarriedOut) await one.events(isRewound, rewinds)
    const past = { turns: [1], asked: 1 }
    if (isCarriedOut) await one.assertStands(past, step)
    else present = { ...(await one.assertStands(present, step)) }
    const told = await one.rewind(to, key)
    if (!isCarriedOut) await one.assertStands(past, step)
    const rewound = (await one.events(isRewound, rewinds)).at(-1)?.data
    assert.equal(rewound?.['undo_checkpoint_id'], told.undoCheckpointId, step)
    assert.match(told.restoredPrompt ?? '', /page 2/)
    assert.equal(told.processes, 'restored')
    const again = await one.post('rewind', { to }, key)
    assert.deepEqual([again.isReplayed, again.body.undoCheckpointId], [true, told.undoCheckpointId], step)
    assert.equal((await one.timeline()).undoCheckpointId, told.undoCheckpointId)
    await assertNothingLeft([one], step)
    await one.rewind({ checkpoint_id: told.undoCheckpointId })
    rewinds += 1
    present = await one.assertStands(present, `undone: ${step}`)
  }
  const events = await one.events(isRewound, rewinds)
  assert.equal(events.filter(isRun).length, 2)
  await endAll([one])
})

test('rewind: one whose server is killed in the middle of the restore is carried out by the next server', async () => {
  const one = await TravellingSession.begin(server, 2)
  const [first] = await one.messages()
  let present = { turns: [1, 2] as readonly number[], asked: 2 }
  for (let round = 1; round <= roundsOf(1, 10); round += 1) {
    const restores = async () =>
      (await database.values('select restores from sandboxes where id = $1', [one.session.sandboxId]))[0]
    const before = await restores()
    const sent = one.post('rewind', { to: { message_id: first } }).catch(() => undefined)
    while ((await restores()) === before) await sleep(2)
    await sleep(Math.random() * 200)
    await server.kill()
    await sent
    await server.restart()
    const rewound = (await one.events(isRewound, round * 2 - 1)).at(-1)?.data
    await one.assertStands({ turns: [1], asked: 1 })
    await assertNothingLeft([one], `round ${round}`)
    await one.rewind({ checkpoint_id: rewound?.['undo_checkpoint_id'] })
    present = await one.assertStands(present)
  }
  assert.equal((await one.turn(3))?.data.type, 'checkpoint_created')
  await one.assertStands({ turns: [1, 2, 3], asked: present.asked + 1 })
  await endAll([one])
})

test('adopt: one whose server is killed leaves the old state or that of the fork, and a repeat carries it out once', async () => {
  const one = await TravellingSession.begin(server, 1)
  const [at] = await one.messages()
  const variants = [{ message: promptOf(2) }, { message: promptOf(2) }]
  const made = await one.post<Forks>('fork', { at: { message_id: at }, variants })
  assert.equal(made.status, 201, JSON.stringify(made.body))
  const [fork, other] = made.body.sessions.map((session) => new TravellingSession(server, session))
  assert.ok(fork && other)
  for (const each of [fork, other]) await each.saved((await each.messages()).at(-1))
  const request = { from: fork.id }
  const others: Step[] = [...rewindSteps, ['its point is named', false]]
  // The other fork is archived once.
  const steps: Step[] = [['forks are archived', true], ...oneOf(others)]
  let [present, rewinds] = [{ turns: [1] as readonly number[], asked: 1 }, 0]
  for (const [step, isCarriedOut] of steps) {
    const key = `adopt ${step}`
    await database.killAt(server, statements[step], () => one.post('adopt', request, key))
    rewinds += 1
    if (isCarriedOut) await one.events(isRewound, rewinds)
    else present = await one.assertStands(present, step)
    const told = await one.post('adopt', request, key)
    assert.equal(told.status, 200, JSON.stringify(told.body))
    await one.assertStands({ turns: [1, 2], asked: 2 }, step)
    await fork.until('idle')
    const { archivedReason } = (await getSession(server, other.id)) as Session & { archivedReason?: string }
    assert.match(archivedReason ?? '', /adopted/, step)
    await assertNothingLeft([one, fork, other], step)
    await one.rewind({ checkpoint_id: told.body.undoCheckpointId })
    rewinds += 1
    present = await one.assertStands(present, `undone: ${step}`)
    assert.equal((await one.events(isRewound, rewinds)).filter(isRun).length, 1)
  }
  await endAll([one, fork, other])
})

test('fork: three at a point whose server is killed are three after a repeat', async () => {
  const one = await TravellingSession.begin(server, 2)
  const [first] = await one.messages()
  const started = {
    event: 'update on sandboxes',
    when: `old.status = 'creating' and new.status = 'running'`,
    passes: 1,
  }
  const recorded = { event: 'insert on sessions', passes: 1 }
  const forks: { id: string }[] = []
  for (const [index, step] of oneOf([recorded, started, statements['it is answered']]).entries()) {
    const request = { at: { message_id: first }, count: 3 }
    const fork = () => one.post<Forks>('fork', request, `fork ${index}`)
    await database.killAt(server, step, async () => {
      // Their starts go on behind the answer.
      const { sessions } = (await fork()).body
      for (const session of sessions) await new TravellingSession(server, session).until('idle')
    })
    const { status, body } = await fork()
    assert.equal(status, 201, JSON.stringify(body))
    forks.push(...body.sessions)
    const { turns } = await one.timeline()
    assert.deepEqual(
      turns
        .at(-1)
        ?.forks.map(({ id }) => id)
        .toSorted(),
      forks.map(({ id }) => id).toSorted(),
    )
    assert.deepEqual(
      (await fork()).body.sessions.map(({ id }) => id),
      body.sessions.map(({ id }) => id),
    )
    for (const session of body.sessions) {
      const made = new TravellingSession(server, session)
      await made.until('idle')
      await made.assertStands({ turns: [1], asked: 1 }, step.event)
    }
    await assertNothingLeft([one], step.event)
  }
  await one.assertStands({ turns: [1, 2], asked: 2 })
  await endAll([one, ...forks])
})

test('full disk: a rewind is refused and the present goes on, a turn goes on without its checkpoint, and with space all is as before', async () => {
  await using disk = await SmallDisk.make(6 * 1024)
  const env = { ATOLL_DISK_POOL_MB: '3072', ATOLL_SESSION_CHECKPOINTS: 'turn' }
  await using small = await AtollServer.start({ dataDir: disk.dataDir, env })
  const one = await TravellingSession.begin(small, 2)
  const [first, second] = await one.messages()
  let present = await one.assertStands({ turns: [1, 2], asked: 2 })
  await disk.fill(60)
  await eventually(async () => (await small.fetch('/readyz')).status === 503)
  const refused = await one.post<{ error: { code: string } }>('rewind', { to: { message_id: first } })
  assert.deepEqual([refused.status, refused.body.error.code], [503, 'no_capacity'], JSON.stringify(refused.body))
  await one.until('idle')
  present = await one.assertStands(present)
  assert.equal((await one.timeline()).undoCheckpointId, null)
  const untold = await one.turn(3)
  assert.equal(untold?.data['code'], 'checkpoint_failed', JSON.stringify(untold))
  assert.equal(untold?.data['fatal'], false)
  present = await one.assertStands({ turns: [1, 2, 3], asked: present.asked + 1 })

  await disk.empty()
  await eventually(async () => (await small.fetch('/readyz')).ok)
  assert.equal((await one.turn(4))?.data.type, 'checkpoint_created')
  present = await one.assertStands({ turns: [1, 2, 3, 4], asked: present.asked + 1 })
  await one.rewind({ message_id: second })
  await one.assertStands({ turns: [1, 2], asked: 2 })
  await endSession(small, one.id)
})

test('rewind: places that are none, other people and other sessions are refused, and of two at once one is carried out', async () => {
  const [one, other, bare] = await Promise.all([
    TravellingSession.begin(server, 2),
    TravellingSession.begin(server, 1),
    createSession(server, 'run: echo bare', { agent_config: { checkpoints: 'none' } }),
  ])
  assert.ok(one && other && bare)
  const [first, second] = await one.messages()
  const checkpoint = (session: TravellingSession) => session.timeline().then(({ turns }) => turns[0]?.checkpoint?.id)
  const events = await one.events(isSaved, 2)
  const newest = events.at(-1)!.id
  const within = events.filter(isRun).at(-1)!.id
  const bareId = (await getSession(server, bare.id)).messages[0]?.id
  await new TravellingSession(server, bare).until('idle')
  const cases: [path: string, body: object, status: number, message: RegExp][] = [
    [`${bare.id}/rewind`, { to: { message_id: bareId } }, 404, /no checkpoint of the turn/],
    [`${bare.id}/fork`, { at: { message_id: bareId } }, 404, /no checkpoint of the turn/],
    [`${one.id}/rewind`, { to: { event_id: newest + 1 } }, 400, /to\.event_id.*1 to \d+/],
    [`${one.id}/rewind`, { to: { event_id: within } }, 400, /inside of a turn/],
    [`${one.id}/rewind`, { to: { checkpoint_id: await checkpoint(other) } }, 404, /has no checkpoint/],
    [`${one.id}/rewind`, { to: { message_id: (await other.messages())[0] } }, 404, /no turn of message/],
    [`${one.id}/rewind`, { to: { message_id: first }, user_id: 'bob' }, 403, /owner/],
    [`${one.id}/adopt`, { from: other.id }, 409, /no fork of the session/],
    [`${one.id}/adopt`, { from: 'session_none' }, 404, /session_none/],
    [`${one.id}/adopt`, { from: other.id, user_id: 'bob' }, 403, /owner/],
  ]
  for (const [path, body, status, message] of cases) {
    const answer = await api.post(`/v1/sessions/${path}`, { user_id: 'ada', ...body })
    assert.equal(answer.status, status, `${path} ${JSON.stringify(body)}: ${answer.text}`)
    assert.match(answer.body.error.message, message)
  }
  // A fork of another person's, and another organisation.
  const bobs = await createSession(server, 'run: echo bob', { user_id: 'bob' })
  const stranger = await api.post(`${one.path}/adopt`, { user_id: 'ada', from: bobs.id })
  assert.equal(stranger.status, 404, stranger.text)
  await using tenant = await Tenant.make(server, 'others')
  for (const path of ['rewind', 'adopt', 'fork']) {
    const body = { user_id: 'ada', to: { message_id: first }, at: { message_id: first }, from: other.id }
    const key = tenant.key
    const { to, at, from, ...user } = body
    const own = { rewind: { ...user, to }, adopt: { ...user, from }, fork: { ...user, at } }[path]
    assert.equal((await api.post(`${one.path}/${path}`, own, { key })).status, 404)
  }
  const kept = await checkpoint(one)
  for (const path of [`/api/checkpoints/${kept}`, `/api/sandboxes/${one.session.sandboxId}/checkpoints/${kept}`])
    assert.equal((await api.delete(path)).status, 409)
  assert.equal((await one.events(isSaved, 2)).length, newest)
  await one.assertStands({ turns: [1, 2], asked: 2 })

  const both = await Promise.all([1, 2].map(() => one.post('rewind', { to: { message_id: first } })))
  assert.deepEqual(
    both.map(({ status }) => status).toSorted((left, right) => left - right),
    [200, 409],
  )
  await one.assertStands({ turns: [1], asked: 1 })
  const undone = both.find(({ status }) => status === 200)?.body.undoCheckpointId
  await one.rewind({ checkpoint_id: undone })
  await one.assertStands({ turns: [1, 2], asked: 3 })

  await endSession(server, one.id)
  assert.equal((await one.post('rewind', { to: { message_id: first } })).status, 409)
  const late = await one.post<Session>('fork', { at: { message_id: second } })
  assert.equal(late.status, 201, JSON.stringify(late.body))
  const fork = new TravellingSession(server, late.body)
  await fork.until('idle')
  await fork.assertStands({ turns: [1, 2], asked: 2 })
  assert.equal((await fork.post('rewind', { to: { message_id: first } })).status, 404)
  await endAll([other, bare, bobs, fork])
})

test('rewind: a session that hibernates wakes in the past', async () => {
  const one = await TravellingSession.begin(server, 2)
  const [first] = await one.messages()
  await server.json('POST', `/api/sandboxes/${one.session.sandboxId}/hibernate`)
  const { processes, undoCheckpointId } = await one.rewind({ message_id: first })
  assert.equal(processes, 'restored')
  await one.assertStands({ turns: [1], asked: 1 })
  await server.json('POST', `/api/sandboxes/${one.session.sandboxId}/hibernate`)
  await one.rewind({ checkpoint_id: undoCheckpointId })
  await one.assertStands({ turns: [1, 2], asked: 2 })
  assert.equal((await one.turn(3))?.data.type, 'checkpoint_created')
  await one.assertStands({ turns: [1, 2, 3], asked: 4 })
  await endAll([one])
})

test('rewind: to a checkpoint of the disk processes end, the patch of the machine runs, and the agent goes on', async () => {
  const machine = await startSandbox(server)
  const checkpoint_id = await takeCheckpoint(server, machine, 'machine', 'disk_only')
  const script = 'echo patched >>/root/patched'
  await server.json('POST', `/api/sandboxes/checkpoints/${checkpoint_id}/patches`, { script, strategy: 'on_resume' })
  const one = await TravellingSession.begin(server, 2, { checkpoint_id, agent_config: { checkpoints: 'disk' } })
  const { sandboxId } = one.session
  const patched = async () => Number(await sh(server, sandboxId, 'wc -l </root/patched || echo 0'))
  const before = await patched()
  const [first] = await one.messages()
  assert.ok((await one.timeline()).turns.every((turn) => turn.checkpoint?.kind === 'disk_only'))
  assert.equal((await one.rewind({ message_id: first })).processes, 'ended')
  assert.equal(await sh(server, sandboxId, 'pgrep -cf "[c]reateServer"'), '0')
  assert.equal(await sh(server, sandboxId, 'xargs </workspace/app/ran.txt'), '1')
  assert.equal(await patched(), before + 1)
  assert.equal((await one.saved(await one.send('run: echo 3 >>ran.txt')))?.data.type, 'checkpoint_created')
  assert.equal(await sh(server, sandboxId, 'xargs </workspace/app/ran.txt'), '1 3')
  assert.deepEqual((await one.messages()).length, 2)
  await endAll([one])
  await server.json('DELETE', `/api/sandboxes/${machine}`)
})

test('rewind: a chain of turns, rewinds and hibernations is like its model in each round', async () => {
  const one = await TravellingSession.begin(server, 1)
  let turns: readonly number[] = [1]
  /** How often the page was asked at the checkpoint of each turn. */
  const askedAt = new Map([[1, 1]])
  let asked = 1
  for (let round = 1; round <= roundsOf(3, 15); round += 1) {
    for (const isLeft of [true, false]) {
      const turn = 2 * round + (isLeft ? 0 : 1)
      assert.equal((await one.turn(turn))?.data.type, 'checkpoint_created')
      turns = [...turns, turn]
      askedAt.set(turn, ++asked)
      ;({ asked } = await one.assertStands({ turns, asked }, `round ${round}, turn ${turn}`))
      if (!isLeft) continue
      await one.rewind({ message_id: (await one.messages()).at(-2) })
      turns = turns.slice(0, -1)
      asked = askedAt.get(turns.at(-1)!)!
      ;({ asked } = await one.assertStands({ turns, asked }, `round ${round}, back`))
    }
    await server.json('POST', `/api/sandboxes/${one.session.sandboxId}/hibernate`)
    ;({ asked } = await one.assertStands({ turns, asked }, `round ${round}, awake`))
  }
  assert.equal((await one.timeline()).turns.length, turns.length)
  await assertNothingLeft([one], 'the end')
  await endAll([one])
})
