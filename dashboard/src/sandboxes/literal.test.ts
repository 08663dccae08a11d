import assert from 'node:assert/strict'
import { test } from 'node:test'
import { literalOf } from './literal.ts'

test('literal of JavaScript: what it writes means the value', () => {
  const values = [
    'web',
    `it's "x" \\ \n 🪸 </script>`,
    '\\"',
    "\\'",
    { name: 'web', ttlSeconds: 600, 'a-b': [1, null, true], nested: {} },
    [],
  ]
  for (const value of values) {
    // oxlint-disable-next-line typescript/no-implied-eval
    assert.deepEqual(new Function(`return ${literalOf(value)}`)(), value)
  }
})

test('literal of JavaScript: fields that are undefined are left out', () => {
  assert.equal(literalOf({ name: 'web', ttlSeconds: undefined }), "{ name: 'web' }")
})
