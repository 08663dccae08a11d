// An ACP agent that misbehaves in the way that its first argument names. It calls no model.
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

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line)
  if (method === 'initialize') send({ id, result: { protocolVersion: 1, agentCapabilities: {} } })
  if (method === 'session/new' && fault === 'wants-login')
    send({ id, error: { code: -32000, message: 'Authentication required' } })
  else if (method === 'session/new') send({ id, result: { sessionId: 's1' } })
  if (method === 'session/prompt') prompt(id, params.prompt.at(-1).text)
}

function prompt(id, text) {
  if (text === 'deaf') return
  if (text === 'die') process.exit(9)
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
