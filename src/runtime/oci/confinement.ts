import { readFile } from 'node:fs/promises'
import { run } from '../command.ts'
import { isLoaded, loadProfile, profileName, whyUnconfined } from './apparmor.ts'
import { fails, missing, oneLine, works, type HostCheck } from '../self-test.ts'

/** Programs whose confinement keeps sandboxes from starting. */
const programs = ['runc', 'criu', 'dnsmasq'] as const

/** Not required: sandboxes start without it too. */
export const apparmorCheck: HostCheck = {
  name: 'AppArmor',
  required: false,
  async run() {
    const reason = await whyUnconfined()
    if (reason !== undefined) return missing(reason)
    try {
      await loadProfile(run)
    } catch (error) {
      const advice = 'sandboxes start without a profile; the Debian package apparmor brings apparmor_parser'
      return fails(oneLine((error as Error).cause ?? error), advice)
    }
    if (!(await isLoaded())) return fails(`the kernel does not enforce ${profileName}`)
    return works(`${profileName} is enforced`)
  },
}

/** Names the security modules that may have caused a failure; undefined when none is in force. */
export async function confinementAdvice(): Promise<string | undefined> {
  const advice: string[] = []
  if ((await text('/sys/fs/selinux/enforce')).trim() === '1') {
    advice.push('SELinux is enforcing: look for denials with ausearch -m avc, or try setenforce 0')
  }
  const profiles = await text('/sys/kernel/security/apparmor/profiles')
  const enforced = programs.filter((name) => new RegExp(`(^|/)${name} \\(enforce\\)$`, 'm').test(profiles))
  if (enforced.length > 0) {
    advice.push(`AppArmor confines ${enforced.join(', ')}: look for DENIED in the kernel's log, or try aa-complain`)
  }
  return advice.length === 0 ? undefined : advice.join('; ')
}

function text(path: string): Promise<string> {
  return readFile(path, 'utf8').catch(() => '')
}
