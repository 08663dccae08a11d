import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { acpCommand } from '../../src/agent/acp/process.ts'
import { toolOf } from '../../src/agent/acp/events.ts'
import type { AgentEvent } from '../../src/protocol/agent.ts'
import { all, assertTurn, result } from './conformance.ts'
import { processes, World } from './world.ts'

/** Each test starts up to eight processes, which on a busy machine take seconds. */
const timeout = 300_000

function faulty(fault: string): string {
  return `acp:${process.execPath} "${join(import.meta.dirname, 'fake-acp-agent.mjs')}" ${fault}`
}

test('acp command: it is split at blanks and quotes, and needs a program', () => {
  assert.deepEqual(acpCommand('acp:qwen --acp'), ['qwen', '--acp'])
  assert.deepEqual(acpCommand(`acp:"/opt/my agent" 'a b'  c $(id)`), ['/opt/my agent', 'a b', 'c', '$(id)'])
  assert.equal(acpCommand('acp:  '), undefined)
})

test('acp events: tools have the names of the protocol, by their own name or else by their kind', () => {
  assert.equal(toolOf({ name: 'run_shell_command', kind: 'other' }), 'bash')
  assert.equal(toolOf({ name: 'WriteFile' }), 'write')
  assert.equal(toolOf({ kind: 'edit', input: { content: '' } }), 'write')
  assert.equal(toolOf({ kind: 'edit', input: {} }), 'edit')
  assert.equal(toolOf({ name: 'constructor' }), 'constructor')
  assert.equal(toolOf({}), 'other')
})

test(
  'acp: a program that is absent, ends or wants a login fails the configuration with a message',
  { timeout },
  async () => {
    const cases = [
      ['acp:no-such-program-anywhere --acp', /no-such-program-anywhere was not found in the sandbox/],
      ['acp: ', /must be followed by the command/],
      [faulty('dies-at-start'), /ended with status 7\. no licence found/],
      [faulty('wants-login'), /wants a login/],
    ] as const
    for (const [harness, words] of cases) {
      await using world = await World.create()
      await using agent = world.start({ harness })
      const error = await agent.event('error')
      assert.equal(error.code, 'configure_failed')
      assert.match(error.message, words)
      const events = await agent.turn('msg_1', 'Hello')
      assertTurn(events, 'msg_1')
      assert.equal(result(events).subtype, 'error_during_execution')
    }
  },
)

test('acp: invalid output of a program is ignored, and a call without an end is closed', { timeout }, async () => {
  await using world = await World.create()
  await using agent = await world.agent({ harness: faulty('noisy') })
  for (const message of ['one', 'two']) {
    const events = await agent.turn(`msg_${message}`, message)
    assertTurn(events, `msg_${message}`)
    assert.equal(result(events).subtype, 'success')
    assert.equal(result(events).result, `You said ${message}.`)
    assert.deepEqual(
      all(events, 'tool_use_summary').map(({ tool, is_error }) => [tool, is_error]),
      [
        ['read', false],
        ['bash', true],
      ],
    )
  }
  assert.deepEqual(agent.rejected, [])
  assert.equal(await agent.shutdown(), 0)
})

test('acp: what is too large for an event is told, and the rest arrives', { timeout }, async () => {
  await using world = await World.create()
  await using agent = await world.agent({ harness: faulty('large') })
  const textOf = (events: AgentEvent[]) => {
    const [answer] = all(events, 'assistant')
    const [block] = answer?.message.content ?? []
    return block?.type === 'text' ? block.text : ''
  }
  const whole = await agent.turn('msg_whole', 'say 500000')
  assert.equal(textOf(whole).length, 500_000)
  assert.deepEqual(all(whole, 'error'), [])
  for (const length of [3_900_000, 6_000_000]) {
    const events = await agent.turn(`msg_${length}`, `say ${length}`)
    const kept = 512 * 1024
    assert.equal(textOf(events), `${'a'.repeat(kept)}… [${length - kept} characters cut]`)
    const [error, ...others] = all(events, 'error')
    assert.deepEqual([error?.code, error?.fatal, others], ['output_cut', false, []])
    assert.match(error?.message ?? '', new RegExp(`${length - kept} characters of an answer`))
    assert.equal(result(events).subtype, 'success')
  }
  const lost = await agent.turn('msg_lost', 'say 20000000')
  assert.match(all(lost, 'error')[0]?.message ?? '', /a message of the agent with 200001\d\d bytes/)
  assert.equal(result(lost).subtype, 'success')
  const calls = await agent.turn('msg_calls', 'call often')
  assert.match(all(calls, 'error')[0]?.message ?? '', /3 tool calls/)
  const unanswered = await agent.turn('msg_unanswered', 'end at length')
  assert.equal(result(unanswered).subtype, 'error_during_execution')
  assert.match(result(unanswered).result, /more than can be read/)
  assert.equal(result(await agent.turn('msg_next', 'hello')).result, 'You said hello.')
  assert.deepEqual(agent.rejected, [])
})

test(
  'acp: a turn of a program that dies or fails ends with an error, and the next one works',
  { timeout },
  async () => {
    await using world = await World.create()
    await using agent = await world.agent({ harness: faulty('fine') })
    for (const [fault, words] of [
      ['die', /ended with status 9/],
      ['fail', /something broke/],
    ] as const) {
      const events = await agent.turn(`msg_${fault}`, fault)
      assertTurn(events, `msg_${fault}`)
      assert.equal(result(events).subtype, 'error_during_execution')
      assert.match(all(events, 'error')[0]?.message ?? '', words)
      assert.equal(result(await agent.turn(`msg_after_${fault}`, 'hello')).result, 'You said hello.')
    }
  },
)

test('acp: a program that ignores an interrupt is killed, and the next turn restarts it', { timeout }, async () => {
  await using world = await World.create()
  await using agent = await world.agent({ harness: faulty('deaf-one') })
  const [before] = processes('fake-acp-agent.mjs\0deaf-one')
  agent.send({ type: 'message', messageId: 'msg_1', content: 'deaf' })
  // What it says shows that it has the prompt.
  while (agent.drafts.length === 0) await sleep(20)
  agent.send({ type: 'interrupt' })
  assert.equal((await agent.event('result')).subtype, 'interrupted')
  assert.equal(result(await agent.turn('msg_2', 'hello')).result, 'You said hello.')
  assert.notDeepEqual(processes('fake-acp-agent.mjs\0deaf-one'), [before])
})

for (const fault of ['leaves-commands', 'ignores-cancel']) {
  test(
    `acp: an interrupt ends the command of a program that ${fault}, not those of other turns`,
    { timeout },
    async () => {
      await using world = await World.create()
      await using agent = await world.agent({ harness: faulty(fault) })
      const sleeping = (seconds: string) => processes(`sleep\0${seconds}.${process.pid}\0`)
      // The first shell ends at once, as those of servers do.
      await agent.turn('msg_1', `run: sleep 61.${process.pid} >&2 &`)
      agent.send({ type: 'message', messageId: 'msg_2', content: `run: sleep 62.${process.pid}` })
      while (sleeping('62').length === 0) await sleep(20)
      const from = agent.events.length
      agent.send({ type: 'interrupt' })
      assert.equal((await agent.event('result', undefined, from)).subtype, 'interrupted')
      while (sleeping('62').length > 0) await sleep(20)
      // The background shell may still be on its way to it.
      while (sleeping('61').length === 0) await sleep(20)
      assert.equal(sleeping('61').length, 1)
      assert.equal(result(await agent.turn('msg_3', 'hello')).result, 'You said hello.')
      for (const pid of sleeping('61')) process.kill(pid, 'SIGKILL')
    },
  )
}
