import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { test } from 'node:test'
import { evaluated } from './testing/evaluated.ts'

const page = await readFile(new URL('../../../docs/use/dockerfile.md', import.meta.url), 'utf8')

test('docs: the example of the page has a meaning, and its fault is told so', () => {
  const [, example = ''] = /^```dockerfile\n(.*?)^```$/ms.exec(page) ?? []
  const { operations, state } = evaluated(example)
  assert.deepEqual(
    operations.map(({ type }) => type),
    ['workdir', 'copy', 'run', 'copy', 'copy'],
  )
  assert.deepEqual(state.envs, { PYTHONPATH: '/opt/lib', MODE: 'test' })
  const [, fault = ''] = /`(dockerfile line 6: [^`]+)`/.exec(page) ?? []
  assert.throws(() => evaluated(example.replace('--mount', '--mout')), { message: fault })
})
