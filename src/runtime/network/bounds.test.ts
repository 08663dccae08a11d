import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  connectionBounds,
  connectionGroups,
  endedSeconds,
  ownConnections,
  ownConnectionsBurst,
  ownConnectionsPerSecond,
} from './bounds.ts'

test('with a sandbox for every two hundred entries all of them leave the host a quarter of the table', () => {
  for (const size of [8_192, 65_536, 262_144, 2_097_152]) {
    const { perGroup, perSecond } = connectionBounds(size)
    const open = connectionGroups * perGroup
    const ended = perSecond * (endedSeconds + 1)
    const own = ownConnections + ownConnectionsBurst + ownConnectionsPerSecond * endedSeconds
    assert.ok(open + ended + Math.floor(size / 200) * own <= 0.75 * size, String(size))
  }
})

test('no few sandboxes can take what is for all', () => {
  for (const size of [8_192, 65_536, 262_144, 2_097_152]) {
    const { perSandbox, perSandboxPerSecond, perGroup, perSecond } = connectionBounds(size)
    assert.ok(perSandbox <= perGroup / 2 && perSandboxPerSecond <= perSecond / connectionGroups, String(size))
    assert.ok(perSandbox > ownConnections, String(size))
  }
})

test('a table without a limit, or of unknown size, counts as one of the usual size', () => {
  assert.deepEqual(connectionBounds(0), connectionBounds(262_144))
  assert.deepEqual(connectionBounds(undefined), connectionBounds(262_144))
})
