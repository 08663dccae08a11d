import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { profileName } from './apparmor.ts'
import { containerConfig } from './container-config.ts'
import { HostNames } from '../host-names.ts'

test('container config: names the AppArmor profile of the host, if any', async () => {
  const dataDir = await mkdtemp(join(tmpdir(), 'atoll-apparmor-'))
  try {
    const programs = { guest: '/guest' }
    const record = { id: 'sb', rangeStart: 1_000_000_000, slot: 1, base: '/base', guest: '/guest', layers: [] }
    const config = (apparmorProfile?: string) => {
      const traits = { filesMax: 1024, swapAccounting: true, ipv6: true, apparmorProfile }
      return containerConfig(
        record,
        { cpuCount: 1, memoryMb: 256 },
        { names: new HostNames(dataDir), programs, traits },
      )
    }
    assert.equal(config(profileName).process.apparmorProfile, profileName)
    assert.match(profileName, /^atoll-sandbox-[0-9a-f]{8}$/)
    // runc refuses even an empty name where the kernel has no AppArmor.
    assert.equal('apparmorProfile' in config().process, false)
  } finally {
    await rm(dataDir, { recursive: true })
  }
})
