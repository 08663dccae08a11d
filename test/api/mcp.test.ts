/** The MCP server at `/mcp`, as the official client sees it. */
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { useWorld } from '../support/world.ts'

const world = useWorld()

interface Connection {
  tools?: string
  key?: string
  /** Of the protocol: `legacy` is that of 2025, which most clients speak. */
  mode?: 'legacy' | 'auto'
}

async function connect(
  t: TestContext,
  { tools, key = world.api.key, mode = 'legacy' }: Connection = {},
): Promise<Client> {
  const client = new Client({ name: 'test', version: '1' }, { versionNegotiation: { mode } })
  const url = new URL('/mcp', world.origin)
  if (tools !== undefined) url.searchParams.set('tools', tools)
  const transport = new StreamableHTTPClientTransport(url, {
    requestInit: { headers: { Authorization: `Bearer ${key}` } },
  })
  await client.connect(transport)
  t.after(() => client.close())
  return client
}

/** The structured result of a tool; its text says the same. */
async function call(client: Client, name: string, args: Record<string, unknown>, options = {}) {
  const { structuredContent, content, isError } = await client.callTool({ name, arguments: args }, options)
  const [text] = content as { type: string; text: string }[]
  assert.equal(isError ?? false, false, text?.text)
  assert.deepEqual(JSON.parse(text?.text ?? ''), structuredContent)
  return structuredContent as Record<string, unknown> & { sandbox_id: string; checkpoint_id: string }
}

async function refusal(client: Client, name: string, args: Record<string, unknown>): Promise<string> {
  const { content, isError } = await client.callTool({ name, arguments: args })
  assert.equal(isError, true)
  return (content as { text: string }[]).map(({ text }) => text).join('\n')
}

test('tools: ten by default, which can end what they make, each with a schema, a result, hints and a short text', async (t) => {
  const { tools } = await (await connect(t)).listTools()
  const names = ['checkpoint', 'delete', 'expose_port', 'fork', 'read_file', 'run', 'sandbox_create', 'session_send']
  assert.deepEqual(tools.map(({ name }) => name).toSorted(), [...names, 'session_start', 'write_file'])
  for (const { name, title, description = '', inputSchema, outputSchema, annotations = {} } of tools) {
    assert.ok(title, name)
    assert.ok(description.length < 150, `${name}: each word costs the caller`)
    assert.equal(inputSchema['type'], 'object')
    assert.equal(outputSchema?.['type'], 'object')
    assert.equal(typeof annotations.readOnlyHint, 'boolean')
    assert.equal(annotations.readOnlyHint && annotations.destructiveHint, false)
  }
  assert.ok(JSON.stringify(tools).length < 12_000)
})

test('tools: chosen by name and by beginning; one that is none is refused', async (t) => {
  const some = await (await connect(t, { tools: 'run, session_*' })).listTools()
  assert.ok(some.tools.every(({ name }) => name === 'run' || name.startsWith('session_')))
  assert.ok(some.tools.length > 5)
  const all = await (await connect(t, { tools: 'all' })).listTools()
  assert.ok(all.tools.some(({ name }) => name === 'sandbox_hibernate'))
  const { status, body } = await world.api.post('/mcp?tools=run,nothing', {})
  assert.deepEqual([status, body.field], [400, 'tools'])
})

test('sandbox, checkpoint: a name serves where an id does', async (t) => {
  const client = await connect(t, { tools: 'all' })
  const { sandboxID } = (await world.api.post('/api/sandboxes', { name: 'by-mcp' })).body
  const ran = await call(client, 'run', { sandbox_id: 'by-mcp', command: 'echo hi' })
  assert.equal(ran['stdout'], 'hi\n')
  await world.api.post('/api/sandboxes/by-mcp/checkpoints', { name: 'v1', kind: 'disk_only' })
  const forked = await call(client, 'fork', { checkpoint_id: 'by-mcp/v1' })
  assert.equal((forked['sandbox_ids'] as string[]).length, 1)
  assert.deepEqual((await call(client, 'delete', { sandbox_id: 'by-mcp' }))['deleted'], ['by-mcp'])
  assert.equal((await world.api.get(`/api/sandboxes/${sandboxID}`)).body.status, 'stopped')
  assert.match(await refusal(client, 'run', { sandbox_id: 'by-mcp', command: 'echo hi' }), /no sandbox is named by-mcp/)
})

test('sandbox: create, run, files, a URL and the end', async (t) => {
  const client = await connect(t, { tools: 'all' })
  const { sandbox_id } = await call(client, 'sandbox_create', { envs: { GREETING: 'hello' } })
  const ran = await call(client, 'run', { sandbox_id, command: 'echo "$GREETING"; echo no >&2; exit 4', cwd: '/tmp' })
  assert.deepEqual(ran, { sandbox_id, exit_code: 4, stdout: 'hello\n', stderr: 'no\n' })
  const path = '/tmp/mcp test/a.txt'
  await call(client, 'write_file', { sandbox_id, path, content: 'one\ntwo\nthree' })
  const read = await call(client, 'read_file', { sandbox_id, path, offset: 1, limit: 1 })
  assert.deepEqual(read, { sandbox_id, path, content: 'two', encoding: 'utf8', size: 13 })
  const bytes = Buffer.from([0, 255, 1])
  await call(client, 'write_file', { sandbox_id, path, content: bytes.toString('base64'), encoding: 'base64' })
  const binary = await call(client, 'read_file', { sandbox_id, path })
  assert.deepEqual([binary['content'], binary['encoding']], [bytes.toString('base64'), 'base64'])
  const { entries } = await call(client, 'list_files', { sandbox_id, path: '/tmp/mcp test' })
  assert.deepEqual(entries, [{ name: 'a.txt', is_dir: false, size: 3 }])
  await call(client, 'run', { sandbox_id, command: `chmod 600 '${path}'` })
  assert.match(await refusal(client, 'read_file', { sandbox_id, path, user: 'nobody' }), /^forbidden: /)
  await call(client, 'read_file', { sandbox_id, path, user: 'root' })
  const quiet = await call(client, 'expose_port', { sandbox_id, port: 3000 })
  assert.match(String(quiet['url']), new RegExp(`^http://${sandbox_id}-p3000\\.`))
  assert.deepEqual(
    [quiet['listening'], String(quiet['note'])],
    [false, 'Nothing listens on port 3000 yet: start a server there, in the background.'],
  )
  const { sandboxes } = await call(client, 'sandbox_list', { status: 'running' })
  assert.ok((sandboxes as { sandbox_id: string }[]).some((one) => one.sandbox_id === sandbox_id))
  const ended = await call(client, 'sandbox_create', { ttl_seconds: 1, on_idle: 'stop' })
  const stopped = async () => (await world.api.get(`/api/sandboxes/${ended['sandbox_id']}`)).body
  await eventually(async () => (await stopped()).reason === 'idle')
  assert.equal((await world.api.get(`/api/sandboxes/${sandbox_id}`)).body.onIdle, 'hibernate')
  assert.deepEqual(await call(client, 'delete', { sandbox_id }), { deleted: [sandbox_id] })
  assert.match(await refusal(client, 'run', { sandbox_id, command: 'true' }), /^sandbox_stopped: /)
})

test('run: progress comes while it runs, and long output keeps its end', async (t) => {
  const client = await connect(t)
  const { sandbox_id } = await call(client, 'sandbox_create', {})
  const lines: string[] = []
  const folder = world.machines.folder(sandbox_id)
  // It goes on when a line was told: on a busy machine several would be told as one.
  const untilTold = (line: string) => `until test -e ${folder}/${line}; do sleep 0.05; done`
  const command = `echo first; ${untilTold('first')}; sleep 0.5; echo second; ${untilTold('second')}`
  const onprogress = ({ message = '' }: { message?: string }) => {
    lines.push(message)
    writeFileSync(join(folder, message), '')
  }
  await call(client, 'run', { sandbox_id, command }, { onprogress })
  assert.deepEqual(lines, ['first', 'second'])
  const long = await call(client, 'run', { sandbox_id, command: 'seq 20000; echo end' })
  assert.ok(String(long['stdout']).endsWith('20000\nend\n') && String(long['stdout']).length <= 30_000)
  assert.equal(long['truncated'], true)
})

for (const mode of ['legacy', 'auto'] as const) {
  test(`run: a command ends with the client that waits for it, protocol ${mode}`, async (t) => {
    const client = await connect(t, { mode })
    const { sandbox_id } = await call(client, 'sandbox_create', {})
    const mark = `mcp-${mode}-${Date.now()}`
    const runs = async () =>
      (await call(client, 'run', { sandbox_id, command: `pgrep -cf '^${mark}' || true` }))['stdout'] !== '0\n'
    const other = await connect(t, { mode })
    const args = { sandbox_id, command: `exec -a ${mark} sleep 600` }
    const lost = assert.rejects(other.callTool({ name: 'run', arguments: args }))
    await eventually(runs)
    await other.close()
    await lost
    await eventually(async () => !(await runs()))
    const controller = new AbortController()
    const { signal } = controller
    const cancelled = assert.rejects(client.callTool({ name: 'run', arguments: args }, { signal }))
    await eventually(runs)
    // Another client, whose requests have the same ids, cancels its own alone.
    await cancelOf(t, mode)
    assert.ok(await runs())
    controller.abort()
    await cancelled
    await eventually(async () => !(await runs()))
  })
}

/** Makes as many requests as the tests have open by then, and cancels each. */
async function cancelOf(t: TestContext, mode: 'legacy' | 'auto'): Promise<void> {
  const client = await connect(t, { mode })
  for (let request = 0; request < 20; request += 1) {
    const controller = new AbortController()
    const asked = client.callTool({ name: 'session_send', arguments: {} }, { signal: controller.signal })
    controller.abort()
    await assert.rejects(asked)
  }
}

test('arguments: one that a tool does not have is refused, with those that it has', async (t) => {
  const client = await connect(t)
  const words = await refusal(client, 'sandbox_create', { templat: 'python' })
  assert.match(words, /there is no argument templat; there are name, template, ttl_seconds/)
  assert.match(await refusal(client, 'run', { sandbox_id: 'sb-x' }), /command: is required$/)
  assert.match(await refusal(client, 'delete', {}), /sandbox_id, session_id and checkpoint_id/)
})

test('errors: the model reads what was wrong; a wrong key and another organisation see nothing', async (t) => {
  const client = await connect(t)
  assert.match(await refusal(client, 'run', { sandbox_id: 'sb-none', command: 'true' }), /^not_found: /)
  assert.match(await refusal(client, 'sandbox_create', { memory_mb: 999_999_999 }), /memoryMB/)
  assert.match(await refusal(client, 'run', { sandbox_id: 'sb-none' }), /command/)
  const { sandbox_id } = await call(client, 'sandbox_create', {})
  const stranger = await connect(t, { key: world.stranger.key })
  assert.match(await refusal(stranger, 'run', { sandbox_id, command: 'true' }), /^not_found: /)
  await assert.rejects(connect(t, { key: 'wrong' }))
})

test('garbage: is refused, and the next request is served', async (t) => {
  const headers = { 'X-API-Key': world.api.key, 'Content-Type': 'application/json' }
  const post = (body: string) => fetch(`${world.origin}/mcp`, { method: 'POST', headers, body })
  for (const body of [
    '',
    '{',
    '[]',
    '{}',
    '"x"',
    'null',
    '{"jsonrpc":"2.0","id":1,"method":"nothing"}',
    '{"jsonrpc":"2.0"}',
  ]) {
    const { status } = await post(body)
    assert.ok(status >= 400 && status < 500, `${body}: ${status}`)
  }
  for (const method of ['GET', 'DELETE'])
    assert.equal((await fetch(`${world.origin}/mcp`, { method, headers })).status, 405)
  assert.equal((await fetch(`${world.origin}/mcp`, { method: 'POST', body: '{}' })).status, 401)
  assert.ok((await (await connect(t)).listTools()).tools.length > 0)
})

test('session: its turns, a rewind and its preview, forks and a comparison', async (t) => {
  const client = await connect(t, { tools: 'session_*' })
  const { session_id } = await call(client, 'session_start', { prompt: 'About kelp', user_id: 'ann' })
  const { turns, undo_checkpoint_id } = await call(client, 'session_timeline', { session_id })
  const [turn] = turns as { message: string; tokens: number; forks: string[] }[]
  assert.deepEqual([turn?.message, turn?.tokens, turn?.forks], ['About kelp', 7, ['session_fork']])
  const preview = await call(client, 'session_rewind', { session_id, to: 3, preview: true })
  assert.equal((preview['preview'] as { to_event: number }).to_event, 3)
  const rewound = await call(client, 'session_rewind', { session_id, to: undo_checkpoint_id, what: 'machine' })
  assert.equal(rewound['undo_checkpoint_id'], 'cp-undo')
  const to = { checkpointId: 'cp-undo' }
  assert.deepEqual(world.sessions.asked['rewind'], { userId: 'ann', to, what: 'machine' })
  world.sessions.kept.get(session_id as string)!.session.activity = 'idle'
  const { forks } = await call(client, 'session_fork', { session_id, at: 5, messages: ['blue', 'green'] })
  assert.equal((forks as { after_event: number }[])[1]?.after_event, 3)
  const compared = await call(client, 'session_diff', { session_id, against: 'session_other', patch: true })
  assert.deepEqual([compared['patch'], compared['against_tokens']], ['diff --git a/a b/a\n', 7])
  assert.match(await refusal(client, 'session_rewind', { session_id, to: 'sb-1' }), /must be a message/)
})

test('tools: secrets are listed, bounded and deleted, and none takes or shows a value', async (t) => {
  const client = await connect(t, { tools: 'secret_*' })
  const { tools } = await client.listTools()
  assert.equal(tools.length, 4)
  assert.ok(!JSON.stringify(tools.map(({ inputSchema }) => inputSchema)).includes('"value"'))
  await call(client, 'secret_store_create', { store: 'of-a-model', egress_allowlist: ['a.example'] })
  const { body: stores } = await world.api.get('/api/secret-stores')
  await world.api.put(`/api/secret-stores/${stores[0].id}/secrets/TOKEN`, {
    value: 'the-value',
    allowedHosts: ['a.example'],
  })
  const listed = await call(client, 'secret_list', {})
  assert.deepEqual(listed['stores'], [
    {
      ...{ store: 'of-a-model', is_default: false, egress_allowlist: ['a.example'] },
      secrets: [{ name: 'TOKEN', allowed_hosts: ['a.example'] }],
    },
  ])
  const allowed = await call(client, 'secret_store_allow', { store: 'of-a-model', egress_allowlist: ['*.b.example'] })
  assert.deepEqual(allowed['egress_allowlist'], ['*.b.example'])
  assert.deepEqual(await call(client, 'secret_delete', { store: 'of-a-model', name: 'TOKEN' }), { deleted: 'TOKEN' })
  assert.match(await refusal(client, 'secret_delete', { store: 'none', name: 'TOKEN' }), /no secret store is named/)
})
