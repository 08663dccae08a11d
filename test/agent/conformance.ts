import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { processTree } from '../../src/agent/process-groups.ts'
import type { AgentEvent, AgentEventOf } from '../../src/protocol/agent.ts'
import type { AgentProcess } from './agent-process.ts'
import { textOf } from '../../src/agent/proc.ts'
import { assertStrangersRefused, commandThatAsks, filesWith, keyNames } from './listening.ts'
import { processes, token, World } from './world.ts'

interface HarnessUnderTest {
  /** As in the names of tests. */
  name: string
  /** As in `agent_config.harness`. */
  harness: () => Promise<string>
  env?: Record<string, string>
  /** A program outside of the agent's process calls the model, through the proxy. */
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

/** What holds for every turn of every harness, whatever happened in it. */
export function assertTurn(events: readonly AgentEvent[], messageId: string): void {
  assert.deepEqual(events[0], { type: 'turn_started', message_id: messageId })
  assert.deepEqual(
    events.slice(-2).map((event) => event.type),
    ['result', 'turn_complete'],
  )
  assert.equal(all(events, 'result').length, 1)
  assert.equal(all(events, 'turn_complete').length, 1)
  const reported = new Set<string>()
  for (const event of events) {
    if (event.type === 'assistant') {
      for (const block of event.message.content) if (block.type === 'tool_use') reported.add(block.id)
    }
    if (event.type === 'tool_use_summary') {
      assert.ok(reported.delete(event.tool_use_id), 'a call is reported before its summary, and summarised once')
    }
  }
}

/** Programs take seconds to start, on a busy machine tens of them. */
const testMs = 600_000
/**
 * Some agents refuse to run `sleep`. The number is that of this process alone. It outlasts all requests of the check of the listeners,
 * which on a busy machine take long.
 */
const longScript = `import time; time.sleep(300.${process.pid})`
const longCommand = `run: python3 -c '${longScript}'`

function isLongCommandRunning(): boolean {
  return processes(`\0${longScript}\0`).length > 0
}

/**
 * The tests that every harness passes, with the real process, the real gateway and the demo model. They share one process, because
 * real programs take seconds to start; the last test kills it.
 */
export function harnessConformance({ name, harness, env = {}, needsProxy }: HarnessUnderTest): void {
  let world: World
  let agent: AgentProcess
  let messageCount = 0

  // A registry can be slow, so programs are installed outside of the tests' timeouts.
  before(async () => {
    world = await World.create()
    agent = await world.agent({ harness: await harness() }, env)
  })

  after(async () => {
    await agent[Symbol.asyncDispose]()
    await world[Symbol.asyncDispose]()
    assert.deepEqual(world.warnings, [], 'the gateway serves all that the harness sends')
  })

  async function turn(content: string): Promise<AgentEvent[]> {
    const messageId = `msg_${++messageCount}`
    const events = await agent.turn(messageId, content)
    assertTurn(events, messageId)
    return events
  }

  /** Runs a command that prints the keys of its environment. Returns the credential among them. */
  async function credentialOfCommands(): Promise<string | undefined> {
    // Some agents drop output that comes just before the end of a command.
    await turn(`run: env | grep _API_KEY; env > ${world.folder}/environment; python3 -c 'import time; time.sleep(2)'`)
    const lines = readFileSync(`${world.folder}/environment`, 'utf8').split('\n')
    const line = lines.find((candidate) => keyNames.some((key) => candidate.startsWith(`${key}=`)))
    return line?.slice(line.indexOf('=') + 1)
  }

  function check(what: string, run: () => Promise<void>): void {
    test(`${name}: ${what}`, { timeout: testMs }, run)
  }

  // First: some programs call the model after a turn, which the check of the listeners would count.
  check('its listeners refuse unknown clients; an interrupt or SIGINT ends the turn and its command', async () => {
    assert.deepEqual(
      agent.events.map((event) => event.type),
      ['ready', 'configured'],
    )
    for (const how of ['interrupt', 'SIGINT'] as const) {
      const from = agent.events.length
      const messageId = `msg_${++messageCount}`
      agent.send({ type: 'message', messageId, content: longCommand })
      while (!isLongCommandRunning()) await sleep(20)
      if (how === 'SIGINT') agent.signal('SIGINT')
      else {
        await assertStrangersRefused(world, agent, needsProxy)
        agent.send({ type: 'interrupt', messageId: 'msg_unknown' })
        agent.send({ type: 'interrupt', messageId })
      }
      await agent.event('turn_complete', undefined, from)
      const events = agent.events.slice(from)
      assertTurn(events, messageId)
      assert.equal(result(events).subtype, 'interrupted')
      while (isLongCommandRunning()) await sleep(20)
      const next = result(await turn('run: echo again'))
      assert.equal(next.subtype, 'success')
      assert.match(next.result, /again/)
    }
  })

  check("a prompt becomes a page, in order, with the protocol's tool names and the usage", async () => {
    const events = await turn('A page about tides')
    const { subtype, usage, num_turns, result: text } = result(events)
    assert.equal(subtype, 'success', text)
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
    assert.ok(usage.input_tokens > 0 && usage.output_tokens > 0)
    assert.ok(num_turns >= 4)
    assert.match(text, /live on port/)
  })

  check('files that a command creates are reported as artifacts', async () => {
    const command = 'mkdir -p made/deep node_modules/x; echo 1 > made/deep/page.ts; echo 2 > node_modules/x/index.js'
    assert.deepEqual(
      all(await turn(`run: ${command}`), 'artifact').map(({ path }) => path),
      [`${world.cwd}/made/deep/page.ts`],
    )
    // The clock of file systems advances in steps of up to 10 ms.
    await sleep(50)
    assert.deepEqual(all(await turn('run: cat made/deep/page.ts'), 'artifact'), [])
  })

  check('a command that fails is reported as an error, and the turn goes on', async () => {
    const events = await turn('run: exit 3')
    assert.equal(result(events).subtype, 'success')
    assert.deepEqual(
      all(events, 'tool_use_summary').map(({ tool, is_error }) => [tool, is_error]),
      [['bash', true]],
    )
  })

  check('a spent budget ends the turn with its code, and the session continues', async () => {
    world.isBudgetSpent = true
    const events = await turn('More about tides')
    assert.equal(result(events).subtype, 'error_during_execution')
    assert.deepEqual(
      all(events, 'error').map(({ code, fatal }) => [code, fatal]),
      [['budget_exceeded', false]],
    )
    world.isBudgetSpent = false
    assert.equal(result(await turn('run: echo back')).subtype, 'success')
  })

  check('an interrupt of a message that does not run changes nothing', async () => {
    agent.send({ type: 'interrupt', messageId: 'msg_none' })
    agent.send({ type: 'interrupt' })
    assert.equal(result(await turn('run: echo fine')).subtype, 'success')
  })

  check(
    'a command that asks the model with the key of its environment is refused, and the program is served',
    async () => {
      if (!needsProxy) return assert.equal(await credentialOfCommands(), undefined)
      const answer = `${world.folder}/answer`
      assert.equal(result(await turn(`run: ${commandThatAsks(world.folder, answer)}`)).subtype, 'success')
      assert.match(readFileSync(answer, 'utf8'), /^403 .*not_the_agent/)
    },
  )

  check(
    'a killed process leaves its conversation to the next, which has another credential and keeps max_turns',
    async () => {
      const credential = await credentialOfCommands()
      assert.equal(credential !== undefined, needsProxy)
      const written = JSON.stringify(agent.events) + agent.stderr
      assert.ok(!written.includes(token))
      assert.deepEqual(filesWith(world.folder, token), [], 'the token is on the disk')
      const environments = processTree(agent.pid).map((pid) => textOf(`/proc/${pid}/environ`))
      assert.ok(!environments.join().includes(token), 'the token is in an environment')
      if (credential !== undefined) {
        assert.doesNotMatch(JSON.stringify(agent.events) + agent.stderr, new RegExp(credential))
        assert.match(JSON.stringify(agent.events), /_API_KEY=\[[^\]]+\]/)
      }
      assert.deepEqual(agent.rejected, [])
      const [{ session_id: sessionId }] = all(agent.events, 'result') as [AgentEventOf<'result'>]
      await agent.kill()

      agent = await world.agent({ harness: await harness(), maxTurns: 2 }, env)
      const repeated = await agent.turn(`msg_${messageCount}`, 'not read')
      assert.deepEqual(
        repeated.map((event) => event.type),
        ['turn_complete'],
      )
      const events = await turn('Make the sea deeper')
      const { subtype, num_turns, session_id } = result(events)
      assert.deepEqual([subtype, num_turns, session_id], ['error_max_turns', 2, sessionId])
      // The demo model knows the page from the conversation alone.
      assert.match(JSON.stringify(all(events, 'assistant')), /I will work that into the page/)
      if (needsProxy) assert.notEqual(await credentialOfCommands(), credential)
      assert.deepEqual(agent.rejected, [])
      assert.equal(await agent.shutdown(), 0)
    },
  )
}
