/** `atoll session timeline`, `fork`, `rewind`, `undo`, `adopt`, `diff`, `estimate` and `set`, without a terminal. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ServiceError } from '../../src/errors.ts'
import { beginAtoll, runAtoll } from '../support/command-line.ts'
import { restoring, useWorld } from '../support/world.ts'

const world = useWorld()
const atoll = (...argv: string[]) => runAtoll(world, ...argv)

async function said(...argv: string[]): Promise<string> {
  const { status, stdout, stderr } = await atoll(...argv)
  assert.equal(status, 0, `${argv.join(' ')}: ${stderr}`)
  return stdout
}

async function refused(code: number, ...argv: string[]): Promise<string> {
  const { status, stdout, stderr } = await atoll(...argv)
  assert.deepEqual([status, stdout], [code, ''], `${argv.join(' ')}: ${stderr}`)
  return stderr
}

/** A session that can be forked, with what it has to do. */
async function made(name: string, prompt = 'About kelp'): Promise<string> {
  const { body } = await world.api.post('/v1/sessions', { prompt, user_id: 'ann', name })
  world.sessions.kept.get(body.id)!.session.activity = 'idle'
  return body.id as string
}

test('atoll session timeline: what is no terminal gets a line for each turn, with the id of its message, and JSON', async () => {
  const id = await made('kelp', 'About\u001b[2J kelp')
  const message = world.sessions.kept.get(id)!.messages[0]!
  const time = /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/
  const lines = (await said('session', 'timeline', 'kelp')).replace(time, 'TIME')
  const turn = `·   TIME  About\\x1b[2J kelp (runs)  7 tok  ${message.id}`
  assert.equal(lines, `${turn}\n└─● fork session_fork (paused)\n`)
  assert.deepEqual(world.sessions.asked['timeline'], { limit: 49, isOwnersOnly: false, cursor: message.id })
  await said('session', 'timeline', id, '--all', '--limit', '1')
  assert.deepEqual(world.sessions.asked['timeline'], { limit: 1, isOwnersOnly: false, branch: 'all' })
  const json = await said('session', 'timeline', id, '--json')
  assert.ok(!json.includes('\u001b'))
  const { turns, nextCursor, undoCheckpointId } = JSON.parse(json) as Record<string, unknown>
  assert.deepEqual([(turns as object[]).length, nextCursor, undoCheckpointId], [1, null, 'cp-undo'])
  assert.match(await refused(5, 'session', 'timeline', 'nobody'), /nobody/)
})

test('atoll session fork: one by its id, several a line each, and one that did not start is told', async () => {
  const id = await made('forks')
  assert.match(await said('session', 'fork', 'forks', '--name', 'forks-2'), /^session_\w+\n$/)
  const { stdout, stderr, status } = await atoll('session', 'fork', id, '--at', '5')
  assert.equal(status, 0, stderr)
  assert.match(stdout, /^session_\w+\n$/)
  assert.match(stderr, /no checkpoint of event 5 is kept: it begins after event 3/)
  assert.deepEqual(world.sessions.asked['fork'], { userId: 'ann', at: { eventId: 5 } })
  const two = await said('session', 'fork', id, '--at', 'cp-1', '--message', 'blue', '--message', 'green')
  assert.match(two, /^(session_\w+\n){2}$/)
  assert.deepEqual(world.sessions.asked['fork'], {
    userId: 'ann',
    at: { checkpointId: 'cp-1' },
    variants: [
      { message: 'blue', agentConfig: {} },
      { message: 'green', agentConfig: {} },
    ],
  })
  const three = await atoll('session', 'fork', id, '--at', 'msg_1', '--count', '3')
  assert.deepEqual([three.status, three.stdout.split('\n').length], [1, 3])
  assert.match(three.stderr, /2 of 3 sessions were forked: no more sessions\n/)
  assert.match(
    await refused(2, 'session', 'fork', id, '--count', '3', '--message', 'x'),
    /--count is 3, and there are 1/,
  )
  for (const place of ['sb-1', '0', '1.5', 'msg_1/x', ''])
    assert.match(await refused(2, 'session', 'fork', id, '--at', place), /must be a message \(msg_…\), a checkpoint/)
})

test('atoll session rewind: the prompt that was left is printed alone, and how it is undone beside it', async () => {
  const id = await made('past')
  const { stdout, stderr, status } = await atoll('session', 'rewind', 'past', '3')
  assert.deepEqual([status, stdout], [0, 'again\n'], stderr)
  assert.match(stderr, /those of that time run again\n· to undo this: atoll session undo past\n/)
  assert.deepEqual(world.sessions.asked['rewind'], { userId: 'ann', to: { eventId: 3 }, what: 'all' })
  const json = JSON.parse(await said('session', 'rewind', id, 'msg_1', '--what', 'machine', '--json'))
  assert.deepEqual([json.session.id, json.undoCheckpointId], [id, 'cp-undo'])
  assert.deepEqual(world.sessions.asked['rewind'], { userId: 'ann', to: { messageId: 'msg_1' }, what: 'machine' })
  await said('session', 'undo', id)
  assert.deepEqual(world.sessions.asked['rewind'], { userId: 'ann', to: { checkpointId: 'cp-undo' }, what: 'all' })
  assert.match(await refused(2, 'session', 'rewind', id, 'sb-1'), /must be a message/)
  assert.match(await refused(2, 'session', 'rewind', id, '3', '--what', 'files'), /choices/)
})

test('atoll session rewind --preview: it says what would change, and nothing changes', async () => {
  await made('later')
  delete world.sessions.asked['rewind']
  const lines = [
    'goes to      event 3, cp-1',
    'leaves       1 turn, 7 tok',
    'takes back   the message that waits',
    'processes    those of that time run again',
    'ends         node server.js',
    'files        not known',
  ]
  assert.equal(await said('session', 'rewind', 'later', '3', '--preview'), `${lines.join('\n')}\n`)
  assert.equal(JSON.parse(await said('session', 'rewind', 'later', '3', '--preview', '--json')).checkpointId, 'cp-1')
  assert.equal(world.sessions.asked['rewind'], undefined)
})

test('atoll session undo, adopt: a session without a rewind has nothing to undo; a fork is named by name too', async (t) => {
  const [id, fork] = [await made('reefs'), await made('reefs-2')]
  assert.equal(await said('session', 'adopt', 'reefs', 'reefs-2'), '')
  assert.deepEqual(world.sessions.asked['adopt'], { userId: 'ann', from: fork })
  restoring(t, world.sessions, 'timeline')
  Object.assign(world.sessions, { timeline: { page: async () => ({ turns: [] }) } })
  assert.match(await refused(5, 'session', 'undo', id), /has no rewind that can be undone/)
  assert.equal(await said('session', 'timeline', id), '')
})

test('atoll session diff: a patch as it is, files with what both have taken, and JSON', async () => {
  const id = await made('one')
  assert.equal(await said('session', 'diff', 'one', 'session_other'), 'diff --git a/a b/a\n')
  const stat = (await said('session', 'diff', 'one', 'session_other', '--stat')).split('\n')
  assert.deepEqual(stat.slice(0, 2), [' a | 1 +', ' 1 file changed, 1 insertion(+)'])
  assert.match(stat[3] ?? '', /^one +7 tok +\$0\.500 +0 s +ready$/)
  assert.match(stat[4] ?? '', /^session_other +7 tok +\$0\.500 +- +-$/)
  assert.equal((await said('session', 'diff', id, 'cp-1', '--stat')).split('\n').length, 3)
  assert.equal(JSON.parse(await said('session', 'diff', id, 'cp-1', '--json')).folder, '/workspace/app')
  assert.match(await refused(2, 'session', 'diff', id, 'cp-1', '--json', '--stat'), /exclude/)
  world.sessions.comparisonError = new ServiceError('not_implemented', 'this runtime reads no disks')
  assert.match(await refused(1, 'session', 'diff', id, 'cp-1'), /reads no disks/)
  world.sessions.comparisonError = undefined
})

test('atoll session estimate, set: what forks would take, and bounds that change', async () => {
  const id = await made('two')
  const fields = await said('session', 'estimate', 'two', '--fork', '3')
  assert.match(fields, /^forks +3\n[^]*memoryMaxBytes +1024\n[^]*costPerTurnUsd +0\.5\n/)
  assert.equal(JSON.parse(await said('session', 'estimate', id, '--json')).fork, 1)
  assert.equal(await said('session', 'set', id, '--max-cost-usd', '2.5', '--checkpoints', 'disk'), '')
  assert.deepEqual(world.sessions.asked['change'], { maxCostUsd: 2.5, checkpoints: 'disk' })
  await said('session', 'set', id, '--max-tokens', '9')
  assert.deepEqual(world.sessions.asked['change'], { maxTokens: 9 })
  assert.match(await refused(2, 'session', 'set', id), /--max-cost-usd, --max-tokens or --checkpoints/)
  for (const amount of ['0', '-1', 'x', '1e3']) await refused(2, 'session', 'set', id, '--max-cost-usd', amount)
})

test('atoll complete: sessions, turns of a session, and what it may be compared with', async () => {
  const id = await made('words', 'A line\nof words')
  world.sessions.emit(id, { type: 'turn_complete', message_id: 'x', session_id: 's' })
  assert.match(
    await said('complete', '--', 'session', 'get', 'wor'),
    /^words\trunning, A line of words, session_\w+\n$/,
  )
  assert.match(await said('complete', '--', 'session', 'adopt', 'words', id), new RegExp(`^${id}\t`))
  assert.match(await said('complete', '--', 'session', 'rewind', 'words', ''), /^msg_\w+\tA line of words\n$/)
  assert.match(await said('complete', '--', 'session', 'fork', 'words', '--at', 'msg'), /^msg_\w+\tA line of words\n$/)
})

test('atoll session watch: a rewind is told', async () => {
  const id = await made('told')
  const rewound = { to_event: 3, from_event: 9, what: 'all', undo_checkpoint_id: 'cp-1' } as const
  world.sessions.emit(id, { type: 'rewound', ...rewound })
  const { child, saying, ended } = beginAtoll(world, ['session', 'watch', id])
  await saying(/· The session has gone to event 3 \(all of it\)\./)
  child.kill('SIGINT')
  assert.equal((await ended).status, 130)
})
