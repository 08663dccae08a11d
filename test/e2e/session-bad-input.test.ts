/** Sessions that must not be, and agents that must not be believed, in front of the real server. */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { ApiClient } from '../support/api-client.ts'
import { isTurnComplete, readEvents } from './event-stream.ts'
import { AtollServer } from './server.ts'
import { createSession, getSession } from './session-client.ts'

let server: AtollServer
let api: ApiClient

before(async () => {
  server = await AtollServer.start({
    env: { ATOLL_MODEL: 'demo', ATOLL_MODELS: 'demo,anthropic/listed', ANTHROPIC_BASE_URL: 'http://127.0.0.1:9' },
  })
  api = new ApiClient(server.url, server.key)
})

after(() => server[Symbol.asyncDispose]())

const mib = 1024 * 1024

test('what no session may be made of is refused with the field, and no sandbox starts for it', async () => {
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

test('a system prompt of 1 MiB is a system prompt; a message of 10 MiB is none, and a bad place in the stream is named', async () => {
  const { id } = await createSession(server, 'run: echo fine', {
    agent_config: { system_prompt: 'Be kind. '.repeat(116_508) },
  })
  const events = await readEvents(server, id, isTurnComplete)
  assert.match(JSON.stringify(events), /fine/)
  assert.equal(events.find(({ data }) => data.type === 'result')?.data['subtype'], 'success')
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

/** Speaks the line protocol, after it has said what nobody should. */
const garbler = `#!/usr/bin/python3
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
    out.flush()
    usage = {'input_tokens': 0, 'output_tokens': 0}
    say(type='result', subtype='success', result=command['content'], num_turns=1, duration_ms=1, usage=usage, session_id='s')
    say(type='turn_complete', message_id=command['messageId'], session_id='s')
`

test('an agent that prints garbage or a line of 50 MiB is warned of once, one that says nothing keeps nobody', async () => {
  const sandboxId = (await api.post('/api/sandboxes', {})).body.sandboxID as string
  await server.fetch(`/api/sandboxes/${sandboxId}/files?path=/usr/local/bin/node`, { method: 'PUT', body: garbler })
  const checkpoint = await api.post(`/api/sandboxes/${sandboxId}/checkpoints`, { name: 'evil', kind: 'disk_only' })
  const { id } = await createSession(server, 'garbage', { checkpoint_id: checkpoint.body.id })
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
