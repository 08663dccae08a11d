/** The command line's way with sessions, whose agent is the test. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import { test } from 'node:test'
import type { StreamEvent } from '../../src/session/index.ts'
import { beginAtoll, runAtoll } from '../support/command-line.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { useWorld } from '../support/world.ts'

const world = useWorld()

type Subtype = 'success' | 'error_max_turns' | 'error_during_execution' | 'interrupted'

const begin = (argv: readonly string[], input?: string) => beginAtoll(world, argv, { input })
const atoll = (...argv: string[]) => runAtoll(world, ...argv)

test('session share: the link is printed alone, and shows the moment without a key', async () => {
  const { body } = await world.api.post('/v1/sessions', { prompt: 'share me', user_id: 'ann', name: 'shared' })
  const shared = await atoll('session', 'share', 'shared', '--event', '3', '--expires', '12h')
  assert.equal(shared.status, 0, shared.stderr)
  assert.match(shared.stdout, /^http:\/\/\S+\/v1\/capsules\/moment_\S{43}\n$/)
  const asked = { userId: 'ann', scope: 'read', event: 3, expiresInSeconds: 43_200 }
  assert.deepEqual(world.sessions.asked['capsule'], asked)
  assert.equal((await fetch(shared.stdout.trim())).status, 200)
  const ids = (await atoll('session', 'capsules', body.id, '-q')).stdout.trim().split('\n')
  assert.equal(ids.length, 1)
  assert.equal((await atoll('session', 'capsules', 'shared', '--revoke', ids[0]!)).status, 0)
  assert.equal((await fetch(shared.stdout.trim())).status, 404)
  for (const wrong of [
    ['--scope', 'steer'],
    ['--expires', '7'],
    ['--expires', '0d'],
    ['--event', 'x'],
  ])
    assert.equal((await atoll('session', 'share', 'shared', ...wrong)).status, 2, wrong.join(' '))
})

/** The user message of this text, once a client has sent it. */
async function sent(message: string) {
  return await eventually(() => {
    for (const [id, { messages }] of world.sessions.kept) {
      const found = messages.find(({ role, content }) => role === 'user' && content === message)
      if (found !== undefined) return { id, message: found }
    }
    throw new Error(`nobody has sent ${message}`)
  })
}

function say(id: string, ...events: object[]): void {
  for (const event of events) world.sessions.emit(id, event as StreamEvent['data'])
}

const words = (...texts: string[]) => ({
  type: 'assistant',
  message: { role: 'assistant', content: texts.map((one) => ({ type: 'text', text: one })) },
  session_id: 's',
})
const tool = {
  type: 'tool_use_summary',
  tool: 'bash',
  tool_use_id: 't',
  summary: 'Ran ls',
  is_error: false,
  duration_ms: 1,
}
const usage = { input_tokens: 1, cache_read_input_tokens: 0, cache_creation_input_tokens: 0, output_tokens: 1 }
const result = (subtype: Subtype, told: string) => ({
  ...{ type: 'result', subtype, result: told, num_turns: 1, duration_ms: 1, usage, session_id: 's' },
})
const complete = (id: string) => ({ type: 'turn_complete', message_id: id, session_id: 's' })

/** Answers the message as an agent does. */
async function answer(message: string, subtype: Subtype, told: string): Promise<string> {
  const { id, message: found } = await sent(message)
  say(id, words('I look around.'), tool, words(told), result(subtype, told), complete(found.id))
  found.state = 'consumed'
  return id
}

async function session(prompt: string): Promise<string> {
  const { body } = await world.api.post('/v1/sessions', { prompt, user_id: 'ada' })
  await answer(prompt, 'success', `done: ${prompt}`)
  return body.id as string
}

test('atoll session new --wait: the answer is alone on standard output, and all else is told beside it', async () => {
  const { ended, saying } = begin(['session', 'new', '--wait', '--name', 'reefs', '-'], 'About reefs')
  const { id } = await sent('About reefs')
  // An event of the session that is not on its stream.
  await saying(/· started\n/)
  say(id, { type: 'ready', harness: 'pi', version: '1' }, { type: 'configured', model: 'demo', tools: [], cwd: '/' })
  await answer('About reefs', 'success', 'A page\nabout \u001breefs.')
  const { status, stdout, stderr } = await ended
  assert.deepEqual([status, stdout], [0, 'A page\nabout \\x1breefs.\n'], stderr)
  assert.match(stderr, new RegExp(`session ${id}; its page: http`))
  assert.match(stderr, /agent is ready with model demo[^]*I look around\.\n· Ran ls\n/)
  assert.ok(!stderr.includes('reefs.'), 'the answer is not told twice')
})

test('atoll session send --wait: the end of its own turn counts, with the exit code of that', async () => {
  const id = await session('About corals')
  const cases: [Subtype, string, number, RegExp][] = [
    ['success', 'yes', 0, /^yes\n$/],
    [
      'error_during_execution',
      'the model is away',
      1,
      /atoll: the turn failed: the model is away \(atoll session logs/,
    ],
    ['error_max_turns', '', 1, /atoll: the turn ended at its bound/],
    ['interrupted', 'interrupted', 130, /the turn was interrupted/],
  ]
  for (const [at, [subtype, told, code, pattern]] of cases.entries()) {
    const message = `question ${at}`
    const { ended } = begin(['session', 'send', '--wait', id, message])
    await sent(message)
    // The turn of a message before it, as of another client.
    say(id, words('Another answer.'), result('error_during_execution', 'other'), complete('msg_other'))
    await answer(message, subtype, told)
    const { status, stdout, stderr } = await ended
    assert.equal(status, code, stderr)
    assert.match(code === 0 ? stdout : stderr, pattern)
    if (code !== 0) assert.equal(stdout, '')
  }
  const { ended } = begin(['session', 'send', '--wait', '--json', id, 'once more'])
  await answer('once more', 'error_during_execution', 'odd')
  const { status, stdout, stderr } = await ended
  const { sessionId, subtype, result: said } = JSON.parse(stdout) as Record<string, unknown>
  assert.deepEqual([status, sessionId, subtype, said], [1, id, 'error_during_execution', 'odd'])
  assert.equal((JSON.parse(stderr.trim().split('\n').at(-1) ?? '') as { error: string }).error, 'the turn failed: odd')
})

test('atoll session send --wait: it ends with the session, a boot that failed, and a message that is taken back', async () => {
  const id = await session('About eels')
  const kept = world.sessions.kept.get(id)
  assert.ok(kept)
  const back = begin(['session', 'send', '--wait', id, 'take it back'])
  ;(await sent('take it back')).message.state = 'cancelled'
  const taken = await back.ended
  assert.deepEqual([taken.status, taken.stdout], [1, ''])
  assert.match(taken.stderr, /taken back/)

  const failing = begin(['session', 'send', '--wait', id, 'boot'])
  await sent('boot')
  say(id, { type: 'error', message: 'no room', code: 'no_capacity', fatal: false })
  kept.session.activity = 'failed'
  const failed = await failing.ended
  assert.equal(failed.status, 1)
  assert.match(failed.stderr, /no room[^]*atoll: the session has failed/)

  Object.assign(kept.session, { activity: 'paused', pausedFor: 'budget' })
  const paused = await begin(['session', 'send', '--wait', id, 'too dear']).ended
  assert.deepEqual([paused.status, paused.stdout], [1, ''])
  assert.match(paused.stderr, /the budget of the session is spent, and the message waits/)
  delete kept.session.pausedFor

  kept.session.activity = 'working'
  const ending = begin(['session', 'send', '--wait', id, 'the last'])
  await sent('the last')
  await world.api.delete(`/v1/sessions/${id}`)
  const over = await ending.ended
  assert.equal(over.status, 1)
  assert.match(over.stderr, /atoll: the session has ended/)
  assert.equal((await atoll('session', 'send', '--wait', id, 'too late')).status, 6)
})

test('atoll session send --wait: why a session has failed is told, however late the stream brings it', async (t) => {
  const id = await session('About cuttlefish')
  const kept = world.sessions.kept.get(id)
  assert.ok(kept)
  const stream = world.sessions.stream.bind(world.sessions)
  const again = Promise.withResolvers<void>()
  let asked = 0
  // The stream brings nothing until the program asks again how much there is.
  t.mock.method(world.sessions, 'stream', async (...call: Parameters<typeof stream>): ReturnType<typeof stream> => {
    const found = await stream(...call)
    const isNewest = call[2].after === Number.MAX_SAFE_INTEGER
    if (isNewest && ++asked === 2) again.resolve()
    if (isNewest) return found
    const late = async function* () {
      await again.promise
      yield* found
    }
    return { ...found, [Symbol.asyncIterator]: late }
  })
  const { ended } = begin(['session', 'send', '--wait', id, 'how many arms'])
  await sent('how many arms')
  say(id, { type: 'error', message: 'no room', code: 'no_capacity', fatal: false })
  kept.session.activity = 'failed'
  const { status, stderr } = await ended
  assert.equal(status, 1)
  assert.match(stderr, /no room[^]*atoll: the session has failed/)
})

test('atoll session send --wait: Ctrl-C interrupts the turn', async (t) => {
  const id = await session('About whales')
  const interrupted = Promise.withResolvers<void>()
  t.mock.method(world.sessions, 'interrupt', async () => interrupted.resolve())
  const { child, ended, saying } = begin(['session', 'send', '--wait', id, 'sing'])
  await sent('sing')
  say(id, tool)
  await saying(/Ran ls/)
  child.kill('SIGINT')
  await interrupted.promise
  await answer('sing', 'interrupted', '')
  assert.deepEqual([(await ended).status, (await ended).stdout], [130, ''])
})

test('atoll session send --wait: a connection that breaks is told, made again, and loses nothing', async (t) => {
  const id = await session('About rays')
  const open = new Set<Socket>()
  const proxy = createServer((client) => {
    const server = connect(world.port, '127.0.0.1')
    for (const [one, other] of [
      [client, server],
      [server, client],
    ] as const) {
      open.add(one)
      one
        .on('error', () => undefined)
        .on('close', () => {
          open.delete(one)
          other.destroy()
        })
      one.pipe(other)
    }
  }).listen(0, '127.0.0.1')
  t.after(() => proxy.close())
  await once(proxy, 'listening')
  const { port } = proxy.address() as AddressInfo
  const { ended, saying } = begin(['session', 'send', '--wait', '--url', `http://127.0.0.1:${port}`, id, 'glide'])
  await sent('glide')
  say(id, tool)
  await saying(/Ran ls/)
  for (const socket of open) socket.destroy()
  await answer('glide', 'success', 'glided')
  const { status, stdout, stderr } = await ended
  assert.deepEqual([status, stdout], [0, 'glided\n'], stderr)
  assert.match(stderr, /· the connection broke; it is made again\n/)
})

test('atoll session chat: lines of a pipe are messages, one turn after the other', async () => {
  const { ended } = begin(['session', 'chat', '--user', 'ada'], 'first line\n\nsecond line\nthird line\n')
  const id = await answer('first line', 'success', 'one')
  assert.equal(await answer('second line', 'error_during_execution', 'two'), id)
  await answer('third line', 'success', 'three')
  const { status, stdout, stderr } = await ended
  assert.equal(status, 1, stderr)
  const each = (last: string) => `I look around.\n${last}\n`
  assert.equal(stdout, ['one', 'two', 'three'].map(each).join(''))
  assert.match(stderr, /· the turn failed: two\n/)
})

test('atoll session logs: each message stands before its turn, and it ends', async () => {
  const id = await session('About crabs')
  await world.api.post(`/v1/sessions/${id}/messages`, { message: 'and shrimps', user_id: 'ada' })
  const { message } = await sent('and shrimps')
  message.state = 'started'
  say(id, words('Shrimps too.'))
  await world.api.post(`/v1/sessions/${id}/messages`, { message: 'later', user_id: 'ada' })
  const { status, stdout } = await atoll('session', 'logs', id)
  const first = '> About crabs\nI look around.\n· Ran ls\ndone: About crabs\n'
  assert.deepEqual([status, stdout], [0, `${first}> and shrimps\nShrimps too.\n> later (waits)\n`])
  const lines = (await atoll('session', 'logs', id, '--json')).stdout.trim().split('\n')
  const events = lines.map((line) => JSON.parse(line) as { sequence: number; data: { type: string } })
  assert.deepEqual(
    events.map(({ sequence, data }) => `${sequence} ${data.type}`),
    ['1 assistant', '2 tool_use_summary', '3 assistant', '4 result', '5 turn_complete', '6 assistant'],
  )
})

test('atoll session watch --once: it ends with the last turn that is asked for, behind what was, and with a boot that failed', async () => {
  const id = await session('About squids')
  const kept = world.sessions.kept.get(id)
  assert.ok(kept)
  const first = 'I look around.\ndone: About squids\n'
  assert.equal((await atoll('session', 'watch', id, '--once')).stdout, first)
  assert.equal((await atoll('session', 'watch', id, '--once', '--after', '5')).stdout, '')
  for (const message of ['ink', 'arms'])
    await world.api.post(`/v1/sessions/${id}/messages`, { message, user_id: 'ada' })
  const { ended, saying } = begin(['session', 'watch', id, '--once'])
  await saying(/the turn is complete/)
  for (const message of ['ink', 'arms']) await answer(message, 'success', message)
  assert.equal((await ended).stdout, `${first}I look around.\nink\nI look around.\narms\n`)
  await world.api.post(`/v1/sessions/${id}/messages`, { message: 'boot', user_id: 'ada' })
  kept.session.activity = 'failed'
  const failed = await atoll('session', 'watch', id, '--once')
  assert.equal(failed.status, 0)
  assert.match(failed.stderr, /the session has failed/)
  await world.api.delete(`/v1/sessions/${id}`)
  assert.ok((await atoll('session', 'watch', id, '--once')).stdout.startsWith(first))
})

test('atoll session ls, get, rm: names stand for ids, lists can be scripted', async () => {
  const { body: made } = await world.api.post('/v1/sessions', { prompt: 'About kelp', user_id: 'kim', name: 'kelp' })
  const listed = await atoll('session', 'ls', '--user', 'kim')
  assert.match(listed.stdout, new RegExp(`^ID +NAME +STATE +CREATED .*\\n${made.id} +kelp +starting +\\d{4}-.* kim `))
  assert.equal((await atoll('session', 'ls', '-q', '--user', 'kim')).stdout, `${made.id}\n`)
  const got = await atoll('session', 'get', 'kelp')
  assert.match(got.stdout, /^id +session_[^]*activity +starting[^]*title +About kelp[^]*messages +1/)
  assert.equal((JSON.parse((await atoll('session', 'show', 'kelp', '--json')).stdout) as { id: string }).id, made.id)
  const gone = await atoll('session', 'rm', 'kelp', 'none-such')
  assert.equal(gone.status, 5)
  assert.match(gone.stderr, /none-such/)
  assert.equal((await world.api.get(`/v1/sessions/${made.id}`)).body.status, 'ended')
  assert.equal((await atoll('session', 'rm', '--all')).status, 2)
  assert.equal((await atoll('session', 'get', made.sandboxId)).status, 2)
})
