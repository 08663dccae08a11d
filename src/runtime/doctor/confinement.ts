import { readFile } from 'node:fs/promises'

/** Programs whose confinement keeps sandboxes from starting. */
const programs = ['runc', 'criu', 'dnsmasq'] as const

/** What security modules may have to do with a failure, as advice; undefined when none is in force. */
export async function confinement(): Promise<string | undefined> {
  const words: string[] = []
  if ((await text('/sys/fs/selinux/enforce')).trim() === '1') {
    words.push('SELinux is enforcing: look for denials with ausearch -m avc, or try setenforce 0')
  }
  const profiles = await text('/sys/kernel/security/apparmor/profiles')
  const enforced = programs.filter((name) => new RegExp(`(^|/)${name} \\(enforce\\)$`, 'm').test(profiles))
  if (enforced.length > 0) {
    words.push(`AppArmor confines ${enforced.join(', ')}: look for DENIED in the kernel's log, or try aa-complain`)
  }
  return words.length === 0 ? undefined : words.join('; ')
}

function text(path: string): Promise<string> {
  return readFile(path, 'utf8').catch(() => '')
}
