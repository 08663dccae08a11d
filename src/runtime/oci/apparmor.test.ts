import assert from 'node:assert/strict'
import { test } from 'node:test'
import { HostNames } from '../host-names.ts'
import { sandboxRecord } from '../host/testing/records.ts'
import { temporaryFolder } from '../testing/temporary-folder.ts'
import { profileName } from './apparmor.ts'
import { containerConfig } from './container-config.ts'

test('container config: names the AppArmor profile of the host, if any', async (t) => {
  const names = new HostNames(await temporaryFolder(t))
  const config = (apparmorProfile?: string) => {
    const traits = { filesMax: 1024, swapAccounting: true, ipv6: true, disk: undefined, apparmorProfile }
    const limits = { cpuCount: 1, memoryMb: 256 }
    return containerConfig(sandboxRecord('sb', 1), limits, {
      names,
      programs: { guest: '/guest' },
      traits,
      shown: '/shown',
    })
  }
  assert.equal(config(profileName).process.apparmorProfile, profileName)
  assert.match(profileName, /^atoll-sandbox-[0-9a-f]{8}$/)
  // runc refuses even an empty name where the kernel has no AppArmor.
  assert.equal('apparmorProfile' in config().process, false)
})
