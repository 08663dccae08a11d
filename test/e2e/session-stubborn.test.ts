/** Agents in real sandboxes that do not do as they are told. */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { isTurnComplete, readEvents, type StreamedEvent } from './event-stream.ts'
import { sh } from './sandbox-calls.ts'
import { AtollServer } from './server.ts'
import { createSession } from './session-client.ts'

let server: AtollServer

before(async () => {
  server = await AtollServer.start()
})

after(() => server[Symbol.asyncDispose]())

const create = (prompt: string, more?: Record<string, unknown>) => createSession(server, prompt, more)
const run = (sandboxId: string, script: string) => sh(server, sandboxId, script)

async function send(id: string, message: string): Promise<void> {
  await server.json('POST', `/v1/sessions/${id}/messages`, { message, user_id: 'ada' })
}

function ends(events: readonly StreamedEvent[]): unknown[] {
  return events
    .filter(({ data }) => data.type === 'result' || data.type === 'turn_complete')
    .map(({ data }) => data['subtype'] ?? data.type)
}

const isToolCall = ({ data }: StreamedEvent) => JSON.stringify(data).includes('"tool_use"')

test('an interrupt in the middle of a tool call ends the turn, its command with it, and the conversation goes on', async () => {
  const created = await create('run: sleep 61.25')
  const begun = await readEvents(server, created.id, isToolCall)
  const running = 'until pgrep -f "^sleep 61.25" >/dev/null; do sleep 0.05; done; pgrep -xf "sleep 61.25" | wc -l'
  assert.equal((await run(created.sandboxId, running)).trim(), '1')
  await server.json('POST', `/v1/sessions/${created.id}/interrupt`, { user_id: 'ada' })
  const rest = await readEvents(server, created.id, isTurnComplete, begun.at(-1)?.id)
  assert.deepEqual(ends(rest), ['interrupted', 'turn_complete'])
  assert.equal(
    rest.some(({ data }) => data.type === 'error'),
    false,
  )
  assert.equal((await run(created.sandboxId, 'pgrep -xf "sleep 61.25" | wc -l')).trim(), '0')
  await send(created.id, 'run: echo still here')
  const next = await readEvents(server, created.id, isTurnComplete, rest.at(-1)?.id)
  assert.deepEqual(ends(next), ['success', 'turn_complete'])
  assert.match(JSON.stringify(next), /still here/)
  await server.json('DELETE', `/v1/sessions/${created.id}`)
})

test('an agent that is stopped in its tracks is killed, and the next one knows the conversation', async () => {
  const created = await create('A page about tide pools')
  const first = await readEvents(server, created.id, isTurnComplete)
  await send(created.id, 'run: sleep 61.5')
  const begun = await readEvents(server, created.id, isToolCall, first.at(-1)?.id)
  await run(created.sandboxId, 'pkill -STOP -f agent/start.mjs')
  await server.json('POST', `/v1/sessions/${created.id}/interrupt`, { user_id: 'ada' })
  const rest = await readEvents(server, created.id, isTurnComplete, begun.at(-1)?.id)
  assert.deepEqual(ends(rest), ['interrupted', 'turn_complete'])
  await send(created.id, 'Add a section about sea stars')
  const next = await readEvents(server, created.id, isTurnComplete, rest.at(-1)?.id)
  assert.deepEqual(ends(next), ['success', 'turn_complete'])
  assert.equal(next.filter(({ data }) => data.type === 'ready').length, 1)
  const agentSession = (events: StreamedEvent[]) => events.at(-1)?.data['session_id']
  assert.equal(agentSession(next), agentSession(first))
  // The demo model edits the page that its conversation knows instead of building a new one.
  assert.match(await run(created.sandboxId, 'cat /workspace/app/index.html'), /tide pools[\s\S]*sea stars/i)
  const all = await readEvents(server, created.id, (_event, seen) => seen.filter(isTurnComplete).length === 3)
  assert.deepEqual(
    all.map(({ id }) => id),
    all.map((_, index) => index + 1),
  )
  await server.json('DELETE', `/v1/sessions/${created.id}`)
})

/** Speaks the line protocol; floods when it is asked to, and after that whatever it is asked. */
const flooder = `#!/usr/bin/python3
import json, os, sys
def say(**event): print(json.dumps(event), flush=True)
say(type='ready', harness='evil', version='0')
for line in sys.stdin:
    command = json.loads(line) if line.strip() else {'type': ''}
    if command['type'] == 'configure':
        say(type='configured', model='evil', tools=[], cwd='/')
    if command['type'] == 'message' and command['content'] == 'flood':
        content = [{'type': 'text', 'text': 'x' * 100000}]
        event = {'type': 'assistant', 'message': {'role': 'assistant', 'content': content}, 'session_id': 's'}
        os.execv('/usr/bin/yes', ['yes', json.dumps(event)])
    elif command['type'] == 'message':
        usage = {'input_tokens': 0, 'output_tokens': 0}
        say(type='result', subtype='success', result='ok', num_turns=1, duration_ms=1, usage=usage, session_id='s')
        say(type='turn_complete', message_id=command['messageId'], session_id='s')
        while command['content'] == 'flood later': say(type='ready', harness='evil', version='0')
`

test('an agent that floods is killed at the bound of its turn; the session goes on with another process', async () => {
  const { sandboxID } = (await server.json('POST', '/api/sandboxes', {})) as { sandboxID: string }
  await server.fetch(`/api/sandboxes/${sandboxID}/files?path=/usr/local/bin/node`, { method: 'PUT', body: flooder })
  const checkpoint = (await server.json('POST', `/api/sandboxes/${sandboxID}/checkpoints`, {
    name: 'evil',
    kind: 'disk_only',
  })) as { id: string }
  const created = await create('flood', { checkpoint_id: checkpoint.id })
  const flooded = await readEvents(server, created.id, isTurnComplete)
  assert.deepEqual(ends(flooded), ['error_during_execution', 'turn_complete'])
  assert.deepEqual(
    flooded.filter(({ data }) => data.type === 'error').map(({ data }) => [data['code'], data['fatal']]),
    [['output_limit', false]],
  )
  const bytes = flooded.reduce((sum, { data }) => sum + JSON.stringify(data).length, 0)
  assert.ok(bytes < 65 * 1024 * 1024, `${bytes} bytes were kept`)
  // The next process ends its turn and then goes on talking; nothing of that is kept, and it is killed as well.
  await send(created.id, 'flood later')
  const later = await readEvents(server, created.id, ({ data }) => data['code'] === 'output_limit', flooded.at(-1)?.id)
  assert.deepEqual(ends(later), ['success', 'turn_complete'])
  assert.ok(later.length < 10, `${later.length} events`)
  await send(created.id, 'be good')
  const good = await readEvents(server, created.id, isTurnComplete, later.at(-1)?.id)
  assert.deepEqual(ends(good), ['success', 'turn_complete'])
  assert.equal((await run(created.sandboxId, 'pgrep -xc yes')).trim(), '0')
  await server.json('DELETE', `/v1/sessions/${created.id}`)
  await server.json('DELETE', `/api/sandboxes/${sandboxID}`)
})
