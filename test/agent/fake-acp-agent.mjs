// An ACP agent that misbehaves in the way that its first argument names. It calls no model, but runs commands: `run: <command>`.
import { spawn } from 'node:child_process'
import { createServer } from 'node:http'
import { createInterface } from 'node:readline'

const [, , fault] = process.argv
const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`)
const update = (fields) => send({ method: 'session/update', params: { sessionId: 's1', update: fields } })

if (fault === 'dies-at-start') {
  process.stderr.write('no licence found\n')
  process.exit(7)
}
if (fault === 'noisy')
  process.stdout.write(`Welcome!\n{"log":"starting"}\n[1,2]\nnull\n\u0000\n${'x'.repeat(5 * 1024 * 1024)}\n`)

/** Commands of prompts, by id of the request. */
const running = new Map()

// A server of its own, as programs have for editors and tools; it asks the model for whoever comes.
if (fault === 'serves') {
  const server = createServer(async (_request, response) => {
    const { ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY, ANTHROPIC_MODEL: model } = process.env
    const answer = await fetch(`${ANTHROPIC_BASE_URL}/v1/messages`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-api-key': ANTHROPIC_API_KEY },
      body: JSON.stringify({ model, max_tokens: 100, messages: [{ role: 'user', content: 'run: echo' }] }),
    })
    response.writeHead(answer.status).end(await answer.text())
  })
  server.listen(0)
}

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line)
  if (method === 'initialize') send({ id, result: { protocolVersion: 1, agentCapabilities: {} } })
  if (method === 'session/new' && fault === 'wants-login')
    send({ id, error: { code: -32000, message: 'Authentication required' } })
  else if (method === 'session/new') send({ id, result: { sessionId: 's1' } })
  if (method === 'session/cancel') for (const [prompted, child] of running) cancel(prompted, child)
  if (method === 'session/prompt') prompt(id, params.prompt.at(-1).text)
}

function cancel(id, child) {
  if (fault === 'leaves-commands') send({ id, result: { stopReason: 'cancelled' } })
  else if (fault !== 'ignores-cancel') process.kill(-child.pid, 'SIGKILL')
}

function prompt(id, text) {
  if (text === 'deaf')
    return update({ sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: 'I hear' } })
  if (text.startsWith('run: ')) return run(id, text.slice('run: '.length))
  if (text === 'die') process.exit(9)
  if (text.startsWith('say ')) {
    const answer = 'a'.repeat(Number(text.slice('say '.length)))
    update({ sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: answer } })
    return send({ id, result: { stopReason: 'end_turn' } })
  }
  if (text === 'call often') {
    const call = { sessionUpdate: 'tool_call', kind: 'read', status: 'pending' }
    for (let number = 0; number < 1003; number++) update({ ...call, toolCallId: `c${number}`, title: 'Look' })
    return send({ id, result: { stopReason: 'end_turn' } })
  }
  if (text === 'end at length') return send({ id, result: { stopReason: 'end_turn', _meta: 'a'.repeat(20_000_000) } })
  if (text === 'fail') return send({ id, error: { code: -32603, message: 'something broke' } })
  process.stdout.write('warning: not JSON\n{"jsonrpc":"2.0","id":99,"result":{}}\n{"jsonrpc":"2.0","method":7}\n')
  update({ sessionUpdate: 'of_a_newer_version', what: 1 })
  update({ sessionUpdate: 'tool_call_update', toolCallId: 'unknown', status: 'completed' })
  update({ sessionUpdate: 'tool_call', toolCallId: 'c1', title: 'Look', kind: 'read', status: 'pending' })
  update({
    sessionUpdate: 'tool_call',
    toolCallId: 'c2',
    title: 'Never ends',
    kind: 'execute',
    rawInput: { command: 'x' },
  })
  update({ sessionUpdate: 'tool_call_update', toolCallId: 'c1', status: 'completed' })
  send({ method: 'session/update', params: 'nonsense' })
  send({ id: 500, method: 'fs/read_text_file', params: { sessionId: 's1', path: '/etc/passwd' } })
  send({ id: 501, method: 'no/such_method', params: {} })
  update({ sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: `You said ${text}.` } })
  send({ id, result: { stopReason: 'end_turn' } })
}

function run(id, command) {
  const child = spawn('bash', ['-c', command], { detached: true, stdio: ['ignore', 'pipe', 'inherit'] })
  running.set(id, child)
  let output = ''
  child.stdout.on('data', (chunk) => (output += chunk))
  child.once('exit', (_code, signal) => {
    running.delete(id)
    update({ sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: output } })
    send({ id, result: { stopReason: signal ? 'cancelled' : 'end_turn' } })
  })
}
