import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isServiceError } from '../errors.ts'
import { modelRequest } from './model-request.ts'
import { servedBetas } from './request-rules.ts'
import { answer, completions, GatewaySetup, hello, messages, responses, token } from './testing/gateway-setup.ts'
import { wires } from './wires.ts'

const paths = [messages, completions, responses]

/** The message with which a body is refused; `undefined` for one that is sent on. */
async function refusal(path: string, body: string | object): Promise<string | undefined> {
  const text = typeof body === 'string' ? body : JSON.stringify({ model: 'm-1', ...body })
  try {
    await modelRequest(wires[path]!, Buffer.from(text))
    return undefined
  } catch (error) {
    assert.ok(isServiceError(error, 'invalid_request'), String(error))
    return error.message
  }
}

async function assertRefused(path: string, body: string | object, field: string): Promise<void> {
  const message = await refusal(path, body)
  assert.ok(message?.startsWith(`${field}: `), `${path} ${JSON.stringify(body)}: ${message}`)
}

async function assertServed(path: string, body: string | object): Promise<void> {
  assert.equal(await refusal(path, body), undefined, `${path} ${JSON.stringify(body)}`)
}

const hosted: Record<string, string[]> = {
  [messages]: [
    ...'web_search_20250305 web_search_20260209 web_fetch_20250910 code_execution_20250825 advisor_20260301'.split(' '),
    ...'tool_search_tool_regex_20251119 mcp_toolset bash_code_execution_20250825 bash_ function'.split(' '),
    'custom ',
  ],
  [completions]: ['web_search', 'builtin_function', 'openrouter:web_search', 'mcp', 'custom\u0000', 'Function'],
  [responses]: [
    ...'web_search web_search_preview file_search code_interpreter image_generation'.split(' '),
    ...'mcp shell tool_search namespace'.split(' '),
  ],
}

const client: Record<string, string[]> = {
  [messages]: ['custom', 'bash_20250124', 'text_editor_20250728', 'computer_20251124', 'memory_20250818'],
  [completions]: ['function', 'custom'],
  [responses]: ['function', 'custom', 'local_shell', 'apply_patch', 'computer', 'computer_use_preview'],
}

test('request rules: tools of the model API are refused at any place, tools of the client are not', async () => {
  for (const path of paths) {
    const own = client[path]!.map((type) => ({ type, name: 'own', parameters: { type: 'web_search' } }))
    await assertServed(path, { tools: own })
    await assertServed(path, { tools: [] })
    await assertServed(path, { tools: null })
    for (const type of hosted[path]!) {
      await assertRefused(path, { tools: [{ type, name: 'x' }] }, 'tools[0].type')
      await assertRefused(path, { tools: [...own, { name: 'x', type }] }, `tools[${own.length}].type`)
    }
  }
})

test("request rules: a tool of Anthropic's wire needs no type, one of OpenAI's wire does", async () => {
  await assertServed(messages, { tools: [{ name: 'x', input_schema: {} }, {}] })
  for (const path of [completions, responses]) {
    await assertRefused(path, { tools: [{ google_search: {} }] }, 'tools[0].type')
    await assertRefused(path, { tools: [{}] }, 'tools[0].type')
  }
})

test('request rules: tools in which another parser could read another type are refused', async () => {
  const own = (path: string) => `"type":"${client[path]![0]}"`
  for (const path of paths) {
    const other = `"${hosted[path]![0]}"`
    const tools = (tool: string) => `{"model":"m-1","tools":[${tool}]}`
    await assertRefused(path, tools(`{${own(path)},"type":${other}}`), 'tools[0].type')
    await assertRefused(path, tools(`{"type":${other},${own(path)}}`), 'tools[0].type')
    await assertRefused(path, tools(`{${own(path)},"typ\\u0065":${other}}`), 'tools[0].type')
    await assertRefused(path, tools(`{"Type":${other},${own(path)}}`), 'tools[0].Type')
    await assertRefused(path, tools(`{"type":"${hosted[path]![0]!.replace('_', '\\u005f')}"}`), 'tools[0].type')
    for (const odd of ['7', 'null', '["custom"]', '{}', 'true', `"${'x'.repeat(1000)}"`]) {
      await assertRefused(path, tools(`{"type":${odd}}`), 'tools[0].type')
    }
    for (const odd of ['"web_search"', '7', 'null', `[{"type":${other}}]`]) {
      await assertRefused(path, tools(odd), 'tools[0]')
    }
    for (const odd of ['{}', `{"type":${other}}`, '"web_search"', 'true', '1']) {
      await assertRefused(path, `{"model":"m-1","tools":${odd}}`, 'tools')
    }
    const hidden = `[{"type":${other}}]`
    await assertRefused(path, `{"model":"m-1","tools":[],"tools":${hidden}}`, 'tools[0].type')
    await assertRefused(path, `{"model":"m-1","tools":[],"tools":[]}`, 'tools')
    await assertRefused(path, `{"model":"m-1","Tools":${hidden}}`, 'Tools')
    await assertRefused(path, tools(`{${own(path)},"tools":${hidden}}`), 'tools[0].tools')
    // Tools that are loaded along with what was said before.
    for (const list of ['messages', 'input']) {
      const said = `{"model":"m-1","${list}":[{"role":"user"},{"type":"tool_search_output","Tools":${hidden}}]}`
      await assertRefused(path, said, `${list}[1].Tools`)
      await assertRefused(path, said.replace('Tools', 'tools'), `${list}[1].tools`)
    }
  }
})

test('request rules: fields that are billed beside tokens are refused on every wire', async () => {
  const fields: Record<string, unknown> = {
    mcp_servers: [{ type: 'url', url: 'https://x.example' }],
    container: { skills: [] },
    web_search_options: {},
    search_parameters: { mode: 'on' },
    enable_search: true,
    plugins: [{ id: 'web' }],
    provider: { only: ['dear'] },
    providerOptions: { gateway: { speed: 'fast' } },
    preset: 'p',
    extra_body: { service_tier: 'priority' },
    audio: { voice: 'alloy' },
    betas: ['context-1m-2025-08-07'],
    context_window_fallback_dict: { 'm-1': 'expensive' },
  }
  for (const path of paths) {
    for (const [name, value] of Object.entries(fields)) {
      await assertRefused(path, { [name]: value }, name)
      await assertRefused(path, { [name.toUpperCase()]: value }, name.toUpperCase())
      await assertRefused(path, `{"model":"m-1","${name}":null,"${name}":${JSON.stringify(value)}}`, name)
      for (const nothing of [null, false, [], '']) await assertServed(path, { [name]: nothing })
    }
  }
})

test('request rules: tiers and speeds at another price are refused', async () => {
  for (const path of paths) {
    for (const tier of ['auto', 'default', 'standard', 'standard_only', null])
      await assertServed(path, { service_tier: tier })
    for (const tier of ['priority', 'fast', 'flex', 'AUTO', '', 7, ['auto'], { a: 1 }]) {
      await assertRefused(path, { service_tier: tier }, 'service_tier')
    }
    for (const value of ['standard', null]) await assertServed(path, { speed: value })
    await assertRefused(path, { speed: 'fast' }, 'speed')
    await assertServed(path, { inference_geo: 'global' })
    await assertRefused(path, { inference_geo: 'us' }, 'inference_geo')
    await assertRefused(path, '{"model":"m-1","service_tier":"auto","service_tier":"priority"}', 'service_tier')
    await assertRefused(path, '{"model":"m-1","Service_Tier":"priority"}', 'Service_Tier')
    for (const modalities of [['text'], [], null]) await assertServed(path, { modalities })
    for (const modalities of [['text', 'audio'], ['image'], 'audio', { 0: 'audio' }]) {
      await assertRefused(path, { modalities }, 'modalities')
    }
  }
})

test('request rules: a request gets one answer, with its usage at the end', async () => {
  for (const path of paths) {
    for (const name of ['n', 'best_of']) {
      for (const many of [2, 0, '1', true]) await assertRefused(path, { [name]: many }, name)
      for (const one of [1, null]) await assertServed(path, { [name]: one })
    }
    await assertRefused(path, { deferred: true }, 'deferred')
  }
  const asked = {
    model: 'm-1',
    stream: true,
    stream_options: { continuous_usage_stats: true, include_obfuscation: false },
  }
  const { pieces } = await modelRequest(wires[completions]!, Buffer.from(JSON.stringify(asked)))
  const sent = JSON.parse(Buffer.concat([...pieces]).toString()) as typeof asked
  assert.deepEqual(sent.stream_options, { include_obfuscation: false, include_usage: true })
})

test('request rules: a session cannot refer to objects stored in the account at OpenAI', async () => {
  for (const [name, value] of Object.entries({
    previous_response_id: 'resp_1',
    conversation: { id: 'conv_1' },
    prompt: { id: 'pmpt_1' },
  })) {
    await assertRefused(responses, { [name]: value }, name)
    await assertServed(responses, { [name]: null })
  }
  const said = { role: 'user', content: 'x' }
  await assertServed(responses, { input: 'x' })
  await assertServed(responses, { input: [said, { type: 'message', ...said }, { type: 'reasoning', id: 'rs_1' }] })
  await assertRefused(responses, { input: [said, { type: 'item_reference', id: 'msg_1' }] }, 'input[1].type')
  // A reference needs no type.
  await assertRefused(responses, { input: [{ id: 'msg_1' }] }, 'input[0].type')
  await assertRefused(responses, { input: [{ id: 'msg_1', type: null }] }, 'input[0].type')
  await assertRefused(responses, { input: { type: 'item_reference', id: 'msg_1' } }, 'input')
  await assertRefused(responses, { input: ['msg_1'] }, 'input[0]')
})

test('request rules: a refusal has the shape of its wire, and nothing reaches the model API', async () => {
  await using setup = await GatewaySetup.create(answer({}))
  for (const path of paths) {
    const response = await setup.post(path, { ...hello, tools: [{ type: 'mcp' }] })
    const { error, type } = (await response.json()) as { type?: string; error: { code: string; message: string } }
    assert.deepEqual([response.status, error.code], [400, 'invalid_request'])
    assert.match(error.message, /tools\[0\]\.type/)
    assert.equal(type, path === messages ? 'error' : undefined)
  }
  assert.deepEqual(setup.requests, [])
})

test('request rules: the beta header for long context is removed, the others of its list pass', async () => {
  assert.equal(servedBetas('a, Context-1M-2025-08-07,b ,'), 'a,b')
  assert.equal(servedBetas('context-1m-2025-08-07'), undefined)
  await using setup = await GatewaySetup.create(answer({}))
  const betas = ['interleaved-thinking-2025-05-14,context-1m-2025-08-07', 'context-1m-2030-01-01']
  for (const beta of betas) await setup.post(messages, hello, { 'x-api-key': token, 'anthropic-beta': beta })
  assert.deepEqual(
    setup.requests.map((request) => request.headers['anthropic-beta']),
    ['interleaved-thinking-2025-05-14', undefined],
  )
})

const wire = wires['/openai/v1/chat/completions']!

test('model request: the check of a long body yields to the event loop, whatever the body holds', async () => {
  const bytes = 4 * 1024 * 1024
  for (const part of ['{},', '"",', ' ', '1e20,', '"a"    ,']) {
    const parts = part.repeat(bytes / part.length)
    assert.ok((await turnsDuring(`{"model":"m-1","a":[${parts}0]}`)) > 8, part)
  }
  for (const part of ['a', '\\"', 'é']) {
    const parts = part.repeat(bytes / part.length)
    assert.ok((await turnsDuring(`{"model":"m-1","a":"${parts}"}`)) > 8, part)
  }
})

async function turnsDuring(text: string): Promise<number> {
  let turns = 0
  let isDone = false
  const count = () => {
    turns++
    if (!isDone) setImmediate(count)
  }
  setImmediate(count)
  await modelRequest(wire, Buffer.from(text))
  isDone = true
  return turns
}
