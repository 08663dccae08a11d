import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import type { AgentEvent, AgentEventOf } from '../../src/protocol/agent.ts'
import type { AgentProcess } from './agent-process.ts'
import { listeningConformance } from './listening.ts'
import { processes, World } from './world.ts'

export interface HarnessUnderTest {
  /** As in the names of tests. */
  name: string
  /** As `agent_config.harness` names it. */
  harness: () => Promise<string>
  env?: Record<string, string>
  /** Its model is asked by a program that is no part of the agent's own process, through the proxy. */
  needsProxy: boolean
}

export function all<Type extends AgentEvent['type']>(events: readonly AgentEvent[], type: Type): AgentEventOf<Type>[] {
  return events.filter((event): event is AgentEventOf<Type> => event.type === type)
}

export function result(events: readonly AgentEvent[]): AgentEventOf<'result'> {
  const [event] = all(events, 'result')
  assert.ok(event)
  return event
}

/** What holds of every turn of every harness, whatever happened in it. */
export function assertTurn(events: readonly AgentEvent[], messageId: string): void {
  assert.deepEqual(events[0], { type: 'turn_started', message_id: messageId })
  assert.deepEqual(
    events.slice(-2).map((event) => event.type),
    ['result', 'turn_complete'],
  )
  assert.equal(all(events, 'result').length, 1)
  assert.equal(all(events, 'turn_complete').length, 1)
  const told = new Set<string>()
  for (const event of events) {
    if (event.type === 'assistant') {
      for (const block of event.message.content) if (block.type === 'tool_use') told.add(block.id)
    }
    if (event.type === 'tool_use_summary') {
      assert.ok(told.delete(event.tool_use_id), 'a call is told once before it is summed up, and summed up once')
    }
  }
}

/** Some agents refuse to run `sleep`. */
const longCommand = `python3 -c 'import time; time.sleep(31.25)'`
const testMs = 60_000

/** The tests that every harness passes, with the real process, the real gateway and the demo model. */
export function harnessConformance(under: HarnessUnderTest): void {
  const { name, env = {} } = under
  listeningConformance(under)

  async function start(world: World, configure: Parameters<World['agent']>[0] = {}): Promise<AgentProcess> {
    return await world.agent({ harness: await under.harness(), ...configure }, env)
  }

  test(
    `${name}: a prompt becomes a page, in order, with the tools' names and what was used`,
    { timeout: testMs },
    async () => {
      await using world = await World.create()
      await using agent = await start(world)
      assert.deepEqual(
        agent.events.map((event) => event.type),
        ['ready', 'configured'],
      )
      const events = await agent.turn('msg_1', 'A page about tides')
      assertTurn(events, 'msg_1')
      assert.equal(result(events).subtype, 'success', JSON.stringify(result(events)))
      const tools = all(events, 'tool_use_summary')
      assert.deepEqual(tools.map(({ tool }) => tool).toSorted(), ['bash', 'bash', 'write', 'write'])
      assert.ok(tools.every(({ is_error }) => !is_error))
      assert.deepEqual(
        all(events, 'artifact')
          .map(({ path }) => path)
          .toSorted(),
        [`${world.cwd}/index.html`, `${world.cwd}/styles.css`],
      )
      assert.match(await world.page(), /A page about tides/)
      const { usage, num_turns } = result(events)
      assert.ok(usage.input_tokens > 0 && usage.output_tokens > 0)
      assert.ok(num_turns >= 4)
      assert.match(result(events).result, /live on port/)
      assert.deepEqual(agent.rejected, [])
      assert.equal(await agent.shutdown(), 0)
    },
  )

  test(`${name}: files that a command makes are told as artifacts`, { timeout: testMs }, async () => {
    await using world = await World.create()
    await using agent = await start(world)
    const command = 'mkdir -p made/deep node_modules/x; echo 1 > made/deep/page.ts; echo 2 > node_modules/x/index.js'
    const events = await agent.turn('msg_1', `run: ${command}`)
    assertTurn(events, 'msg_1')
    assert.deepEqual(
      all(events, 'artifact').map(({ path }) => path),
      [`${world.cwd}/made/deep/page.ts`],
    )
    // The clock of file systems moves on in steps of up to 10 ms.
    await sleep(50)
    assert.deepEqual(all(await agent.turn('msg_2', 'run: cat made/deep/page.ts'), 'artifact'), [])
  })

  test(
    `${name}: a killed process leaves a conversation that the next one goes on with`,
    { timeout: testMs },
    async () => {
      await using world = await World.create()
      const first = await start(world)
      const { session_id: sessionId } = result(await first.turn('msg_1', 'A page about tides'))
      await first.kill()
      await using second = await start(world)
      const repeated = await second.turn('msg_1', 'A page about tides')
      assert.deepEqual(
        repeated.map((event) => event.type),
        ['turn_complete'],
      )
      const events = await second.turn('msg_2', 'Make the sea deeper')
      assertTurn(events, 'msg_2')
      assert.equal(result(events).subtype, 'success')
      assert.equal(result(events).session_id, sessionId)
      // The demo model knows the page from the conversation alone.
      assert.match(result(events).result, /I changed the page “A page about tides”: Make the sea deeper/)
    },
  )

  test(
    `${name}: an interrupt ends the turn and its command, and the next message works`,
    { timeout: testMs },
    async () => {
      await using world = await World.create()
      await using agent = await start(world)
      const from = agent.events.length
      agent.send({ type: 'message', messageId: 'msg_1', content: `run: ${longCommand}` })
      while (processes('\0import time; time.sleep(31.25)\0').length === 0) await sleep(20)
      agent.send({ type: 'interrupt', messageId: 'msg_unknown' })
      agent.send({ type: 'interrupt', messageId: 'msg_1' })
      await agent.event('turn_complete')
      const events = agent.events.slice(from)
      assertTurn(events, 'msg_1')
      assert.equal(result(events).subtype, 'interrupted')
      while (processes('\0import time; time.sleep(31.25)\0').length > 0) await sleep(20)
      const next = await agent.turn('msg_2', 'run: echo again')
      assertTurn(next, 'msg_2')
      assert.equal(result(next).subtype, 'success')
      assert.match(result(next).result, /again/)
    },
  )

  test(`${name}: SIGINT ends the turn as an interrupt does`, { timeout: testMs }, async () => {
    await using world = await World.create()
    await using agent = await start(world)
    agent.send({ type: 'message', messageId: 'msg_1', content: `run: ${longCommand}` })
    while (processes('\0import time; time.sleep(31.25)\0').length === 0) await sleep(20)
    agent.signal('SIGINT')
    assert.equal((await agent.event('result')).subtype, 'interrupted')
    while (processes('\0import time; time.sleep(31.25)\0').length > 0) await sleep(20)
    assert.equal(result(await agent.turn('msg_2', 'run: echo again')).subtype, 'success')
  })

  test(`${name}: an interrupt of a message that does not run changes nothing`, { timeout: testMs }, async () => {
    await using world = await World.create()
    await using agent = await start(world)
    agent.send({ type: 'interrupt', messageId: 'msg_none' })
    agent.send({ type: 'interrupt' })
    const events = await agent.turn('msg_1', 'run: echo fine')
    assertTurn(events, 'msg_1')
    assert.equal(result(events).subtype, 'success')
  })

  test(`${name}: max_turns ends a turn that wants more calls of the model`, { timeout: testMs }, async () => {
    await using world = await World.create()
    await using agent = await start(world, { maxTurns: 2 })
    const events = await agent.turn('msg_1', 'A page about tides')
    assertTurn(events, 'msg_1')
    assert.equal(result(events).subtype, 'error_max_turns')
    assert.equal(result(events).num_turns, 2)
  })

  test(
    `${name}: a spent budget ends the turn with its code, and the session lives on`,
    { timeout: testMs },
    async () => {
      await using world = await World.create()
      await using agent = await start(world)
      world.isBudgetSpent = true
      const events = await agent.turn('msg_1', 'A page about tides')
      assertTurn(events, 'msg_1')
      assert.equal(result(events).subtype, 'error_during_execution')
      assert.deepEqual(
        all(events, 'error').map(({ code, fatal }) => [code, fatal]),
        [['budget_exceeded', false]],
      )
      world.isBudgetSpent = false
      assert.equal(result(await agent.turn('msg_2', 'run: echo back')).subtype, 'success')
    },
  )

  test(`${name}: a command that fails is told as an error, and the turn goes on`, { timeout: testMs }, async () => {
    await using world = await World.create()
    await using agent = await start(world)
    const events = await agent.turn('msg_1', 'run: exit 3')
    assertTurn(events, 'msg_1')
    assert.equal(result(events).subtype, 'success')
    assert.deepEqual(
      all(events, 'tool_use_summary').map(({ tool, is_error }) => [tool, is_error]),
      [['bash', true]],
    )
  })

  test(`${name}: the token of the session reaches no command`, { timeout: testMs }, async () => {
    await using world = await World.create()
    await using agent = await start(world)
    const events = await agent.turn('msg_1', 'run: env; cat /proc/self/environ')
    assert.equal(result(events).subtype, 'success')
    assert.doesNotMatch(JSON.stringify(events), /token-of-this-session/)
  })
}
