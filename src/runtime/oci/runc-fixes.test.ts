import assert from 'node:assert/strict'
import { test } from 'node:test'
import { openHoles } from './runc-fixes.ts'

const ofMasks = ['CVE-2025-31133', 'CVE-2025-52565', 'CVE-2025-52881']

test('holes of runc: by the release of its branch, and by what the package says of itself', () => {
  const open = (version: string, changelog = '') => openHoles(version, changelog)
  const debian = 'runc (1.1.5+ds1-1+deb12u1) bookworm-security\n  * CVE-2024-21626: several container breakouts\n'
  assert.deepEqual(open('1.1.5+ds1', debian), ['CVE-2024-45310', ...ofMasks, 'CVE-2026-41579'])
  assert.deepEqual(open('1.1.5'), ['CVE-2024-21626', 'CVE-2024-45310', ...ofMasks, 'CVE-2026-41579'])
  assert.deepEqual(open('1.1.15'), [...ofMasks, 'CVE-2026-41579'])
  assert.deepEqual(open('1.2.0-rc.3'), ['CVE-2024-45310', ...ofMasks, 'CVE-2026-41579'])
  assert.deepEqual(open('1.2.8'), ['CVE-2026-41579'])
  assert.deepEqual(open('1.3.2'), [...ofMasks, 'CVE-2026-41579'])
  assert.deepEqual(open('1.3.5'), ['CVE-2026-41579'])
  assert.deepEqual(open('1.4.0-rc.1'), [...ofMasks, 'CVE-2026-41579'])
  for (const version of ['1.3.6', '1.4.3', '1.5.0', '1.6.1', '2.0.0']) assert.deepEqual(open(version), [], version)
  assert.deepEqual(open('1.1.5', [...ofMasks, 'CVE-2024-21626', 'CVE-2024-45310', 'CVE-2026-41579'].join(' ')), [])
  assert.equal(open('unknown').length, 6)
})
