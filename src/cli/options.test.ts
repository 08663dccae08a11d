import assert from 'node:assert/strict'
import { test } from 'node:test'
import { UsageError } from './exit-codes.ts'
import { checkedCheckpoint, checkedId, checkpointPath, sandboxPath } from './options.ts'

test('options: an id or a name stands for a sandbox, a checkpoint and a session, an id alone for the rest', () => {
  assert.equal(sandboxPath('sb-0123456789abcdef'), '/api/sandboxes/sb-0123456789abcdef')
  assert.equal(sandboxPath('web'), '/api/sandboxes/web')
  assert.equal(checkpointPath('web/prepared'), '/api/checkpoints/web%2Fprepared')
  assert.equal(checkpointPath('sb-0123456789abcdef/prepared'), '/api/checkpoints/sb-0123456789abcdef%2Fprepared')
  assert.equal(checkedCheckpoint('cp-0123456789abcdef'), 'cp-0123456789abcdef')
  assert.equal(checkedId('session_0123456789abcdef', 'session_', 'session'), 'session_0123456789abcdef')
  for (const text of [
    '',
    'a b',
    'a\nb',
    '../x',
    'a/b',
    'Web',
    '-web',
    'a%2Fb',
    'ä',
    'x'.repeat(64),
    'x'.repeat(255),
    'sb-a/b',
  ]) {
    assert.throws(() => sandboxPath(text), UsageError, text)
  }
  for (const text of ['a/b/c', '/b', 'a/', 'web/../x', 'web/A']) {
    assert.throws(() => checkedCheckpoint(text), UsageError, text)
  }
  assert.throws(() => checkedId('web', 'pa-', 'patch'), /"web" is no id of a patch: ids begin with pa-/)
})

test('options: an id of another kind is told as that', () => {
  assert.throws(() => sandboxPath('cp-0123456789abcdef'), /"cp-0123456789abcdef" .* it is that of a checkpoint/)
  assert.throws(() => checkedCheckpoint('session_a'), /it is that of a session/)
})
