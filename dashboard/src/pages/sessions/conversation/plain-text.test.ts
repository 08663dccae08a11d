import assert from 'node:assert/strict'
import { test } from 'node:test'
import { wordsOf } from './advice.ts'
import { plainText } from './plain-text.ts'
import { toolInputOf } from './tool-input.ts'

test('plain text: colours, titles and controls of terminals are not in it; lines and tabs are', () => {
  assert.equal(plainText('\u001b[1;31mred\u001b[0m\u001b]0;title\u0007 a\tb\r\nc\u0000\u0008'), 'red a\tb\nc')
  assert.equal(plainText('\u001b]8;;http://x\u001b\\link\u001b]8;;\u001b\\'), 'link')
})

test('plain text: what turns the order of characters is seen', () => {
  assert.equal(plainText('a\u202eexe.cod'), 'a‹U+202E›exe.cod')
  assert.equal(plainText('שלום'), 'שלום')
})

test('tool input: what a person reads first stands in one line, and unknown arguments are JSON', () => {
  const bash = toolInputOf('bash', JSON.stringify({ command: 'echo one\necho two' }))
  assert.equal(bash.brief, 'echo one echo two')
  assert.deepEqual(bash.parts, [{ label: 'Command', text: 'echo one\necho two' }])
  assert.equal(toolInputOf('write', '{"path":"/a","content":"x"}').brief, '/a')
  assert.deepEqual(toolInputOf('odd', '[1]').parts, [{ label: 'Input', text: '[\n  1\n]' }])
  assert.equal(toolInputOf('bash', '{"command":7}').brief, '{"command":7}')
})

test('errors: of the JSON of a model API the message is shown, of anything else all of it', () => {
  assert.equal(wordsOf('402 {"type":"error","error":{"message":"The budget is spent."}}'), 'The budget is spent.')
  assert.equal(wordsOf('402 {"error":'), '402 {"error":')
  assert.equal(wordsOf('the agent has died'), 'the agent has died')
})
