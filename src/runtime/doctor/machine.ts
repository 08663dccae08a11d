import { readFile, readlink } from 'node:fs/promises'
import { release } from 'node:os'
import { run } from '../command.ts'
import type { CheckResult, HostCheck } from './check.ts'

/** The first namespaces of a kernel have fixed numbers: PROC_PID_INIT_INO and PROC_USER_INIT_INO of linux/proc_ns.h. */
const hostNamespaces = ['pid:[4026531836]', 'user:[4026531837]'] as const
/** The first kernel that shows an overlay's layers in the ids of another user namespace. */
const kernelMin = [5, 19] as const
const kernelFileSystems = ['btrfs', 'overlay'] as const
const namespacesMaxFile = '/proc/sys/user/max_user_namespaces'

/** Mounts, links, control groups and loop devices of a host are not a container's to make. */
export const containerCheck: HostCheck = {
  name: 'machine',
  required: true,
  async run() {
    const own = await Promise.all(['pid', 'user'].map((kind) => readlink(`/proc/self/ns/${kind}`)))
    if (own.every((namespace, index) => namespace === hostNamespaces[index])) {
      return { state: 'works', found: 'no container around it' }
    }
    const advice = 'Atoll runs on a machine of its own, physical or virtual, as root of the host'
    return { state: 'fails', found: 'this is a container', advice }
  },
}

export const kernelCheck: HostCheck = {
  name: 'kernel',
  required: true,
  async run() {
    const version = release()
    if (!isAtLeast(version, kernelMin)) {
      return { state: 'fails', found: version, advice: `needs Linux ${kernelMin.join('.')} or newer` }
    }
    const lacking: string[] = []
    for (const name of kernelFileSystems) if (!(await hasFileSystem(name))) lacking.push(name)
    if (lacking.length === 0) return { state: 'works', found: `${version}, with ${kernelFileSystems.join(' and ')}` }
    const advice = `needs a kernel with ${lacking.join(' and ')}: the distribution's own has it; then restart the machine`
    return { state: 'fails', found: `${version}, without ${lacking.join(' and ')}`, advice }
  },
}

export const userNamespaceCheck: HostCheck = {
  name: 'user namespaces',
  required: true,
  async run(): Promise<CheckResult> {
    const most = await readFile(namespacesMaxFile, 'utf8').catch(() => undefined)
    if (most === undefined) {
      return { state: 'missing', found: 'not in this kernel', advice: 'needs a kernel with CONFIG_USER_NS' }
    }
    if (most.trim() === '0') {
      const advice = 'raise it, as with sysctl user.max_user_namespaces=15000, also in /etc/sysctl.d'
      return { state: 'fails', found: 'user.max_user_namespaces is 0', advice }
    }
    await run(['unshare', '--user', 'true'])
    return { state: 'works', found: `at most ${most.trim()}` }
  },
}

function isAtLeast(version: string, [major, minor]: readonly [number, number]): boolean {
  const [ofMajor = 0, ofMinor = 0] = version.split('.').map(Number.parseFloat)
  return ofMajor > major || (ofMajor === major && ofMinor >= minor)
}

/** Loads its module where it is one: the kernel lists a file system only then. */
async function hasFileSystem(name: string): Promise<boolean> {
  const listed = async () => (await readFile('/proc/filesystems', 'utf8')).split(/\s+/).includes(name)
  if (await listed()) return true
  await run(['modprobe', '--quiet', name]).catch(() => undefined)
  return await listed()
}
