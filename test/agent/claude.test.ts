import assert from 'node:assert/strict'
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { harnessConformance } from './conformance.ts'
import { World } from './world.ts'

/** A folder of modules with a stand-in for the Claude Agent SDK, which is proprietary and not ours to install. */
const modules = mkdtempSync(join(tmpdir(), 'atoll-test-claude-'))
const root = join(modules, '@anthropic-ai/claude-agent-sdk')
mkdirSync(root, { recursive: true })
writeFileSync(
  join(root, 'package.json'),
  '{"name":"@anthropic-ai/claude-agent-sdk","version":"0.0.0","main":"sdk.mjs"}',
)
cpSync(join(import.meta.dirname, 'fake-claude-sdk.mjs'), join(root, 'sdk.mjs'))
after(() => rmSync(modules, { recursive: true, force: true }))

harnessConformance({
  name: 'claude',
  harness: () => Promise.resolve('claude'),
  env: { ATOLL_CLAUDE_MODULES: modules },
  needsProxy: true,
})

test('claude: without the SDK in the sandbox the configuration fails and says what to do', async () => {
  await using world = await World.create()
  await using agent = world.start({ harness: 'claude' })
  const { code, message } = await agent.event('error')
  assert.equal(code, 'configure_failed')
  assert.match(message, /npm install --global @anthropic-ai\/claude-agent-sdk/)
  const events = await agent.turn('msg_1', 'Hello')
  assert.deepEqual(
    events.map(({ type }) => type),
    ['turn_started', 'error', 'result', 'turn_complete'],
  )
})
