import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { missingHarness } from './harnesses.ts'

/** An empty base image, and a function that adds a file to it, or with `target` a link. */
function baseImage(context: TestContext) {
  const imageDir = mkdtempSync(join(tmpdir(), 'atoll-test-images-'))
  context.after(() => rmSync(imageDir, { recursive: true, force: true }))
  const add = (path: string, target?: string) => {
    const whole = join(imageDir, 'base/rootfs', path)
    mkdirSync(dirname(whole), { recursive: true })
    if (target === undefined) writeFileSync(whole, '')
    else symlinkSync(target, whole)
  }
  return { add, missing: (harness: string) => missingHarness(imageDir, harness) }
}

test('harness: claude is missing, with instructions, until the base image holds it', (context) => {
  const { add, missing } = baseImage(context)
  assert.equal(missing('pi'), undefined)
  assert.match(missing('claude') ?? '', /npm install --global .* checkpoint_id/)
  add('usr/local/lib/node_modules/@anthropic-ai/claude-agent-sdk/package.json')
  assert.equal(missing('claude'), undefined)
})

test('harness: the program of an acp harness is missing, with instructions, until a folder of PATH holds it', (context) => {
  const { add, missing } = baseImage(context)
  assert.match(missing('acp:qwen --acp') ?? '', /program qwen .* install it .* checkpoint_id/)
  add('usr/local/lib/qwen')
  assert.notEqual(missing('acp:qwen --acp'), undefined)
  // As it stands in the sandbox, the link leads somewhere; on this machine it does not.
  add('usr/bin/qwen', '/opt/qwen/bin/qwen')
  for (const harness of ['acp:qwen', 'acp:qwen --acp', 'acp:"qwen" --acp']) assert.equal(missing(harness), undefined)
  assert.equal(missing('acp:/opt/agent/bin/agent'), undefined, 'only the sandbox knows where its links lead')
})
