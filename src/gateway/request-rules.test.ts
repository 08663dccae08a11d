import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isServiceError } from '../errors.ts'
import { modelRequest } from './model-request.ts'
import { betasOf } from './request-rules.ts'
import { defaultAllowList } from './shapes/allow.ts'
import {
  answer,
  completions,
  GatewaySetup,
  hello,
  helloResponses,
  messages,
  responses,
  token,
} from './testing/gateway-setup.ts'
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

/** A tool of the client, with arguments like those of another tool. */
function toolOf(path: string, type: string): object {
  const schema = { type: 'web_search', file_id: { type: 'string' } }
  if (path === messages) return { type, name: 'own', input_schema: schema }
  const own = type === 'function' ? { name: 'own', parameters: schema } : type === 'custom' ? { name: 'own' } : {}
  return path === completions ? { type, [type]: own } : { type, ...own }
}

const client: Record<string, string[]> = {
  [messages]: ['custom', 'bash_20250124', 'text_editor_20250728', 'computer_20251124', 'memory_20250818'],
  [completions]: ['function', 'custom'],
  [responses]: ['function', 'custom', 'local_shell', 'apply_patch', 'computer', 'computer_use_preview'],
}

test('request rules: tools of the model API are refused at any place, tools of the client are not', async () => {
  for (const path of paths) {
    const own = client[path]!.map((type) => toolOf(path, type))
    await assertServed(path, { tools: own })
    await assertServed(path, { tools: [] })
    await assertServed(path, { tools: null })
    for (const type of hosted[path]!) {
      await assertRefused(path, { tools: [{ type }] }, 'tools[0].type')
      await assertRefused(path, { tools: [...own, { type }] }, `tools[${own.length}].type`)
    }
  }
})

test("request rules: a tool of Anthropic's wire needs no type, one of OpenAI's wire does", async () => {
  await assertServed(messages, { tools: [{ name: 'x', input_schema: {} }, {}] })
  for (const path of [completions, responses]) {
    await assertRefused(path, { tools: [{ google_search: {} }] }, 'tools[0].google_search')
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
    await assertRefused(path, `{"model":"m-1","tools":[],"tools":${hidden}}`, 'tools')
    await assertRefused(path, `{"model":"m-1","tools":[],"tools":[]}`, 'tools')
    await assertRefused(path, `{"model":"m-1","Tools":${hidden}}`, 'Tools')
    await assertRefused(path, tools(`{${own(path)},"tools":${hidden}}`), 'tools[0].tools')
    // Tools that are loaded along with earlier messages.
    const list = path === responses ? 'input' : 'messages'
    const said = `{"model":"m-1","${list}":[{"role":"user"},{"Tools":${hidden}}]}`
    await assertRefused(path, said, `${list}[1].Tools`)
    await assertRefused(path, said.replace('Tools', 'tools'), `${list}[1].tools`)
  }
  const loaded = { type: 'tool_search_output', tools: [{ type: 'function', name: 'x' }] }
  await assertRefused(responses, { input: [loaded] }, 'input[0].tools')
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
    const response = await setup.post(path, {
      ...(path === responses ? helloResponses : hello),
      tools: [{ type: 'mcp' }],
    })
    const { error, type } = (await response.json()) as { type?: string; error: { code: string; message: string } }
    assert.deepEqual([response.status, error.code], [400, 'invalid_request'])
    assert.match(error.message, /tools\[0\]\.type/)
    assert.equal(type, path === messages ? 'error' : undefined)
  }
  assert.deepEqual(setup.requests, [])
})

test('request rules: of the beta features of Anthropic those are served that change the form or the limits alone', async () => {
  assert.deepEqual(betasOf('effort-2025-11-24, Context-1M-2025-08-07,CLAUDE-code-20250219 ,'), {
    served: 'effort-2025-11-24,CLAUDE-code-20250219',
    unknown: [],
  })
  assert.deepEqual(betasOf('context-1m-2030-01-01,new-2030-01-01'), { served: undefined, unknown: ['new-2030-01-01'] })
  assert.deepEqual(betasOf('new-2030-01-01', new Set(['new-2030-01-01'])), { served: 'new-2030-01-01', unknown: [] })
  assert.deepEqual(betasOf(undefined), { served: undefined, unknown: [] })
  for (const beta of [
    'files-api-2025-04-14',
    'skills-2025-10-02',
    'code-execution-2025-05-22',
    'mcp-client-2025-11-20',
  ]) {
    assert.deepEqual(betasOf(beta), { served: undefined, unknown: [beta] })
  }
  await using setup = await GatewaySetup.create(answer({}))
  const betas = ['interleaved-thinking-2025-05-14,context-1m-2025-08-07,files-api-2025-04-14', 'files-api-2025-04-14']
  for (const beta of betas) {
    const headers = { 'x-api-key': token, 'anthropic-beta': beta, 'openai-beta': 'assistants=v2' }
    await setup.post(messages, hello, headers)
  }
  assert.deepEqual(
    setup.requests.map(({ headers }) => [headers['anthropic-beta'], headers['openai-beta']]),
    [
      ['interleaved-thinking-2025-05-14', undefined],
      [undefined, undefined],
    ],
  )
  await setup.close()
  assert.deepEqual(
    setup.warnings.map(({ sessionId, code }) => [sessionId, code]),
    [['session_a', 'model_beta_removed']],
  )
  assert.match(setup.warnings[0]!.message, /anthropic-beta:files-api-2025-04-14 .*ATOLL_GATEWAY_ALLOW/)
})

test('request rules: ids of what the account keeps are refused wherever an API takes them', async () => {
  const image = { type: 'image', source: { type: 'file', file_id: 'file_1' } }
  const result = (content: object) => ({ type: 'tool_result', tool_use_id: 't', content: [content] })
  const fetched = { type: 'web_fetch_tool_result', tool_use_id: 't', content: { type: 'web_fetch_result' } }
  const block = 'messages[0].content[0]'
  const anthropic: [object, string][] = [
    [image, `${block}.source.file_id`],
    [{ type: 'document', source: { file_id: 'file_1', type: 'file' } }, `${block}.source.file_id`],
    [{ type: 'document', source: { type: 'file' } }, `${block}.source.type`],
    [{ type: 'document', source: { type: 'content', content: [image] } }, `${block}.source.content[0].source.file_id`],
    [{ type: 'container_upload', file_id: 'file_1' }, `${block}.file_id`],
    [{ type: 'container_upload' }, `${block}.type`],
    [result(image), `${block}.content[0].source.file_id`],
    [result({ type: 'tool_result' }), `${block}.content[0].type`],
    [{ type: 'server_tool_use', id: 's', name: 'web_search', input: {} }, `${block}.type`],
    [fetched, `${block}.content`],
    [{ type: 'code_execution_tool_result', tool_use_id: 't' }, `${block}.type`],
    [{ type: 'mcp_tool_use', id: 'm', name: 'x', input: {} }, `${block}.type`],
    [
      { type: 'text', text: 'x', citations: [{ type: 'char_location', file_id: 'f' }] },
      `${block}.citations[0].file_id`,
    ],
    [{ type: 'text', text: { file_id: 'f' } }, `${block}.text`],
  ]
  for (const [content, field] of anthropic) {
    await assertRefused(messages, { messages: [{ role: 'user', content: [content] }] }, field)
  }
  await assertRefused(messages, { system: [image] }, 'system[0].source')
  await assertRefused(messages, { user_profile_id: 'p' }, 'user_profile_id')
  await assertRefused(messages, { container: 'container_1' }, 'container')
  await assertRefused(messages, { metadata: { session: 's' } }, 'metadata.session')
  await assertRefused(messages, { cache_control: { type: 'ephemeral', id: 'c' } }, 'cache_control.id')
  await assertRefused(messages, { tool_choice: { type: 'auto', server: 's' } }, 'tool_choice.server')

  const chat: [object, string][] = [
    [{ type: 'file', file: { file_id: 'file-1' } }, `${block}.file.file_id`],
    [{ type: 'image_url', image_url: { file_id: 'file-1' } }, `${block}.image_url.file_id`],
    [{ type: 'input_audio', input_audio: { data: '', format: 'wav' } }, `${block}.input_audio`],
    [{ type: 'video_url' }, `${block}.type`],
    [{ text: 'x' }, `${block}.type`],
  ]
  for (const [content, field] of chat) {
    await assertRefused(completions, { messages: [{ role: 'user', content: [content] }] }, field)
  }
  await assertRefused(completions, { messages: [{ role: 'assistant', audio: { id: 'a' } }] }, 'messages[0].audio')
  const search = [{ type: 'function', function: { name: 'x', vector_store_ids: [] } }]
  await assertRefused(completions, { tools: search }, 'tools[0].function.vector_store_ids')
  await assertRefused(completions, { response_format: { type: 'stored' } }, 'response_format.type')

  const part = 'input[0].content[0]'
  const inputs: [object, string][] = [
    [{ type: 'image_generation_call', id: 'ig_1' }, 'input[0].type'],
    [{ type: 'web_search_call', id: 'ws_1' }, 'input[0].type'],
    [{ type: 'file_search_call', queries: [] }, 'input[0].queries'],
    [{ type: 'code_interpreter_call', container_id: 'c' }, 'input[0].container_id'],
    [{ type: 'mcp_approval_response', approval_request_id: 'a' }, 'input[0].approval_request_id'],
    [{ role: 'user', content: [{ type: 'input_image', file_id: 'file-1' }] }, `${part}.file_id`],
    [{ role: 'user', content: [{ type: 'input_file', file_id: 'file-1' }] }, `${part}.file_id`],
    [{ role: 'user', content: [{ type: 'input_audio' }] }, `${part}.type`],
    [{ type: 'function_call_output', output: [{ type: 'input_file', file_id: 'f' }] }, 'input[0].output[0].file_id'],
    [
      { type: 'computer_call_output', output: { type: 'computer_screenshot', file_id: 'f' } },
      'input[0].output.file_id',
    ],
    [{ type: 'reasoning', role: 'user' }, 'input[0].role'],
  ]
  for (const [item, field] of inputs) await assertRefused(responses, { input: [item] }, field)
  await assertRefused(responses, { text: { format: { type: 'json_schema', id: 'x' } } }, 'text.format.id')
  await assertRefused(responses, { tool_choice: { type: 'file_search' } }, 'tool_choice.type')
  await assertRefused(responses, { context_management: [{ type: 'compaction' }] }, 'context_management')
  // Some clients send every field that they know.
  const empty = { type: 'input_image', image_url: 'https://x.example/i.png', file_id: null }
  await assertServed(responses, { input: [{ role: 'user', content: [empty] }] })
})

test('request rules: images and documents pass as data and by address', async () => {
  const url = 'https://x.example/i.png'
  for (const source of [
    { type: 'base64', media_type: 'image/png', data: 'aGk=' },
    { type: 'url', url },
  ]) {
    await assertServed(messages, { messages: [{ role: 'user', content: [{ type: 'image', source }] }] })
    await assertServed(messages, { messages: [{ role: 'user', content: [{ type: 'document', source, title: null }] }] })
  }
  for (const other of [
    'oss://bucket/file',
    'file:///etc/passwd',
    'file-1',
    '',
    ' https://x.example',
    'gs://a',
    'https',
  ]) {
    const source = { type: 'url', url: other }
    const content = [{ type: 'image', source }]
    await assertRefused(messages, { messages: [{ role: 'user', content }] }, 'messages[0].content[0].source.url')
    for (const image_url of [other, { url: other }]) {
      const field = `messages[0].content[0].image_url${typeof image_url === 'string' ? '' : '.url'}`
      const said = [{ role: 'user', content: [{ type: 'image_url', image_url }] }]
      await assertRefused(completions, { messages: said }, field)
    }
    const file = [{ role: 'user', content: [{ type: 'input_file', file_url: other }] }]
    await assertRefused(responses, { input: file }, 'input[0].content[0].file_url')
  }
  const text = { type: 'text', media_type: 'text/plain', data: 'x' }
  const document = { type: 'document', source: text, citations: { enabled: true }, context: 'c' }
  await assertServed(messages, { messages: [{ role: 'user', content: [document] }] })
  const file = { type: 'file', file: { filename: 'a.pdf', file_data: 'aGk=' } }
  const image = { type: 'image_url', image_url: { url, detail: 'low' } }
  await assertServed(completions, { messages: [{ role: 'user', content: [file, image] }] })
  const parts = [
    { type: 'input_file', file_url: url },
    { type: 'input_image', image_url: url },
  ]
  await assertServed(responses, { input: [{ role: 'user', content: parts }] })
})

test('request rules: nothing is stored, and no item is sent by its id', async () => {
  const sent = async (path: string, body: string, keepsCompletions = false) => {
    const terms = { allowList: defaultAllowList, keepsCompletions }
    const { pieces, byteCount } = await modelRequest(wires[path]!, Buffer.from(body), terms)
    const text = Buffer.concat([...pieces]).toString()
    assert.equal(Buffer.byteLength(text), byteCount)
    return text.replaceAll(/ +/g, ' ')
  }
  const added = '{"model":"m-1","store":false}'
  assert.equal(await sent(responses, '{"model":"m-1"}'), added)
  assert.equal(await sent(responses, '{"model":"m-1","store":true}'), '{"model":"m-1" ,"store":false}')
  assert.equal(await sent(responses, '{"store":null,"model":"m-1"}'), '{ "model":"m-1","store":false}')
  assert.equal(await sent(responses, '{"store":false,"model":"m-1"}'), '{"store":false,"model":"m-1"}')
  assert.equal(await sent(completions, '{"store":"yes","model":"m-1"}'), '{ "model":"m-1","store":false}')
  // Compatible servers may refuse a field that their clients do not send.
  assert.equal(await sent(completions, '{"model":"m-1"}'), '{"model":"m-1"}')
  assert.equal(await sent(completions, '{"model":"m-1"}', true), added)
  assert.equal(await sent(messages, '{"model":"m-1"}', true), '{"model":"m-1"}')
  assert.equal(
    await sent(completions, '{"model":"m-1","stream":true,"store":true}'),
    '{"model":"m-1","stream":true ,"stream_options":{"include_usage":true},"store":false}',
  )
  for (const store of ['{}', '[]']) await assertRefused(responses, `{"model":"m-1","store":${store}}`, 'store')
  await assertRefused(responses, '{"model":"m-1","store":false,"st\\u006fre":true}', 'store')
  await assertRefused(responses, '{"model":"m-1","Store":true}', 'Store')
  assert.equal(
    await sent(
      responses,
      '{"model":"m-1","store":false,"input":[{"id":"rs_1","type":"reasoning"},{"type":"message","role":"user","\\u0069d":"msg_1"}]}',
    ),
    '{"model":"m-1","store":false,"input":[{ "type":"reasoning"},{"type":"message","role":"user" }]}',
  )
})

test('request rules: a refused field is told to its session once, and few of them', async () => {
  await using setup = await GatewaySetup.create(answer({}))
  const upload = { role: 'user', content: [{ type: 'text', text: 'x' }, { type: 'container_upload' }] }
  for (let time = 0; time < 3; time++) await setup.post(messages, { ...hello, messages: [upload] })
  // Faults of the client are no news.
  await setup.post(messages, '{"model":"m-1","Model":"m-2"}')
  setup.identity = { ...setup.identity, sessionId: 'session_b' }
  for (let index = 0; index < 40; index++) await setup.post(messages, { ...hello, [`field${index}`]: 1 })
  await setup.close()
  const told = (sessionId: string) => setup.warnings.filter((warning) => warning.sessionId === sessionId)
  assert.deepEqual(
    told('session_a').map(({ code }) => code),
    ['model_field_refused'],
  )
  assert.match(told('session_a')[0]!.message, /messages\[0\]\.content\[1\]\.type/)
  assert.match(told('session_a')[0]!.message, /anthropic-messages:messages\[\]\.content\[\]\.type=container_upload/)
  assert.equal(told('session_b').length, 16)
  assert.deepEqual(setup.requests, [])
})

const wire = wires[completions]!

test('model request: the check of a long body yields to the event loop, whatever the body holds', async () => {
  const bytes = 4 * 1024 * 1024
  const free = (text: string) => `{"model":"m-1","tools":[{"type":"function","function":{"parameters":${text}}}]}`
  for (const part of ['{},', '"",', ' ', '1e20,', '"a"    ,']) {
    const parts = part.repeat(bytes / part.length)
    assert.ok((await turnsDuring(free(`[${parts}0]`))) > 8, part)
  }
  for (const part of ['a', '\\"', 'é']) {
    const parts = part.repeat(bytes / part.length)
    assert.ok((await turnsDuring(free(`"${parts}"`))) > 8, part)
  }
  for (const part of ['{},', '{"role":"user"},', '{"content":[{"type":"text","text":""}]},', '{"role":"\\u0061"},']) {
    const parts = part.repeat(bytes / part.length)
    assert.ok((await turnsDuring(`{"model":"m-1","messages":[${parts}{}]}`)) > 8, part)
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
