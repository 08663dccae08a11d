// Makes the first change of CONTRIBUTING.md in a copy of the tree, as a reader does.

import assert from 'node:assert/strict'
import { execFile, spawnSync } from 'node:child_process'
import { cp, mkdtemp, readFile, rm, symlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

const root = fileURLToPath(new URL('../../', import.meta.url))
const run = promisify(execFile)

let tree
before(async () => {
  tree = await mkdtemp(join(tmpdir(), 'atoll-first-change-'))
  for (const name of ['src', 'sdk/src', 'test/api', 'test/support', 'package.json', 'openapi.json'])
    await cp(join(root, name), join(tree, name), { recursive: true })
  await symlink(join(root, 'node_modules'), join(tree, 'node_modules'))
})
after(() => rm(tree, { recursive: true, force: true }))

/** The steps that change a file, in order. */
async function diffs() {
  const [, chapter] = (await readFile(join(root, 'CONTRIBUTING.md'), 'utf8')).split('## A first change\n')
  return [...chapter.split(/^## /m)[0].matchAll(/^ {3}```diff\n(.*?)^ {3}```$/gms)].map(([, diff]) =>
    diff.replaceAll(/^ {3}/gm, ''),
  )
}

const patch = (diff) => {
  const { status, stderr } = spawnSync('git', ['apply'], {
    cwd: tree,
    input: diff,
    encoding: 'utf8',
  })
  assert.equal(status, 0, stderr)
}

/** Runs the node of this test, as no part of it. */
async function node(...args) {
  const { NODE_TEST_CONTEXT: _, ...env } = process.env
  const { stdout } = await run(process.execPath, args, { cwd: tree, env })
  return stdout
}

const printReport = `
  import { createHostReporter } from './src/server/host.ts'
  const report = createHostReporter({
    runtime: 'runc',
    capabilities: () => ({ fullCheckpoints: true }),
    inspect: async () => [],
    diskSpace: async () => ({ bytes: 1, availableBytes: 1 }),
    runningSandboxes: async () => 0,
    warmSandboxes: () => 0,
  })
  console.log(JSON.stringify(await report()))`

test('the first change of CONTRIBUTING: its test fails before it, and the field is in answer, document and report after it', async () => {
  const [testFirst, ...rest] = await diffs()
  assert.equal(rest.length, 3)
  patch(testFirst)
  await assert.rejects(node('--test', 'test/api/host.test.ts'), ({ stdout }) => /must NOT have additional/.test(stdout))
  rest.forEach(patch)
  await node('--test', 'test/api/host.test.ts')
  await node('src/http/routes/write-openapi.ts')
  const { components } = JSON.parse(await readFile(join(tree, 'openapi.json'), 'utf8'))
  assert.match(components.schemas.Host.properties.capacity.properties.load.description, /Load average/)
  const { capacity } = JSON.parse(await node('--input-type=module', '--eval', printReport))
  assert.equal(typeof capacity.load, 'number')
})
