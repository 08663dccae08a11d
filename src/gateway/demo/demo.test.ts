import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { answerDemo } from './answer.ts'
import { readConversation } from './conversation.ts'
import { changesMarker, demoPage, titleOf } from './page.ts'

const tools = (['write', 'bash', 'edit'] as const).map((name) => ({ type: 'function' as const, function: { name } }))

interface DemoAnswer {
  content: string
  model: string
  toolCalls?: { name: string; arguments: string }[]
}

function ask(messages: Parameters<typeof readConversation>[0]['messages'], offered: typeof tools = tools): DemoAnswer {
  return answerDemo(readConversation({ model: 'demo', messages, tools: offered }), 3000) as DemoAnswer
}

test('demo: a page is complete and escaped for every prompt', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 300 }), fc.array(fc.string()), (prompt, changes) => {
      const html = demoPage(titleOf(prompt), prompt, changes)
      assert.equal(html.split(changesMarker).length, 2)
      assert.equal(html.split('<script').length, 2)
      assert.equal(html.split('</title>').length, 2)
      assert.equal(html.split('<blockquote>').length, 2)
      assert.ok(html.isWellFormed())
    }),
  )
})

test('demo: a title is the first words of a prompt', () => {
  assert.equal(
    titleOf('build a page about\nthe “tides”, please. Then more and more'),
    'Build a page about the “tides”, please. Then',
  )
  assert.equal(titleOf('ünïcode'), 'Ünïcode')
  assert.equal(titleOf('x'.repeat(500)).length, 60)
  assert.equal(titleOf(' \n\0 '), 'Hello from your sandbox')
})

test('demo: an answer depends on the messages alone', () => {
  const messages = [{ role: 'user' as const, content: 'Hello' }]
  assert.deepEqual(ask(messages), ask(messages))
  assert.equal(ask(messages).model, 'demo')
  assert.deepEqual(
    ask(messages).toolCalls?.map((call) => call.name),
    ['write', 'write'],
  )
})

test('demo: the parameter names of other harnesses are used where they are offered', () => {
  const parameters = { properties: { file_path: {}, content: {} } }
  const offered = [{ type: 'function' as const, function: { name: 'Write', parameters } }]
  const system = { role: 'system' as const, content: 'Your working directory: /workspace/app\nis there' }
  const answer = ask([system, { role: 'user', content: 'Hi' }], offered as typeof tools)
  const args = JSON.parse(answer.toolCalls?.[0]?.arguments ?? '{}') as Record<string, string>
  assert.equal(args['file_path'], '/workspace/app/index.html')
})

test('demo: without tools the model says what is missing', () => {
  assert.match(ask([{ role: 'user', content: 'Hi' }], []).content, /no tool that writes files/)
  assert.match(ask([{ role: 'user', content: 'run: ls' }], []).content, /no tool that runs commands/)
})

test('demo: a failed edit is followed by the whole page with all changes', () => {
  const call = (id: string, name: string, args: object) => ({
    role: 'assistant' as const,
    content: null,
    tool_calls: [{ id, type: 'function' as const, function: { name, arguments: JSON.stringify(args) } }],
  })
  const messages = [
    { role: 'user' as const, content: 'First' },
    call('a', 'write', { path: 'index.html', content: '' }),
    { role: 'tool' as const, tool_call_id: 'a', content: 'Successfully wrote' },
    { role: 'assistant' as const, content: 'Done' },
    { role: 'user' as const, content: 'Second <i>' },
    call('b', 'edit', { path: 'index.html' }),
    { role: 'tool' as const, tool_call_id: 'b', content: 'Could not find the exact text' },
  ]
  const [write] = ask(messages).toolCalls ?? []
  assert.equal(write?.name, 'write')
  assert.match(write.arguments, /First.*Change 1.*Second &lt;i&gt;/s)
})

test('demo: reminders of a harness are no part of the prompt, and tools of other names are used', () => {
  const parameters = { properties: { command: {}, is_background: {} } }
  const offered = [{ type: 'function' as const, function: { name: 'run_shell_command', parameters } }]
  const content = [
    { type: 'text', text: '<system-reminder>run: no\nworking in the directory: /w</system-reminder>' },
    { type: 'text', text: 'run: id' },
  ]
  const answer = ask([{ role: 'user', content }], offered as unknown as typeof tools)
  assert.deepEqual(JSON.parse(answer.toolCalls?.[0]?.arguments ?? ''), { command: 'id', is_background: false })
})

test('demo: of two texts in a message, of which the model never saw the first, the last is answered', () => {
  const content = ['run: echo one', 'run: echo two', '<system-reminder>x</system-reminder>']
  const parts = content.map((text) => ({ type: 'text' as const, text }))
  assert.match(ask([{ role: 'user', content: parts }]).toolCalls?.[0]?.arguments ?? '', /echo two/)
})

test('demo: reminders without an end are part of the prompt, whatever their number', () => {
  const open = '<system-reminder>'
  const closed = `${open}run: no</system-reminder>`
  const content = `${closed}First${closed} words ${open.repeat(500_000)}`
  const conversation = readConversation({ model: 'demo', messages: [{ role: 'user', content }] })
  assert.equal(conversation.prompt, `First words ${open.repeat(500_000)}`)
})
