import assert from 'node:assert/strict'
import { test } from 'node:test'
import { noTokens } from '../lib/model-price.ts'
import {
  answer,
  completions,
  GatewaySetup,
  hello,
  helloResponses,
  messages,
  responses,
  streaming,
} from './testing/gateway-setup.ts'
import { eventually } from '../lib/testing/eventually.ts'

test('usage: an answer is streamed byte for byte while its usage is counted', async () => {
  const proceed = Promise.withResolvers<void>()
  const first =
    'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":10,"cache_read_input_tokens":5,"cache_creation_input_tokens":1,"output_tokens":1}}}\n\n'
  const rest =
    'event: message_delta\r\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":42}}\r\n\r\n'
  await using setup = await GatewaySetup.create(async (_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' })
    response.write(first)
    await proceed.promise
    for (const byte of Buffer.from(rest)) response.write(Buffer.of(byte))
    response.end()
  })
  const response = await setup.post(messages, { ...hello, stream: true })
  const reader = response.body!.getReader()
  let text = ''
  const read = async () => {
    const { done, value } = await reader.read()
    if (value) text += Buffer.from(value).toString()
    return done
  }
  // The upstream goes on only when the first event has arrived here.
  while (text.length < first.length) await read()
  assert.equal(text, first)
  proceed.resolve()
  while (!(await read()));
  assert.equal(text, first + rest)
  assert.deepEqual(await setup.recorded(), {
    model: 'anthropic/m-1',
    inputTokens: 16,
    cacheReadTokens: 5,
    cacheWriteTokens: 1,
    longCacheWriteTokens: 0,
    outputTokens: 42,
    estimated: false,
  })
})

test('usage: it is read from the JSON and the event streams of every wire', async () => {
  const chat = { usage: { prompt_tokens: 7, completion_tokens: 8 } }
  const response = { usage: { input_tokens: 7, output_tokens: 8 } }
  const stream = (...events: object[]) => events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join('')
  const cases: [string, string, string][] = [
    [messages, 'application/json', JSON.stringify(response)],
    [completions, 'application/json', JSON.stringify(chat)],
    [responses, 'application/json', JSON.stringify(response)],
    [
      completions,
      'text/event-stream',
      `${stream({ choices: [], usage: null }, { choices: [], ...chat })}data: [DONE]\n\n`,
    ],
    [responses, 'text/event-stream', stream({ type: 'x' }, { type: 'response.completed', response })],
    // Without the last newline.
    [responses, 'text/event-stream', stream({ type: 'response.incomplete', response }).trimEnd()],
  ]
  for (const [path, type, body] of cases) {
    await using setup = await GatewaySetup.create((_request, answering) => {
      answering.writeHead(200, { 'content-type': type })
      answering.end(body)
    })
    assert.equal(await (await setup.post(path, path === responses ? helloResponses : hello)).text(), body)
    const told = { ...noTokens(), inputTokens: 7, outputTokens: 8, estimated: false }
    const model = path === messages ? 'anthropic/m-1' : 'openai/m-1'
    assert.deepEqual(await setup.recorded(), { ...told, model })
  }
})

test('usage: an answer without usage is estimated by its size', async () => {
  await using setup = await GatewaySetup.create(streaming(`data: {"usage": broken\n\ndata: ${'x'.repeat(4000)}\n\n`))
  await (await setup.post(messages, { ...hello, stream: true })).text()
  const usage = await setup.recorded()
  assert.equal(usage.estimated, true)
  assert.ok(usage.outputTokens > 1000 && usage.inputTokens > 10)
})

test('usage: a client that leaves aborts its upstream request, and the answer so far is recorded', async () => {
  const gone = Promise.withResolvers<void>()
  const text = 'words '.repeat(500)
  await using setup = await GatewaySetup.create((_request, response) => {
    response.on('close', () => gone.resolve())
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.write('data: {"message":{"usage":{"input_tokens":9,"output_tokens":1}}}\n\n')
    response.write(`data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"${text}"}}\n\n`)
  })
  const abort = new AbortController()
  const response = await setup.post(messages, hello, {}, abort.signal)
  const reader = response.body!.getReader()
  for (let bytes = 0; bytes < text.length;) bytes += (await reader.read()).value!.length
  abort.abort()
  await gone.promise
  const usage = await setup.recorded()
  assert.deepEqual([usage.inputTokens, usage.estimated], [9, true])
  assert.ok(usage.outputTokens >= text.length / 3)
})

test('usage: a client that leaves before the first byte is charged once the model API has its request', async () => {
  const asked = Promise.withResolvers<void>()
  await using setup = await GatewaySetup.create(() => asked.resolve())
  const abort = new AbortController()
  const prompt = { ...hello, system: 'x'.repeat(300_000) }
  const refused = assert.rejects(setup.post(messages, prompt, {}, abort.signal))
  await asked.promise
  abort.abort()
  await refused
  const usage = await setup.recorded()
  assert.deepEqual([usage.inputTokens, usage.estimated], [Math.ceil(JSON.stringify(prompt).length / 3), true])
})

test('usage: a refused call costs nothing, also when its client leaves before the retry', async () => {
  await using setup = await GatewaySetup.create((_request, response) => {
    response.writeHead(503, { 'retry-after': '30' }).end()
  })
  const abort = new AbortController()
  const refused = assert.rejects(setup.post(messages, hello, {}, abort.signal))
  await eventually(() => setup.logged.length === 1)
  abort.abort()
  await refused
  await setup.close()
  assert.deepEqual([setup.requests.length, setup.usage], [1, []])
})

test('usage: an error as the first event of a stream costs nothing', async () => {
  const error = 'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'
  await using setup = await GatewaySetup.create(streaming(error))
  assert.equal(await (await setup.post(messages, { ...hello, stream: true })).text(), error)
  await setup.close()
  assert.deepEqual(setup.usage, [])
})

test('usage: it is recorded when it is reported, before the end of the answer', async () => {
  await using setup = await GatewaySetup.create(
    streaming('data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":8}}\n\n', true),
  )
  const response = await setup.post(completions, { ...hello, stream: true })
  const told = { ...noTokens(), model: 'openai/m-1', inputTokens: 7, outputTokens: 8, estimated: false }
  assert.deepEqual(await setup.recorded(), told)
  await response.body!.cancel()
  await setup.close()
  assert.deepEqual(setup.usage, [told])
})

test('usage: the budget is checked after all earlier usage was written', async () => {
  await using setup = await GatewaySetup.create(answer({ usage: { input_tokens: 1, output_tokens: 1 } }))
  const written = Promise.withResolvers<void>()
  const usedAtCheck: number[] = []
  setup.saving = () => written.promise
  setup.budget = () => Promise.resolve(void usedAtCheck.push(setup.usage.length))
  await (await setup.post(messages, hello)).text()
  const second = setup.post(messages, hello)
  // The gateway has had the time to ask for the budget.
  for (let i = 0; i < 10; i++) assert.equal((await fetch(`${setup.url}/nothing`)).status, 404)
  written.resolve()
  assert.equal((await second).status, 200)
  assert.deepEqual(usedAtCheck, [0, 1])
})

test('usage: close waits until the usage of aborted answers is recorded', async () => {
  await using setup = await GatewaySetup.create(streaming('data: {}\n\n', true))
  setup.saving = async () => {
    for (let i = 0; i < 10; i++) await new Promise(setImmediate)
  }
  const response = await setup.post(messages, { ...hello, stream: true })
  const broken = assert.rejects(response.text())
  await setup.close()
  await broken
  assert.equal(setup.usage.length, 1)
})
