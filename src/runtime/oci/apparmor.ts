/**
 * The AppArmor profile of sandboxes: a second line of defence behind user namespace, capabilities and system call filter. Its
 * name carries the hash of its text, so that versions of Atoll and several servers do not collide, and a loaded profile is
 * never replaced by another.
 */
import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { ServiceError } from '../../errors.ts'
import type { Run } from '../command.ts'
import { exists } from '../exists.ts'

const enabledFile = '/sys/module/apparmor/parameters/enabled'
const loadedFile = '/sys/kernel/security/apparmor/profiles'
/** The features that the rules are written for. A parser without this file takes those of the oldest kernel, with a warning. */
const abiFile = '/etc/apparmor.d/abi/3.0'
const parserTimeoutMs = 60_000

/**
 * The profile allows all that a sandbox does to itself. A sandbox may change no files of the kernel but those of its own processes.
 * `/proc` and `/sys` are the paths inside.
 */
const rules = `
  file,
  network,
  unix,
  capability,

  # Its own processes trace and signal each other; the host may do so to all of them, and CRIU must.
  ptrace (trace, read) peer=@{profile_name},
  ptrace (tracedby, readby),
  signal (send) peer=@{profile_name},
  signal (receive),

  deny mount,
  deny umount,
  deny pivot_root,

  deny /proc/{acpi,asound,bus,fs,irq,scsi,sys}/** wklx,
  deny /proc/{kallsyms,kcore,keys,key-users,kmsg,kpagecgroup,kpagecount,kpageflags,sysrq-trigger} rwklx,
  deny /proc/[^0-9]* wklx,
  deny /sys/** wklx,
  deny /sys/{firmware,kernel/debug,kernel/security,kernel/tracing}/** rwklx,
  deny /sys/devices/virtual/powercap/** rwklx,
`

const body = `flags=(attach_disconnected,mediate_deleted) {${rules}}\n`

export const profileName = `atoll-sandbox-${createHash('sha256').update(body).digest('hex').slice(0, 8)}`

/** Why the kernel enforces no profiles; undefined when it does. */
export async function whyUnconfined(): Promise<string | undefined> {
  if (!(await text(enabledFile)).startsWith('Y')) return 'not in this kernel'
  return (await exists(loadedFile)) ? undefined : `${loadedFile} is not there`
}

/** Whether a profile of this name is in force. */
export async function isLoaded(): Promise<boolean> {
  return (await text(loadedFile)).split('\n').includes(`${profileName} (enforce)`)
}

/**
 * Loads the profile unless the kernel has it: a reload of the host's own profiles may have removed it, and starts and restores
 * fail for an unknown name. Throws `unavailable`.
 */
export async function loadProfile(run: Run): Promise<void> {
  if (await isLoaded()) return
  const abi = (await exists(abiFile)) ? 'abi <abi/3.0>,\n' : ''
  const input = `${abi}profile ${profileName} ${body}`
  await run(['apparmor_parser', '--replace', '--skip-cache'], { input, timeoutMs: parserTimeoutMs }).catch(
    (cause: unknown) => {
      throw new ServiceError('unavailable', `the AppArmor profile cannot be loaded: ${String(cause)}`, { cause })
    },
  )
}

/** The profile for all later starts. Undefined, with the reason in the log, where none can be loaded. */
export async function findProfile(run: Run, log: (message: string) => void): Promise<string | undefined> {
  if ((await whyUnconfined()) !== undefined) return undefined
  try {
    await loadProfile(run)
    return profileName
  } catch (error) {
    log(`sandboxes start without an AppArmor profile: ${String(error)}`)
    return undefined
  }
}

function text(path: string): Promise<string> {
  return readFile(path, 'utf8').catch(() => '')
}
