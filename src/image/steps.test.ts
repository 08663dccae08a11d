import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Image } from '@opencomputer/sdk/node'
import { defaultImageLimits } from './image.ts'
import { type Manifest, planOf } from './manifest.ts'
import { commandOf } from './steps.ts'

test('steps: packages are arguments, and nothing asks a question', async () => {
  const image = Image.base().aptInstall(['jq', 'curl']).pipInstall(['requests>=2', 'flask[async]']).builderMemory(2048)
  const { outline } = await planOf(image.toJSON() as unknown as Manifest, defaultImageLimits)
  assert.equal(outline.builderMemoryMB, 2048)
  const [apt, pip] = outline.steps.map((step) => commandOf(step, { A: 'b' }))
  assert.deepEqual(apt?.argv.slice(0, 2), ['sh', '-c'])
  assert.match(apt?.argv[2] ?? '', /apt-get update && apt-get install --yes -- "\$@"/)
  assert.deepEqual(apt?.argv.slice(4), ['jq', 'curl'])
  assert.deepEqual([apt?.envs['A'], apt?.envs['DEBIAN_FRONTEND']], ['b', 'noninteractive'])
  assert.deepEqual(pip?.argv, ['python3', '-m', 'pip', 'install', '--', 'requests>=2', 'flask[async]'])
})

test('steps: folders and files need no program', async () => {
  const steps = [
    { type: 'workdir' as const, args: { path: '/a' } },
    { type: 'add_dir' as const, args: { path: '/b', files: [] } },
    { type: 'add_file' as const, args: { path: '/c', content: '' } },
  ]
  const { outline } = await planOf({ steps }, defaultImageLimits)
  assert.deepEqual(
    outline.steps.map((step) => commandOf(step, {})),
    [undefined, undefined, undefined],
  )
})
