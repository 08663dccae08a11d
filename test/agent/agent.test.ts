import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import type { ServerResponse } from 'node:http'
import { join } from 'node:path'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { costNanoUsd, usd } from '../../src/lib/model-price.ts'
import { agentLineBytesMax } from '../../src/protocol/agent.ts'
import type { AgentProcess } from './agent-process.ts'
import { all, assertTurn, result } from './conformance.ts'
import { answerEvents, answerWith, fakeAnthropic } from './fake-anthropic.ts'
import { processes, token, World } from './world.ts'
import { WritingModel } from './writing-model.ts'

async function assertCleanEnd(agent: AgentProcess): Promise<void> {
  assert.deepEqual(agent.rejected, [])
  assert.equal(await agent.shutdown(), 0)
}

test('agent: follow-ups of any content change the page of a prompt, and a repeated message does not run again', async () => {
  await using world = await World.create()
  await using agent = await world.agent()
  assert.deepEqual(agent.events[1], {
    type: 'configured',
    model: 'demo',
    tools: ['bash', 'read', 'write', 'edit', 'glob', 'grep', 'ls'],
    cwd: world.cwd,
  })

  const events = await agent.turn('msg_1', 'A page about tides & <script>alert(1)</script>')
  assertTurn(events, 'msg_1')
  const called = all(events, 'assistant').flatMap(({ message }) => message.content.filter((b) => b.type === 'tool_use'))
  const summaries = all(events, 'tool_use_summary')
  assert.deepEqual(
    called.map((call) => call.name),
    ['write', 'write', 'bash', 'bash'],
  )
  // Calls of one answer run side by side and end in any order.
  assert.deepEqual(summaries.map((summary) => summary.tool_use_id).toSorted(), called.map((call) => call.id).toSorted())
  assert.ok(summaries.every((summary) => !summary.is_error && summary.summary.length <= 200))
  assert.ok(all(events, 'assistant').every(({ message }) => message.model === 'demo'))
  const page = await world.page()
  assert.match(page, /A page about tides &amp; &lt;script&gt;alert\(1\)&lt;\/script&gt;/)
  assert.doesNotMatch(page, /<script>alert/)

  assertTurn(await agent.turn('msg_2', 'Add "low tide" at 6 o\'clock'), 'msg_2')
  assertTurn(await agent.turn('msg_3', 'Make the title <b>bigger</b>'), 'msg_3')
  const changed = await world.page()
  assert.match(changed, /Change 1<.*Add &quot;low tide&quot; at 6 o&#39;clock/s)
  assert.match(changed, /Change 2<.*Make the title &lt;b&gt;bigger&lt;\/b&gt;/s)

  const again = await agent.turn('msg_2', 'Add "low tide" at 6 o\'clock')
  assert.deepEqual(
    again.map((event) => event.type),
    ['turn_complete'],
  )
  assert.equal(await world.page(), changed)
  const prompts = [
    `"quotes" 'n' $(touch /tmp/x) \`id\` \\ %s </script></title><!-- changes -->`,
    'line one\r\n\nline two\tand\u0007 a bell',
    '🐚🌊 emoji first, then \u{d83d} half of one',
    'x'.repeat(200 * 1024),
    '   ',
    '/help me',
    '!ls',
  ]
  for (const [index, prompt] of prompts.entries()) {
    const odd = await agent.turn(`msg_odd_${index}`, prompt)
    assertTurn(odd, `msg_odd_${index}`)
    assert.equal(result(odd).subtype, 'success', prompt.slice(0, 50))
  }
  const last = await world.page()
  assert.equal(last.split('<!-- changes -->').length, 2)
  assert.match(last, /<title>A page about tides.*&quot;quotes&quot;.*🐚🌊 emoji first/s)

  const sum = (counts: number[]) => counts.reduce((total, count) => total + count, 0)
  const results = all(agent.events, 'result')
  for (const [reported, recorded] of [
    ['input_tokens', 'inputTokens'],
    ['output_tokens', 'outputTokens'],
  ] as const) {
    assert.equal(sum(results.map(({ usage }) => usage[reported])), sum(world.usage.map((usage) => usage[recorded])))
  }
  await assertCleanEnd(agent)
})

test('agent: the page is built over both of the OpenAI wires as well, with the allowed tools', async () => {
  for (const api of ['openai-completions', 'openai-responses'] as const) {
    await using world = await World.create()
    await using agent = await world.agent({
      model: { provider: 'openai', id: 'demo', api },
      allowedTools: ['Write', 'bash', 'unknown', 'find'],
    })
    assert.deepEqual(all(agent.events, 'configured')[0]?.tools, ['bash', 'write', 'glob'])
    const events = await agent.turn('msg_1', `Hello over ${api}`)
    assert.equal(result(events).subtype, 'success')
    assert.match(await world.page(), new RegExp(`Hello over ${api}`))
    assert.ok(world.usage.every((usage) => !usage.estimated && usage.outputTokens > 0))
    await assertCleanEnd(agent)
  }
})

test('agent: a killed process leaves a turn that the next one continues, without its command but with its background processes', async () => {
  await using world = await World.create()
  {
    await using agent = await world.agent()
    assertTurn(await agent.turn('msg_1', 'A page about reefs'), 'msg_1')
    await agent.turn('msg_background', 'run: sleep 400.625 &')
    agent.send({ type: 'message', messageId: 'msg_2', content: 'run: echo once >> log.txt; sleep 300.25' })
    while (processes('sleep\x00300.25').length === 0) await sleep(20)
    await agent.kill()
    assert.equal(processes('sleep\x00300.25').length, 1)
  }
  await using agent = await world.agent()
  while (processes('sleep\x00300.25').length > 0) await sleep(20)
  const [background] = processes('sleep\x00400.625')
  assert.ok(background)
  process.kill(background, 'SIGKILL')
  const events = await agent.turn('msg_2', 'run: echo once >> log.txt; sleep 300.25')
  assertTurn(events, 'msg_2')
  assert.equal(result(events).subtype, 'success')
  assert.match(result(events).result, /restarted while this tool ran/)
  assert.equal(readFileSync(join(world.cwd, 'log.txt'), 'utf8'), 'once\n')
  assert.deepEqual(
    (await agent.turn('msg_1', 'A page about reefs')).map((event) => event.type),
    ['turn_complete'],
  )
  const followUp = await agent.turn('msg_3', 'Add some coral')
  assert.ok(all(followUp, 'tool_use_summary').some((summary) => summary.tool === 'edit'))
  assert.match(await world.page(), /A page about reefs.*Add some coral/s)
  await assertCleanEnd(agent)
})

test('agent: background processes of a command run on after the turn and after the agent', async () => {
  await using world = await World.create()
  const script = `echo $$ > ${world.folder}/ticker.pid; while :; do echo tick; echo t >> ${world.folder}/ticks; sleep 0.05; done`
  const ticks = () => readFileSync(join(world.folder, 'ticks'), 'utf8').length
  // The child that is about to be a `sleep` has the command line of its parent for a moment.
  const tickers = () => processes(`bash\0${world.folder}/ticker.sh\0`)
  let ticker: number | undefined
  try {
    {
      await using agent = await world.agent()
      writeFileSync(join(world.folder, 'ticker.sh'), script)
      const events = await agent.turn('msg_1', `run: bash ${world.folder}/ticker.sh & echo started`)
      assert.match(result(events).result, /started/)
      while (!existsSync(join(world.folder, 'ticks'))) await sleep(20)
      ticker = Number(readFileSync(join(world.folder, 'ticker.pid'), 'utf8'))
      assert.ok(tickers().includes(ticker))
      await assertCleanEnd(agent)
    }
    const before = ticks()
    while (ticks() < before + 20) await sleep(20)
    assert.ok(tickers().includes(ticker))
  } finally {
    if (ticker !== undefined) process.kill(ticker, 'SIGKILL')
  }
})

test('agent: each line that is no command is answered by an error, and the process continues', async () => {
  await using world = await World.create()
  await using agent = world.process()
  await agent.event('ready')
  agent.sendRaw('not json\n{"type":"nonsense"}\n[]\n\n')
  agent.sendRaw(`${'x'.repeat(agentLineBytesMax + 1)}\n`)
  agent.send({ type: 'message', messageId: 'msg_0', content: 'too early' })
  await agent.event('error', (event) => event.code === 'not_configured')
  assert.deepEqual(
    all(agent.events, 'error').map((event) => event.code),
    ['invalid_command', 'invalid_command', 'invalid_command', 'invalid_command', 'not_configured'],
  )
  const model = { provider: 'demo', id: 'demo' }
  agent.send({ type: 'configure', sessionId: 's', harness: 'claude', model, cwd: world.cwd, stateDir: world.folder })
  await agent.event('error', (event) => event.code === 'unknown_harness')
  await assertCleanEnd(agent)
})

test('agent: system prompt and skills reach the model, and the token reaches neither commands nor the disk', async () => {
  const requests: string[] = []
  await using upstream = await fakeAnthropic((body) => {
    requests.push(body)
    return false
  })
  await using world = await World.create({ anthropic: { baseUrl: upstream.url, apiKey: 'real-key' } })
  const skill = (name: string) => `---\nname: ${name}\ndescription: What ${name} does\n---\nText\n`
  for (const [path, text] of [
    ['agent/skills/deep/er/SKILL.md', skill('inside')],
    ['agent/plain/SKILL.md', 'no front matter'],
    ['elsewhere/SKILL.md', skill('outside')],
  ] as const) {
    mkdirSync(join(world.folder, path, '..'), { recursive: true })
    writeFileSync(join(world.folder, path), text)
  }
  await using agent = await world.agent({
    model: { provider: 'anthropic', id: 'claude-sonnet-4-5' },
    systemPrompt: '/etc/hostname',
    skillFiles: [join(world.folder, 'elsewhere/SKILL.md'), join(world.folder, 'missing/SKILL.md')],
  })
  assert.equal(all(agent.events, 'configured')[0]?.model, 'anthropic/claude-sonnet-4-5')
  const events = await agent.turn('msg_1', 'Hello')
  assert.equal(result(events).result, 'Hi there')
  assert.equal(result(events).usage.input_tokens, 12)
  const [body = ''] = requests
  assert.match(body, /\/etc\/hostname/)
  assert.match(body, /What inside does/)
  assert.match(body, /What outside does/)
  assert.equal((JSON.parse(body) as { model: string }).model, 'claude-sonnet-4-5')
  assert.ok(!requests.join().includes(token))
  await assertCleanEnd(agent)

  await using demo = await world.agent()
  const environment = await demo.turn('msg_2', 'run: env; cat /proc/self/environ /proc/$PPID/environ')
  assert.match(JSON.stringify(environment), /PATH=/)
  assert.doesNotMatch(JSON.stringify(environment), /ATOLL_GATEWAY_TOKEN/)
  assert.ok(existsSync(join(world.folder, 'agent/.atoll/pi/conversation.jsonl')))
  assert.ok(!readFileSync(join(world.folder, 'agent/.atoll/pi/conversation.jsonl'), 'utf8').includes(token))
  // What finds the token in memory can print it.
  const [half, otherHalf] = [token.slice(0, 5), token.slice(5)]
  const printed = result(await demo.turn('msg_3', `run: printf %s%s ${half} ${otherHalf}`))
  assert.match(printed.result, /\[concealed\]/)
  await assertCleanEnd(demo)
})

test('agent: a turn survives a restart of the gateway', async () => {
  await using world = await World.create()
  await using agent = await world.agent()
  const flag = join(world.folder, 'flag')
  agent.send({
    type: 'message',
    messageId: 'msg_1',
    content: `run: until test -e ${flag}; do sleep 0.05; done; echo over`,
  })
  await agent.event('assistant')
  await world.gateway.stop()
  writeFileSync(flag, '')
  // The next call of the model finds nobody.
  await agent.event('tool_use_summary')
  await sleep(1000)
  await world.gateway.start()
  await agent.event('turn_complete')
  assert.equal(all(agent.events, 'error').length, 0)
  assert.equal(result(agent.events).subtype, 'success')
  assert.match(result(agent.events).result, /over/)
  await assertCleanEnd(agent)
})

test('agent: a process that is killed before the model has answered leaves a message that is sent again, once', async () => {
  const bodies: string[] = []
  await using upstream = await fakeAnthropic((body) => {
    bodies.push(body)
    // The first request is never answered.
    return bodies.length === 1
  })
  await using world = await World.create({ anthropic: { baseUrl: upstream.url } })
  const configure = { model: { provider: 'anthropic', id: 'some-model' } }
  {
    await using agent = await world.agent(configure)
    agent.send({ type: 'message', messageId: 'msg_1', content: 'Only once, please' })
    while (bodies.length === 0) await sleep(10)
    await agent.kill()
  }
  await using agent = await world.agent(configure)
  const events = await agent.turn('msg_1', 'Only once, please')
  assertTurn(events, 'msg_1')
  assert.equal(result(events).result, 'Hi there')
  assert.equal(bodies[1]?.split('Only once, please').length, 2)
  await assertCleanEnd(agent)
})

test('agent: a process that is killed during its retries leaves a turn that the next one continues', async () => {
  await using world = await World.create()
  const conversation = join(world.folder, 'agent/.atoll/pi/conversation.jsonl')
  const message = 'run: echo once'
  {
    await using agent = await world.agent()
    await world.gateway.stop()
    agent.send({ type: 'message', messageId: 'msg_1', content: message })
    // Each attempt leaves its failed answer in the conversation.
    const failures = () =>
      (existsSync(conversation) ? readFileSync(conversation, 'utf8') : '').split('"stopReason":"error"')
    while (failures().length < 4) await sleep(50)
    await agent.kill()
  }
  await world.gateway.start()
  await using agent = await world.agent()
  const events = await agent.turn('msg_1', message)
  assertTurn(events, 'msg_1')
  assert.equal(all(events, 'error').length, 0)
  assert.equal(result(events).subtype, 'success')
  await assertCleanEnd(agent)
})

test('agent: an answer that breaks off or ends in a transient error is requested again, a refusal ends the turn', async () => {
  const stream = { 'content-type': 'text/event-stream' }
  const breakOff = (response: ServerResponse) => {
    response.writeHead(200, stream)
    response.write(`data: ${JSON.stringify(answerEvents[0])}\n\n`, () => response.destroy())
  }
  const failWith = (type: string) => (response: ServerResponse) => {
    response.writeHead(200, stream)
    response.end(`event: error\ndata: ${JSON.stringify({ type: 'error', error: { type, message: 'Later' } })}\n\n`)
  }
  const refuse = (response: ServerResponse) => {
    response.writeHead(400, { 'content-type': 'application/json' })
    response.end('{"type":"error","error":{"type":"invalid_request_error","message":"no such thing"}}')
  }
  let failures: ((response: ServerResponse) => void)[] = []
  await using upstream = await fakeAnthropic((_body, response) => {
    const fail = failures.shift()
    fail?.(response)
    return fail !== undefined
  })
  await using world = await World.create({ anthropic: { baseUrl: upstream.url } })
  await using agent = await world.agent({ model: { provider: 'anthropic', id: 'some-model' } })
  for (const transient of [[breakOff, breakOff], ['overloaded_error', 'api_error'].map(failWith)]) {
    failures = transient
    const events = await agent.turn(`msg_${agent.events.length}`, 'Hello')
    assert.deepEqual([result(events).subtype, result(events).result, failures], ['success', 'Hi there', []])
    assert.equal(all(events, 'error').length, 0)
  }
  failures = [refuse]
  const events = await agent.turn('msg_refused', 'Hello')
  assertTurn(events, 'msg_refused')
  assert.equal(result(events).subtype, 'error_during_execution')
  assert.match(result(events).result, /no such thing/)
  assert.deepEqual(
    all(events, 'error').map((event) => event.code),
    ['model_error'],
  )
  await assertCleanEnd(agent)
})

test('agent: its cached tokens are those that the gateway counts, and cost the same', async () => {
  const usage = {
    input_tokens: 12,
    cache_read_input_tokens: 1000,
    cache_creation_input_tokens: 200,
    output_tokens: 1,
  }
  await using upstream = await fakeAnthropic(() => false, answerWith(usage))
  await using world = await World.create({ anthropic: { baseUrl: upstream.url, apiKey: 'real-key' } })
  const price = { inputPerMillion: 3, cacheReadPerMillion: 0.3, cacheWritePerMillion: 3.75, outputPerMillion: 15 }
  await using agent = await world.agent({ model: { provider: 'anthropic', id: 'claude-sonnet-4-5' }, price })
  const { usage: reported, total_cost_usd: cost } = result(await agent.turn('msg_1', 'Hello'))
  assert.deepEqual(reported, {
    input_tokens: 1212,
    cache_read_input_tokens: 1000,
    cache_creation_input_tokens: 200,
    output_tokens: 5,
  })
  const [counted] = world.usage
  assert.ok(counted && world.usage.length === 1)
  const { model, estimated, ...tokens } = counted
  assert.deepEqual([model, estimated], ['anthropic/claude-sonnet-4-5', false])
  assert.deepEqual([tokens.inputTokens, tokens.cacheReadTokens, tokens.cacheWriteTokens], [1212, 1000, 200])
  assert.equal(cost, usd(costNanoUsd(price, tokens)))
})

test('agent: what the model writes is told before the answer is whole, each answer from its begin', async () => {
  const written = ['The reef ', 'is 🐚 ', 'alive']
  await using model = await WritingModel.start(written)
  await using world = await World.create({ anthropic: { baseUrl: model.baseUrl } })
  await using agent = await world.agent({ model: { provider: 'anthropic', id: 'some-model' } })
  for (const turn of ['msg_1', 'msg_2']) {
    const before = agent.drafts.length
    const text = () =>
      agent.drafts
        .slice(before)
        .map((piece) => piece.text)
        .join('')
    const ended = agent.turn(turn, 'Hello')
    for (const [index] of written.entries()) {
      const sofar = written.slice(0, index + 1).join('')
      model.writeOn()
      await eventually(() => text() === sofar)
    }
    model.writeOn()
    const events = await ended
    assertTurn(events, turn)
    assert.equal(result(events).result, written.join(''))
    let offset = 0
    for (const piece of agent.drafts.slice(before)) {
      assert.equal(piece.offset, offset)
      offset += piece.text.length
    }
  }
  await assertCleanEnd(agent)
})
