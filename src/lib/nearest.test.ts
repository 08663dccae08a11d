import assert from 'node:assert/strict'
import { test } from 'node:test'
import { nearest } from './nearest.ts'

const fields = ['templateID', 'timeout', 'cpuCount', 'memoryMB', 'diskMB', 'envs', 'metadata']

test('nearest: a misspelt name leads to the one that was meant', () => {
  const cases: [given: string, meant: string | undefined][] = [
    ['timout', 'timeout'],
    ['timeuot', 'timeout'],
    ['memory', 'memoryMB'],
    ['memory_mb', 'memoryMB'],
    ['cpuCounts', 'cpuCount'],
    ['env', 'envs'],
    ['template', 'templateID'],
    ['nonsense', undefined],
    ['', undefined],
    ['x'.repeat(1_000_000), undefined],
  ]
  for (const [given, meant] of cases) assert.equal(nearest(given, fields), meant, given.slice(0, 20))
  assert.equal(nearest('timeout', []), undefined)
})
