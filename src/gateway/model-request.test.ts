import assert from 'node:assert/strict'
import { test } from 'node:test'
import { modelRequest } from './model-request.ts'
import { wires } from './wires.ts'

const wire = wires['/openai/v1/chat/completions']!

test('others have their turns while a long body is looked through, whatever it holds', async () => {
  const bytes = 4 * 1024 * 1024
  for (const part of ['{},', '"",', ' ', '1e20,', '"a"    ,']) {
    const parts = part.repeat(bytes / part.length)
    assert.ok((await turnsDuring(`{"model":"m-1","a":[${parts}0]}`)) > 8, part)
  }
  for (const part of ['a', '\\"', 'é']) {
    const parts = part.repeat(bytes / part.length)
    assert.ok((await turnsDuring(`{"model":"m-1","a":"${parts}"}`)) > 8, part)
  }
})

async function turnsDuring(text: string): Promise<number> {
  let turns = 0
  let isDone = false
  const count = () => {
    turns++
    if (!isDone) setImmediate(count)
  }
  setImmediate(count)
  await modelRequest(wire, Buffer.from(text))
  isDone = true
  return turns
}
