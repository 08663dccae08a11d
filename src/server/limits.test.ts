import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { test } from 'node:test'
import { defaultHttpLimits } from '../http/server/config.ts'
import { defaultSandboxLimits } from '../sandbox/index.ts'
import { defaultSessionLimits } from '../session/index.ts'
import { readConfig } from './config.ts'
import { limitBounds } from './limits.ts'

const defaults: Record<string, object> = {
  sandbox: defaultSandboxLimits,
  session: defaultSessionLimits,
  http: defaultHttpLimits,
}

test('limits: they are read by group, and the others keep their defaults', () => {
  const given = { sandbox: { memoryMbMax: 8192 }, http: { uploadBytesMax: 1_000_000 } }
  assert.deepEqual(readConfig({ ATOLL_LIMITS: JSON.stringify(given) }).limits, { session: {}, ...given })
  assert.deepEqual(readConfig({}).limits, { sandbox: {}, session: {}, http: {} })
})

test('limits: all faults are reported with their path', () => {
  for (const [text, ...patterns] of [
    ['{', /ATOLL_LIMITS must be JSON/],
    ['[]', /ATOLL_LIMITS /],
    ['{"memoryMbMax":8192}', /ATOLL_LIMITS .*"memoryMbMax"/],
    ['{"sandbox":{"memoryMax":8192}}', /ATOLL_LIMITS sandbox: .*"memoryMax"/],
    ['{"sandbox":{"runningSandboxesMax":1}}', /ATOLL_LIMITS sandbox: .*"runningSandboxesMax"/],
    ['{"sandbox":{"memoryMbMax":0.5}}', /ATOLL_LIMITS sandbox\.memoryMbMax: must be a whole number from 1024 to /],
    [
      '{"http":{"bodyBytesMax":1e12},"session":{"queuedMessagesMax":"5"}}',
      /ATOLL_LIMITS http\.bodyBytesMax: must be/,
      /ATOLL_LIMITS session\.queuedMessagesMax: must be/,
    ],
  ] as const) {
    for (const pattern of patterns) assert.throws(() => readConfig({ ATOLL_LIMITS: text }), pattern, text)
  }
})

test('limits: each default is within its bounds', () => {
  for (const [group, bounds] of Object.entries(limitBounds)) {
    for (const [name, [lowest, highest]] of Object.entries<readonly [number, number]>(bounds)) {
      const value = Number(Object.entries(defaults[group] ?? {}).find(([key]) => key === name)?.[1])
      assert.ok(value >= lowest && value <= highest, `${group}.${name}: ${value}`)
    }
  }
})

test('limits: docs/operations.md has a row for each, with its default and its bounds', async () => {
  const text = await readFile(new URL('../../docs/operations.md', import.meta.url), 'utf8')
  for (const [group, bounds] of Object.entries(limitBounds)) {
    for (const [name, [lowest, highest]] of Object.entries<readonly [number, number]>(bounds)) {
      const row = text.split('\n').find((line) => line.startsWith(`| \`${group}.${name}\` |`))
      assert.ok(row, `${group}.${name} has no row`)
      const [value = '', range] = row
        .split('|')
        .slice(2)
        .map((cell) => cell.trim())
      assert.equal(range, `${lowest} to ${highest}`, row)
      const expected = Object.entries(defaults[group] ?? {}).find(([key]) => key === name)?.[1] as number
      // Where the default depends on the machine or on another variable, the row says how.
      if (/^\d/.test(value)) assert.equal(Number.parseInt(value, 10), expected, row)
      else
        assert.ok(
          ['sandbox.startsAtOnce', 'session.agentStartsAtOnce', 'http.requestBurst'].includes(`${group}.${name}`),
          row,
        )
    }
  }
})
