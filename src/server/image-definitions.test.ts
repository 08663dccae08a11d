import assert from 'node:assert/strict'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { defaultImageLimits } from '../image/index.ts'
import { ConfigError } from './config.ts'
import { readDefinitions } from './image-definitions.ts'

async function folderOf(t: TestContext, files: Record<string, string>): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'atoll-definitions-'))
  t.after(() => rm(folder, { recursive: true }))
  for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text)
  return folder
}

test('definitions: those of Atoll are there without a folder of the operator', async () => {
  const definitions = await readDefinitions('/nonexistent', defaultImageLimits)
  assert.deepEqual([...definitions.keys()].toSorted(), ['node', 'python'])
  assert.match(definitions.get('python')?.dockerfile ?? '', /^FROM base$/m)
})

test('definitions: the operator adds Dockerfiles and manifests, and replaces what comes with Atoll', async (t) => {
  const folder = await folderOf(t, {
    'python.Dockerfile': 'FROM node\nRUN echo own',
    'served.json': JSON.stringify({ base: 'python', memory: true, startCommand: 'sleep 1', readyCommand: 'true' }),
    'README.md': 'notes',
  })
  const definitions = await readDefinitions(folder, defaultImageLimits)
  assert.deepEqual([...definitions.keys()].toSorted(), ['node', 'python', 'served'])
  assert.equal(definitions.get('python')?.dockerfile, 'FROM node\nRUN echo own')
  assert.equal(definitions.get('served')?.startCommand, 'sleep 1')
})

test('definitions: all faults are told together, each with its file or name', async (t) => {
  const folder = await folderOf(t, {
    'base.Dockerfile': 'FROM base',
    'Upper.Dockerfile': 'FROM base',
    'contexts.Dockerfile': 'FROM base',
    'copies.Dockerfile': 'FROM base\nCOPY . /srv',
    'typo.json': '{"base": "base", "step": []}',
    'torn.json': '{',
    'twice.json': '{}',
    'twice.Dockerfile': 'FROM base',
    'one.Dockerfile': 'FROM other',
    'other.json': '{"base": "one"}',
    'ready.json': '{"readyCommand": "true"}',
  })
  const faults = [
    /base\.Dockerfile: an image of this name cannot be defined/,
    /contexts\.Dockerfile: an image of this name cannot be defined/,
    /Upper\.Dockerfile: an image of this name cannot be defined/,
    /copies\.Dockerfile: .*line 2/,
    /typo\.json: .*step/,
    /torn\.json: .*JSON/,
    /twice\.json: there is another definition of twice/,
    /one\.Dockerfile: one stands on itself/,
    /other\.json: other stands on itself/,
    /ready\.json: image\.readyCommand/,
  ]
  await assert.rejects(readDefinitions(folder, defaultImageLimits), (error) => {
    assert.ok(error instanceof ConfigError)
    for (const fault of faults) assert.match(error.message, fault)
    return true
  })
})
