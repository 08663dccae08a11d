import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { AcpEvents } from './acp/events.ts'
import { ClaudeEvents } from './claude/events.ts'
import type { HarnessEvent, HarnessSettings } from './harness.ts'

const settings = { cwd: '/', model: { provider: 'anthropic', id: 'm' } } as HarnessSettings

function told(t: TestContext) {
  t.mock.timers.enable({ apis: ['setTimeout'] })
  const events: unknown[] = []
  const emit = (event: HarnessEvent) => {
    events.push(event.type === 'assistant_draft' ? [event.offset, event.text] : event.type)
  }
  return { events, emit, later: () => t.mock.timers.tick(50) }
}

test('claude: what its model writes is a draft, what a helper of it writes is none, and odd messages are ignored', (t) => {
  const { events, emit, later } = told(t)
  const claude = new ClaudeEvents(settings, emit)
  const write = (event: unknown, parent: string | null = null) => {
    claude.take({ type: 'stream_event', parent_tool_use_id: parent, event })
    later()
  }
  const delta = (text: unknown, type = 'text_delta') => ({
    type: 'content_block_delta',
    index: 0,
    delta: { type, text },
  })
  write({ type: 'message_start' })
  write(delta('The reef'))
  write(delta('of a helper'), 'toolu_1')
  write(delta('a thought', 'thinking_delta'))
  for (const odd of [null, 7, { delta: null }, delta(7)]) write(odd)
  write(delta(' is alive'))
  claude.take({ type: 'assistant', message: { content: [{ type: 'text', text: 'The reef is alive' }] } })
  write(delta('Next'))
  assert.deepEqual(events, [[0, 'The reef'], [8, ' is alive'], 'assistant', [0, 'Next']])
})

test('acp: the chunks of an answer are a draft, and what waits at its end is not told after it', (t) => {
  const { events, emit, later } = told(t)
  const acp = new AcpEvents(settings, emit)
  const chunk = (text: string) =>
    acp.take({ sessionUpdate: 'agent_message_chunk', content: { type: 'text', text } } as never)
  chunk('The ')
  chunk('reef')
  later()
  chunk(' is alive')
  acp.end()
  later()
  assert.deepEqual(events, [[0, 'The reef'], 'assistant'])
})
