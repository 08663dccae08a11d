import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { missingHarness } from './harnesses.ts'

test('claude is missing, with what to do, until the base image holds it', (context) => {
  const imageDir = mkdtempSync(join(tmpdir(), 'atoll-test-images-'))
  context.after(() => rmSync(imageDir, { recursive: true, force: true }))
  assert.equal(missingHarness(imageDir, 'pi'), undefined)
  assert.equal(missingHarness(imageDir, 'acp:qwen'), undefined)
  assert.match(missingHarness(imageDir, 'claude') ?? '', /npm install --global .* checkpoint_id/)
  const folder = join(imageDir, 'base/rootfs/usr/local/lib/node_modules/@anthropic-ai/claude-agent-sdk')
  mkdirSync(folder, { recursive: true })
  writeFileSync(join(folder, 'package.json'), '{}')
  assert.equal(missingHarness(imageDir, 'claude'), undefined)
})
