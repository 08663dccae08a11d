import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { agentLineBytesMax } from '../../src/protocol/agent.ts'
import type { AgentProcess } from './agent-process.ts'
import { all, assertTurn, result } from './conformance.ts'
import { answerEvents, fakeAnthropic } from './fake-anthropic.ts'
import { processes, token, World } from './world.ts'

async function assertCleanEnd(agent: AgentProcess): Promise<void> {
  assert.deepEqual(agent.rejected, [])
  assert.equal(await agent.shutdown(), 0)
}

test('a prompt becomes a served page, a follow-up changes it, and a repeated message is not done again', async () => {
  await using world = await World.create()
  await using agent = await world.agent()
  assert.deepEqual(
    agent.events.map((event) => event.type),
    ['ready', 'configured'],
  )
  assert.deepEqual(agent.events[1], {
    type: 'configured',
    model: 'demo',
    tools: ['bash', 'read', 'write', 'edit', 'glob', 'grep', 'ls'],
    cwd: world.cwd,
  })

  const events = await agent.turn('msg_1', 'A page about tides & <script>alert(1)</script>')
  assertTurn(events, 'msg_1')
  assert.equal(result(events).subtype, 'success')
  const called = all(events, 'assistant').flatMap(({ message }) => message.content.filter((b) => b.type === 'tool_use'))
  const summaries = all(events, 'tool_use_summary')
  assert.deepEqual(
    called.map((call) => call.name),
    ['write', 'write', 'bash', 'bash'],
  )
  // Calls of one answer run side by side and end in any order.
  assert.deepEqual(summaries.map((summary) => summary.tool_use_id).toSorted(), called.map((call) => call.id).toSorted())
  assert.ok(summaries.every((summary) => !summary.is_error && summary.summary.length <= 200))
  assert.deepEqual(
    all(events, 'artifact')
      .map((artifact) => artifact.path)
      .toSorted(),
    [join(world.cwd, 'index.html'), join(world.cwd, 'styles.css')],
  )
  assert.ok(all(events, 'assistant').every(({ message }) => message.model === 'demo'))
  assert.ok(result(events).usage.input_tokens > 0 && result(events).usage.output_tokens > 0)
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
  const { inputTokens, outputTokens } = world.usage.reduce((sum, usage) => ({
    ...usage,
    inputTokens: sum.inputTokens + usage.inputTokens,
    outputTokens: sum.outputTokens + usage.outputTokens,
  }))
  const told = all(agent.events, 'result')
  assert.equal(
    told.reduce((sum, event) => sum + event.usage.input_tokens, 0),
    inputTokens,
  )
  assert.equal(
    told.reduce((sum, event) => sum + event.usage.output_tokens, 0),
    outputTokens,
  )
  await assertCleanEnd(agent)
})

test('prompts with odd contents become pages too', async () => {
  await using world = await World.create()
  await using agent = await world.agent()
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
    const events = await agent.turn(`msg_${index}`, prompt)
    assertTurn(events, `msg_${index}`)
    assert.equal(result(events).subtype, 'success', prompt.slice(0, 50))
    assert.match(await world.page(), /<title>.*quotes.*<\/title>/)
  }
  const page = await world.page()
  assert.equal(page.split('<!-- changes -->').length, 2)
  assert.match(page, /🐚🌊 emoji first/)
  await assertCleanEnd(agent)
})

test('the page is built over both of the OpenAI wires as well', async () => {
  for (const api of ['openai-completions', 'openai-responses'] as const) {
    await using world = await World.create()
    await using agent = await world.agent({ model: { provider: 'openai', id: 'demo', api } })
    const events = await agent.turn('msg_1', `Hello over ${api}`)
    assert.equal(result(events).subtype, 'success')
    assert.match(await world.page(), new RegExp(`Hello over ${api}`))
    assert.ok(world.usage.every((usage) => !usage.estimated && usage.outputTokens > 0))
    await assertCleanEnd(agent)
  }
})

test('an interrupt ends the turn and the command, and the next message works', async () => {
  await using world = await World.create()
  await using agent = await world.agent()
  const from = agent.events.length
  agent.send({ type: 'message', messageId: 'msg_1', content: 'run: sleep 30.125' })
  await agent.event('assistant')
  while (processes('sleep\x0030.125').length === 0) await sleep(20)
  agent.send({ type: 'interrupt' })
  await agent.event('turn_complete')
  const events = agent.events.slice(from)
  assertTurn(events, 'msg_1')
  assert.equal(result(events).subtype, 'interrupted')
  assert.equal(processes('sleep\x0030.125').length, 0)
  // While nothing runs an interrupt is nothing.
  agent.send({ type: 'interrupt' })
  const next = await agent.turn('msg_2', 'run: echo still "here"')
  assert.equal(result(next).subtype, 'success')
  assert.match(result(next).result, /still here/)
  await assertCleanEnd(agent)
})

test('a killed process takes its turn up where it stood and remembers the conversation', async () => {
  await using world = await World.create()
  {
    await using agent = await world.agent()
    assertTurn(await agent.turn('msg_1', 'A page about reefs'), 'msg_1')
    agent.send({ type: 'message', messageId: 'msg_2', content: 'run: echo once >> log.txt; sleep 30.25' })
    while (processes('sleep\x0030.25').length === 0) await sleep(20)
    await agent.kill()
    for (const pid of processes('sleep\x0030.25')) process.kill(pid, 'SIGKILL')
  }
  await using agent = await world.agent()
  const events = await agent.turn('msg_2', 'run: echo once >> log.txt; sleep 30.25')
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

test('what a command leaves in the background runs on after the turn and after the agent', async () => {
  await using world = await World.create()
  const script = `while :; do echo tick; echo t >> ${world.folder}/ticks; sleep 0.05; done`
  const ticks = () => readFileSync(join(world.folder, 'ticks'), 'utf8').length
  // The oldest alone: the child that is about to be a `sleep` has the command line of its parent for a moment.
  const tickers = () =>
    processes(`bash\0${world.folder}/ticker.sh\0`)
      .toSorted((a, b) => a - b)
      .slice(0, 1)
  let pids: number[] = []
  try {
    {
      await using agent = await world.agent()
      writeFileSync(join(world.folder, 'ticker.sh'), script)
      const events = await agent.turn('msg_1', `run: bash ${world.folder}/ticker.sh & echo started`)
      assert.match(result(events).result, /started/)
      while (!existsSync(join(world.folder, 'ticks'))) await sleep(20)
      pids = tickers()
      assert.equal(pids.length, 1)
      await assertCleanEnd(agent)
    }
    const before = ticks()
    while (ticks() < before + 20) await sleep(20)
    assert.deepEqual(tickers(), pids)
  } finally {
    for (const pid of pids) process.kill(pid, 'SIGKILL')
  }
})

test('a command that runs while the agent is killed ends when the next one starts; what earlier calls left runs on', async () => {
  await using world = await World.create()
  const first = await world.agent()
  await first.turn('msg_1', 'run: sleep 41.625 &')
  first.send({ type: 'message', messageId: 'msg_2', content: 'run: sleep 41.375' })
  while (processes('sleep\x0041.375').length === 0) await sleep(20)
  await first.kill()
  assert.equal(processes('sleep\x0041.375').length, 1)
  await using second = await world.agent()
  while (processes('sleep\x0041.375').length > 0) await sleep(20)
  const [background] = processes('sleep\x0041.625')
  assert.ok(background)
  process.kill(background, 'SIGKILL')
  await assertCleanEnd(second)
})

test('lines that are no commands are answered by an error each and stop nothing', async () => {
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

test('max_turns, allowed tools and a spent budget are kept to', async () => {
  await using world = await World.create()
  {
    await using agent = await world.agent({ maxTurns: 2, allowedTools: ['Write', 'bash', 'unknown', 'find'] })
    const [configured] = all(agent.events, 'configured')
    assert.deepEqual(configured?.tools, ['bash', 'write', 'glob'])
    const events = await agent.turn('msg_1', 'A page')
    assertTurn(events, 'msg_1')
    assert.equal(result(events).subtype, 'error_max_turns')
    assert.equal(result(events).num_turns, 2)
    await assertCleanEnd(agent)
  }
  await using agent = await world.agent()
  world.isBudgetSpent = true
  const events = await agent.turn('msg_2', 'More')
  assertTurn(events, 'msg_2')
  assert.equal(result(events).subtype, 'error_during_execution')
  assert.deepEqual(
    all(events, 'error').map((event) => [event.code, event.fatal]),
    [['budget_exceeded', false]],
  )
  world.isBudgetSpent = false
  assert.equal(result(await agent.turn('msg_3', 'Now it works')).subtype, 'success')
  await assertCleanEnd(agent)
})

test('system prompt and skills reach the model, and the token reaches neither commands nor the disk', async () => {
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
  const environment = await demo.turn('msg_2', 'run: env; cat /proc/self/environ')
  assert.match(JSON.stringify(environment), /PATH=/)
  assert.ok(!JSON.stringify(environment).includes(token))
  assert.ok(existsSync(join(world.folder, 'agent/.atoll/pi/conversation.jsonl')))
  assert.ok(!readFileSync(join(world.folder, 'agent/.atoll/pi/conversation.jsonl'), 'utf8').includes(token))
  await assertCleanEnd(demo)
})

test('an answer that breaks off in the middle is asked for again', async () => {
  let calls = 0
  await using upstream = await fakeAnthropic((_body, response) => {
    calls += 1
    if (calls > 2) return false
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.write(`data: ${JSON.stringify(answerEvents[0])}\n\n`, () => response.destroy())
    return true
  })
  await using world = await World.create({ anthropic: { baseUrl: upstream.url } })
  await using agent = await world.agent({ model: { provider: 'anthropic', id: 'some-model' } })
  const events = await agent.turn('msg_1', 'Hello')
  assertTurn(events, 'msg_1')
  assert.deepEqual([result(events).subtype, result(events).result, calls], ['success', 'Hi there', 3])
  assert.equal(all(events, 'error').length, 0)
  await assertCleanEnd(agent)
})

test('an answer that ends in an error of the API which may pass is asked for again', async () => {
  const errors = ['overloaded_error', 'api_error']
  await using upstream = await fakeAnthropic((_body, response) => {
    const type = errors.shift()
    if (type === undefined) return false
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.end(`event: error\ndata: ${JSON.stringify({ type: 'error', error: { type, message: 'Later' } })}\n\n`)
    return true
  })
  await using world = await World.create({ anthropic: { baseUrl: upstream.url } })
  await using agent = await world.agent({ model: { provider: 'anthropic', id: 'some-model' } })
  const events = await agent.turn('msg_1', 'Hello')
  assertTurn(events, 'msg_1')
  assert.deepEqual([result(events).subtype, result(events).result], ['success', 'Hi there'])
  assert.equal(all(events, 'error').length, 0)
  await assertCleanEnd(agent)
})

test('a turn lives through a restart of the gateway', async () => {
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

test('a process that is killed before the model has answered asks with the same message again, once', async () => {
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

test('a process that is killed while it asked again and again leaves a turn that the next one takes up', async () => {
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

test('a model API that refuses ends the turn with an error and its words', async () => {
  await using upstream = await fakeAnthropic((_body, response) => {
    response.writeHead(400, { 'content-type': 'application/json' })
    response.end('{"type":"error","error":{"type":"invalid_request_error","message":"no such thing"}}')
    return true
  })
  await using world = await World.create({ anthropic: { baseUrl: upstream.url } })
  await using agent = await world.agent({ model: { provider: 'anthropic', id: 'some-model' } })
  const events = await agent.turn('msg_1', 'Hello')
  assertTurn(events, 'msg_1')
  assert.equal(result(events).subtype, 'error_during_execution')
  assert.match(result(events).result, /no such thing/)
  assert.deepEqual(
    all(events, 'error').map((event) => event.code),
    ['model_error'],
  )
  await assertCleanEnd(agent)
})
