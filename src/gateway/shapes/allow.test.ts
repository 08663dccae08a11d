import assert from 'node:assert/strict'
import { test } from 'node:test'
import { modelRequest } from '../model-request.ts'
import { RefusedField } from '../refused-field.ts'
import { completions, messages, responses } from '../testing/gateway-setup.ts'
import { wires } from '../wires.ts'
import { allowing, defaultAllowList } from './allow.ts'

async function refusedField(path: string, body: object, names: readonly string[] = []): Promise<string | undefined> {
  const allowList = allowing(names, (name, why) => assert.fail(`${name} ${why}`))
  try {
    const bytes = Buffer.from(JSON.stringify({ model: 'm-1', ...body }))
    await modelRequest(wires[path]!, bytes, { allowList, keepsCompletions: false })
    return undefined
  } catch (error) {
    if (!(error instanceof RefusedField)) throw error
    return error.field
  }
}

test('allow list: what a refusal names can be allowed, and nothing else by it', async () => {
  const said = (block: object) => ({ messages: [{ role: 'user', content: [block] }] })
  const cases: [string, object][] = [
    [messages, { new_field: { deep: [1] } }],
    [messages, { container: 'c' }],
    [messages, said({ type: 'text', text: 'x', extra: 1 })],
    [messages, said({ type: 'image', source: { type: 'file', file_id: 'f' } })],
    [messages, said({ type: 'container_upload', file_id: 'f' })],
    [completions, said({ type: 'input_audio', input_audio: { data: '' } })],
    [completions, { reasoning: { tokens: 1 } }],
    [responses, { input: [{ type: 'image_generation_call', id: 'ig', result: 'x' }] }],
    [responses, { tools: [{ type: 'web_search', filters: {} }] }],
    [responses, { previous_response_id: 'resp' }],
  ]
  for (const [path, body] of cases) {
    const names: string[] = []
    for (;;) {
      const field = await refusedField(path, body, names)
      if (field === undefined) break
      assert.ok(!names.includes(field), field)
      names.push(field)
    }
    assert.ok(names.length > 0, JSON.stringify(body))
    const other = await refusedField(path, { ...body, other_field: 1 }, names)
    assert.equal(other, `${wires[path]!.name}:other_field`)
    // One list does not change another.
    assert.notEqual(await refusedField(path, body), undefined)
  }
})

test('allow list: names of nothing are told, beta features are kept apart', () => {
  const faults: string[] = []
  const list = allowing(
    [
      'anthropic-beta:New-2030-01-01',
      'x',
      'other:field',
      'anthropic-messages:',
      'anthropic-messages:nowhere.field',
      'anthropic-messages:messages.field',
      'anthropic-messages:tool_choice.type=x',
      'openai-responses:a b',
      'openai-responses:input[].type=a',
    ],
    (name) => faults.push(name),
  )
  assert.deepEqual(faults, [
    'x',
    'other:field',
    'anthropic-messages:',
    'anthropic-messages:nowhere.field',
    'anthropic-messages:messages.field',
    'anthropic-messages:tool_choice.type=x',
    'openai-responses:a b',
  ])
  assert.deepEqual([...list.betas], ['new-2030-01-01'])
  assert.equal(list.shapes['openai-completions'], defaultAllowList.shapes['openai-completions'])
})
