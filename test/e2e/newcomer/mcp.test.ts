/** The story of an MCP client that starts `atoll mcp`: a machine, a program on it, its URL, a checkpoint, a fork, an agent. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { test, type TestContext } from 'node:test'
import { Client } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'
import { askPreviewUntil } from '../preview.ts'
import { AtollServer } from '../server.ts'

const program = join(import.meta.dirname, '../../../bin/atoll')
const server = await AtollServer.startForFile()
const env = { ATOLL_URL: server.url, ATOLL_API_KEY: server.key, PATH: process.env['PATH'] ?? '', HOME: '/nonexistent' }

async function connect(t: TestContext, ...args: string[]): Promise<Client> {
  const client = new Client({ name: 'newcomer', version: '1' })
  await client.connect(new StdioClientTransport({ command: program, args: ['mcp', ...args], env, stderr: 'inherit' }))
  t.after(() => client.close())
  return client
}

async function call(client: Client, name: string, args: Record<string, unknown>) {
  const { structuredContent, isError, content } = await client.callTool({ name, arguments: args }, { timeout: 120_000 })
  assert.notEqual(isError, true, JSON.stringify(content))
  return structuredContent as Record<string, string> & { sandbox_ids: string[] }
}

test('mcp: from an empty machine to a fork of it, and an agent that answers', async (t) => {
  const client = await connect(t)
  const { sandbox_id = '' } = await call(client, 'sandbox_create', {})
  await call(client, 'write_file', { sandbox_id, path: '/workspace/index.html', content: '<h1>reefs</h1>' })
  await call(client, 'run', {
    sandbox_id,
    command: 'cd /workspace && (setsid python3 -m http.server 3000 --bind 127.0.0.1 >/dev/null 2>&1 &)',
  })
  const { url = '' } = await call(client, 'expose_port', { sandbox_id, port: 3000 })
  const seen = await askPreviewUntil(server, new URL(url).hostname, ({ status }) => status === 200)
  assert.equal(seen.body, '<h1>reefs</h1>')
  const { checkpoint_id } = await call(client, 'checkpoint', { sandbox_id, name: 'served' })
  const { sandbox_ids } = await call(client, 'fork', { checkpoint_id, count: 2 })
  assert.equal(sandbox_ids.length, 2)
  for (const fork of sandbox_ids) {
    const ran = await call(client, 'run', { sandbox_id: fork, command: 'curl -s http://127.0.0.1:3000/' })
    assert.equal(ran['stdout'], '<h1>reefs</h1>', 'its server runs on')
  }
  await call(client, 'delete', { checkpoint_id })
  for (const id of [sandbox_id, ...sandbox_ids]) await call(client, 'delete', { sandbox_id: id })
  const session = await call(client, 'session_start', { prompt: 'A page about coral reefs', wait_seconds: 60 })
  assert.equal(session['activity'], 'idle')
  assert.match(session['answer'] ?? '', /coral reefs/)
  const again = await call(client, 'session_send', {
    session_id: session['session_id'],
    message: 'Add a section about sea turtles',
    wait_seconds: 60,
  })
  assert.notEqual(again['answer'], session['answer'])
  await call(client, 'delete', { session_id: session['session_id'] })
})

for (const end of ['closes its input', 'ends it', 'kills it'] as const) {
  test(`mcp: a command ends with the client that waits for it and ${end}`, async (t) => {
    const client = await connect(t)
    const { sandbox_id = '' } = await call(client, 'sandbox_create', {})
    const mark = `mcp-${end.replaceAll(' ', '-')}`
    const runs = async () =>
      (await call(client, 'run', { sandbox_id, command: `pgrep -cf '^${mark}' || true` }))['stdout'] !== '0\n'
    const child = spawn(program, ['mcp'], { env, stdio: ['pipe', 'pipe', 'inherit'] })
    child.stdout.resume()
    const ended = once(child, 'close')
    const hello = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'x', version: '1' } }
    const args = { name: 'run', arguments: { sandbox_id, command: `exec -a ${mark} sleep 600`, timeout_seconds: 3600 } }
    for (const message of [
      { id: 1, method: 'initialize', params: hello },
      { method: 'notifications/initialized' },
      { id: 2, method: 'tools/call', params: args },
    ]) {
      child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`)
    }
    while (!(await runs()));
    if (end === 'closes its input') child.stdin.end()
    else child.kill(end === 'ends it' ? 'SIGTERM' : 'SIGKILL')
    await ended
    while (await runs());
  })
}

test('mcp: garbage is answered in words, and the end of the input ends the program', async () => {
  const child = spawn(program, ['mcp'], { env, stdio: ['pipe', 'pipe', 'pipe'] })
  void text(child.stderr)
  let said = ''
  const { promise: listed, resolve } = Promise.withResolvers<void>()
  child.stdout.setEncoding('utf8').on('data', (piece: string) => {
    said += piece
    if (said.includes('"sandbox_create"')) resolve()
  })
  const closed = once(child, 'close')
  const hello = { jsonrpc: '2.0', id: 1, method: 'initialize' }
  const params = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'x', version: '1' } }
  child.stdin.write(`no json\n{"jsonrpc":"2.0"}\n[]\n\n${JSON.stringify({ ...hello, params })}\n`)
  child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id: 2, method: 'tools/list' })}\n`)
  await listed
  child.stdin.end()
  const [status] = (await closed) as [number | null]
  assert.equal(status, 0)
  assert.match(said, /"id":1,.*"serverInfo"|"serverInfo".*"id":1/)
})

test('mcp: a wrong key and a wrong list of tools are told', async (t) => {
  const client = new Client({ name: 'newcomer', version: '1' })
  const wrong = { ...env, ATOLL_API_KEY: 'wrong' }
  await client.connect(new StdioClientTransport({ command: program, args: ['mcp'], env: wrong }))
  t.after(() => client.close())
  const { isError, content } = await client.callTool({ name: 'sandbox_create', arguments: {} })
  assert.equal(isError, true)
  assert.match(JSON.stringify(content), /unauthorized/)
  const refused = spawn(program, ['mcp', '--tools', 'nothing'], { env, stdio: ['ignore', 'pipe', 'pipe'] })
  const [words] = await Promise.all([text(refused.stderr), once(refused, 'close')])
  assert.equal(refused.exitCode, 2)
  assert.match(words, /there is no tool nothing; there are sandbox_create/)
})
