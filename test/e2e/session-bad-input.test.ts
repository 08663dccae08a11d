/** Bad input of clients and of agents, in front of the real server. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ApiClient } from '../support/api-client.ts'
import { isTurnComplete, readEvents } from './event-stream.ts'
import { sh, startSandbox, takeCheckpoint } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'
import {
  createSession,
  endSession,
  ends,
  errors,
  getSession,
  lastId,
  resultOf,
  sendAndRead,
  sendMessage,
  type Session,
} from './session-client.ts'

const server = await AtollServer.startForFile({
  env: { ATOLL_MODEL: 'demo', ATOLL_MODELS: 'demo,anthropic/listed', ANTHROPIC_BASE_URL: 'http://127.0.0.1:9' },
})
const api = new ApiClient(server.url, server.key)

const mib = 1024 * 1024

test('session: bad values are refused with the field, and no sandbox starts for them', async () => {
  const refused: [status: number, type: string, pattern: RegExp, body: object][] = [
    [400, 'invalid_request', /skills\["\.\.\/x"\].*"\.\."/, { agent_config: { skills: { '../x': '' } } }],
    [400, 'invalid_request', /skills.*"\.\."/, { agent_config: { skills: { '/a/../../etc/passwd': '' } } }],
    [400, 'invalid_request', /harness/, { agent_config: { harness: 'none' } }],
    [400, 'invalid_request', /harness/, { agent_config: { harness: 'acp:  ' } }],
    [400, 'invalid_request', /skills.*folder/, { agent_config: { skills: { '.': '' } } }],
    [503, 'unavailable', /qwen .*not installed: .*checkpoint_id/, { agent_config: { harness: 'acp:qwen --acp' } }],
    [503, 'unavailable', /claude is not installed: run .*checkpoint_id/, { agent_config: { harness: 'claude' } }],
    [400, 'invalid_request', /model/, { agent_config: { model: 'anthropic/unlisted' } }],
    [400, 'invalid_request', /max_tokens/, { agent_config: { max_tokens: 0 } }],
    [400, 'invalid_request', /max_cost_usd/, { agent_config: { max_cost_usd: 0 } }],
    [413, 'invalid_request', /prompt/, { prompt: 'x'.repeat(10 * mib) }],
    [413, 'invalid_request', /system_prompt/, { agent_config: { system_prompt: 'x'.repeat(mib + 1) } }],
  ]
  for (const [status, type, pattern, body] of refused) {
    const answer = await api.post('/v1/sessions', { prompt: 'x', user_id: 'ada', ...body })
    assert.deepEqual([answer.status, answer.body.error.type], [status, type], answer.text)
    assert.match(answer.body.error.message, pattern)
  }
  assert.deepEqual((await api.get('/api/sandboxes')).body, [])
  assert.deepEqual((await api.get('/v1/sessions')).body.data, [])
})

test('session: a system prompt of 1 MiB is taken; a message of 10 MiB and a bad last-event-id are refused', async () => {
  const { id } = await createSession(server, 'run: echo fine', {
    agent_config: { system_prompt: 'Be kind. '.repeat(116_508) },
  })
  const events = await readEvents(server, id, isTurnComplete)
  assert.match(JSON.stringify(events), /fine/)
  assert.equal(resultOf(events)?.['subtype'], 'success')
  const path = `/v1/sessions/${id}`
  for (const bytes of [10 * mib, 256 * 1024 + 1]) {
    const answer = await api.post(`${path}/messages`, { message: 'x'.repeat(bytes), user_id: 'ada' })
    assert.equal(answer.status, 413)
  }
  for (const last of ['-1', '1.5', 'x', '1e3', '9'.repeat(20)]) {
    const answer = await api.get(`${path}/events`, { headers: { 'last-event-id': last } })
    assert.deepEqual([answer.status, answer.body.error.type], [400, 'invalid_request'])
    assert.match(answer.body.error.message, /last-event-id/i)
  }
  assert.equal((await getSession(server, id)).messages.length, 2)
  await api.delete(path)
})

/** Speaks the line protocol, but for what a message asks for. */
const evilAgent = `#!/usr/bin/python3
import json, os, sys
def say(**event): print(json.dumps(event), flush=True)
say(type='ready', harness='evil', version='0')
for line in sys.stdin:
    command = json.loads(line) if line.strip() else {'type': ''}
    if command['type'] == 'configure':
        say(type='configured', model='evil', tools=[], cwd='/')
    if command['type'] != 'message' or command['content'] == 'silence': continue
    out = sys.stdout.buffer
    if command['content'] == 'garbage': out.write(os.urandom(1 << 20).replace(b'\\n', b'') + b'\\n{"type":\\n[]\\nnull\\n' + b'[' * 100000 + b'\\n')
    if command['content'] == 'long line': out.write(b'x' * (50 << 20) + b'\\n')
    if command['content'] == 'flood':
        content = [{'type': 'text', 'text': 'x' * 100000}]
        event = {'type': 'assistant', 'message': {'role': 'assistant', 'content': content}, 'session_id': 's'}
        os.execv('/usr/bin/yes', ['yes', json.dumps(event)])
    out.flush()
    kinds = ['input', 'cache_read_input', 'cache_creation_input', 'output']
    usage = {kind + '_tokens': 0 for kind in kinds}
    say(type='result', subtype='success', result=command['content'], num_turns=1, duration_ms=1, usage=usage, session_id='s')
    say(type='turn_complete', message_id=command['messageId'], session_id='s')
    while command['content'] == 'flood later': say(type='ready', harness='evil', version='0')
`

/** Creates a session on a machine with that agent in place of Node. */
async function createEvilSession(prompt: string): Promise<Session> {
  const sandboxId = await startSandbox(server)
  await server.fetch(`/api/sandboxes/${sandboxId}/files?path=/usr/local/bin/node`, { method: 'PUT', body: evilAgent })
  const checkpoint_id = await takeCheckpoint(server, sandboxId, 'evil', 'disk_only')
  return await createSession(server, prompt, { checkpoint_id })
}

test('agent: garbage or a line of 50 MiB gives one warning, and a silent agent can be interrupted', async () => {
  const { id } = await createEvilSession('garbage')
  let last = 0
  const turn = async () => {
    const events = await readEvents(server, id, isTurnComplete, last)
    last = events.at(-1)?.id ?? 0
    return events
      .filter(({ data }) => ['error', 'result'].includes(data.type))
      .map(({ data }) => data['code'] ?? data['result'])
  }
  const send = (message: string) => api.post(`/v1/sessions/${id}/messages`, { message, user_id: 'ada' })
  assert.deepEqual(await turn(), ['agent_output_invalid', 'garbage'])
  await send('long line')
  assert.deepEqual(await turn(), ['long line'], 'once for each agent process')

  await send('silence')
  const queued = (await send('hello')).body.messages as { content: string; state: string }[]
  assert.equal(queued.find(({ content }) => content === 'hello')?.state, 'queued')
  await api.post(`/v1/sessions/${id}/interrupt`, { user_id: 'ada' })
  const [interrupted] = (await readEvents(server, id, isTurnComplete, last)).filter(
    ({ data }) => data.type === 'result',
  )
  assert.equal(interrupted?.data['subtype'], 'interrupted')
  last = (interrupted?.id ?? 0) + 1
  assert.deepEqual(await turn(), ['hello'])
  await api.delete(`/v1/sessions/${id}`)
})

test('agent: one that floods is killed at the limit of its turn, and the session goes on with another process', async () => {
  const created = await createEvilSession('flood')
  const flooded = await readEvents(server, created.id, isTurnComplete)
  assert.deepEqual(ends(flooded), ['error_during_execution', 'turn_complete'])
  assert.deepEqual(errors(flooded), [['output_limit', false]])
  const bytes = flooded.reduce((sum, { data }) => sum + JSON.stringify(data).length, 0)
  assert.ok(bytes < 65 * 1024 * 1024, `${bytes} bytes were kept`)
  // The next process ends its turn and then goes on talking; nothing of that is kept, and it is killed as well.
  await sendMessage(server, created.id, 'flood later')
  const later = await readEvents(server, created.id, ({ data }) => data['code'] === 'output_limit', lastId(flooded))
  assert.deepEqual(ends(later), ['success', 'turn_complete'])
  assert.ok(later.length < 10, `${later.length} events`)
  const good = await sendAndRead(server, created.id, 'be good', later)
  assert.deepEqual(ends(good), ['success', 'turn_complete'])
  assert.equal(await sh(server, created.sandboxId, 'pgrep -xc yes'), '0')
  await endSession(server, created.id)
})
