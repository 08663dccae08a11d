import assert from 'node:assert/strict'
import { test } from 'node:test'
import { agentEventBytesMax } from '../../src/protocol/agent.ts'
import type { FakeAgent } from '../../src/session/testing/fake-agent.ts'
import { assertWhole, orgId, simple, useWorld } from '../../src/session/testing/world.ts'

const mib = 1024 * 1024

const world = useWorld()

/** One session whose agent writes this before its first turn goes on as usual; returns the codes of its `error` events. */
async function after(write: (agent: FakeAgent) => void): Promise<unknown[]> {
  const service = world.serve()
  const { script } = world.sandboxes
  world.sandboxes.script = {
    turn: (agent, content, resumed) => {
      agent.process.frameBytes = 64 * 1024
      write(agent)
      script.turn(agent, content, resumed)
    },
  }
  const { session } = await service.create(orgId, simple)
  await world.eventually('the end', async () => {
    assert.equal((await world.types(session.id)).at(-1), 'turn_complete')
  })
  await assertWhole(world, session.id)
  const { process } = world.sandboxes.agent
  await world.eventually('all is acknowledged', () => assert.equal(process.acknowledged, process.log.length))
  const events = await world.streamed(session.id)
  assert.equal(events.find(({ data }) => data.type === 'result')?.data['subtype'], 'success')
  assert.ok((await world.store.head(session.id))!.streamBytes < mib)
  return events.filter(({ data }) => data.type === 'error').map(({ data }) => data['code'])
}

test('a line of 50 MiB is left out with one warning', async () => {
  const codes = await after((agent) => {
    agent.process.write(Buffer.alloc(50 * mib, 'x'))
    agent.process.write('\n')
  })
  assert.deepEqual(codes, ['agent_output_invalid'])
})

test('a line of one byte too many is left out, though it is an event', async () => {
  const codes = await after((agent) => {
    const event = JSON.stringify({ type: 'error', message: 'm', code: 'agent_error', fatal: false })
    agent.process.write(`${event}${' '.repeat(agentEventBytesMax + 1 - event.length)}\n`)
  })
  assert.deepEqual(codes, ['agent_output_invalid'])
})

test('binary garbage, broken JSON, deep nesting and wrong shapes give one warning', async () => {
  const codes = await after((agent) => {
    agent.process.write(Buffer.from(Array.from({ length: 100_000 }, (_, index) => (index * 7919) % 256)))
    agent.process.write('\n{"type":"assistant"\n[]\nnull\n"ready"\n')
    agent.process.write(`{"type":"assistant","message":${'['.repeat(100_000)}${']'.repeat(100_000)}}\n`)
    agent.process.write('{"type":"assistant","message":{"role":"user","content":[]},"session_id":"s"}\n')
    agent.process.write('{"type":"result","subtype":"perfect"}\n{"type":"__proto__"}\n')
  })
  assert.deepEqual(codes, ['agent_output_invalid'])
})

test('a line that never ends holds nothing up but itself: it is acknowledged while it grows', async () => {
  const service = world.serve({ timings: { interruptAskMs: 20, interruptSigintMs: 20 } })
  world.sandboxes.script = {
    turn: (agent) => {
      agent.process.frameBytes = 64 * 1024
      for (let n = 0; n < 20; n++) agent.process.write(Buffer.alloc(mib, 'x'))
    },
    interrupt: () => false,
  }
  const { session } = await service.create(orgId, simple)
  await world.eventually('the turn', () => assert.equal(world.sandboxes.agent?.commands.length, 2))
  const { process } = world.sandboxes.agent
  await world.eventually('all is acknowledged', () => assert.equal(process.acknowledged, process.log.length))
  await service.interrupt(orgId, session.id, 'u1')
  await world.until(session.id, 'idle')
  await assertWhole(world, session.id)
})
