/** Checks of the machine itself: no container around it, its Node, its kernel, its control groups. */
import { readFile, readlink } from 'node:fs/promises'
import { release } from 'node:os'
import { run } from '../command.ts'
import { exists } from '../exists.ts'
import { fails, missing, works, type HostCheck } from '../self-test.ts'

/** The first namespaces of a kernel have fixed numbers: PROC_PID_INIT_INO and PROC_USER_INIT_INO of linux/proc_ns.h. */
const hostNamespaces = ['pid:[4026531836]', 'user:[4026531837]'] as const
const nodeMajorMin = 24
/** The first kernel that shows an overlay's layers in the ids of another user namespace. */
const kernelMin = [5, 19] as const
const kernelFileSystems = ['btrfs', 'overlay'] as const
const namespacesMaxFile = '/proc/sys/user/max_user_namespaces'
const cgroupRoot = '/sys/fs/cgroup'
/** Controllers that the limits of a sandbox need. */
const controllers = ['cpu', 'memory', 'pids'] as const

/** A container may not make mounts, links, control groups and loop devices of a host. */
export const containerCheck: HostCheck = {
  name: 'machine',
  required: true,
  async run() {
    const own = await Promise.all(['pid', 'user'].map((kind) => readlink(`/proc/self/ns/${kind}`)))
    if (own.every((namespace, index) => namespace === hostNamespaces[index])) return works('no container around it')
    return fails('this is a container', 'Atoll runs on a machine of its own, physical or virtual, as root of the host')
  },
}

/** The Node that runs this: the one from node_modules, not the machine's. */
export const nodeCheck: HostCheck = {
  name: 'Node',
  required: true,
  async run() {
    const major = Number(process.versions.node.split('.')[0])
    if (major >= nodeMajorMin) return works(`${process.version}, ${process.execPath}`)
    return fails(process.version, `needs Node ${nodeMajorMin}: start through npm, after npm run setup`)
  },
}

export const kernelCheck: HostCheck = {
  name: 'kernel',
  required: true,
  async run() {
    const version = release()
    if (!isAtLeast(version, kernelMin)) return fails(version, `needs Linux ${kernelMin.join('.')} or newer`)
    const lacking: string[] = []
    for (const name of kernelFileSystems) if (!(await hasFileSystem(name))) lacking.push(name)
    if (lacking.length === 0) return works(`${version}, with ${kernelFileSystems.join(' and ')}`)
    const advice = `needs a kernel with ${lacking.join(' and ')}: the distribution's own has it; then restart the machine`
    return fails(`${version}, without ${lacking.join(' and ')}`, advice)
  },
}

export const userNamespaceCheck: HostCheck = {
  name: 'user namespaces',
  required: true,
  async run() {
    const max = (await readFile(namespacesMaxFile, 'utf8').catch(() => undefined))?.trim()
    if (max === undefined) return missing('not in this kernel', 'needs a kernel with CONFIG_USER_NS')
    if (max === '0') {
      const advice = 'raise it, as with sysctl user.max_user_namespaces=15000, also in /etc/sysctl.d'
      return fails('user.max_user_namespaces is 0', advice)
    }
    await run(['unshare', '--user', 'true'])
    return works(`at most ${max}`)
  },
}

export const cgroupCheck: HostCheck = {
  name: 'cgroups',
  required: true,
  async run() {
    const inV2 = await readFile(`${cgroupRoot}/cgroup.controllers`, 'utf8').catch(() => undefined)
    const available = inV2?.trim().split(/\s+/) ?? (await v1Controllers())
    const isHybrid = await exists(`${cgroupRoot}/unified`)
    const version = inV2 !== undefined ? 'v2' : isHybrid ? 'hybrid (v1 controllers)' : 'v1'
    const lacking = controllers.filter((name) => !available.includes(name))
    if (lacking.length === 0) return works(`${version}, with ${controllers.join(', ')}`)
    const advice = 'start the kernel with cgroup_enable=memory, or free the controllers from the parent group'
    return fails(`${version}, without ${lacking.join(', ')}`, advice)
  },
}

function isAtLeast(version: string, [major, minor]: readonly [number, number]): boolean {
  const [ofMajor = 0, ofMinor = 0] = version.split('.').map(Number.parseFloat)
  return ofMajor > major || (ofMajor === major && ofMinor >= minor)
}

/** Whether the kernel has a file system. It lists one only once its module is loaded, so this loads the module if needed. */
async function hasFileSystem(name: string): Promise<boolean> {
  const listed = async () => (await readFile('/proc/filesystems', 'utf8')).split(/\s+/).includes(name)
  if (await listed()) return true
  await run(['modprobe', '--quiet', name]).catch(() => undefined)
  return await listed()
}

async function v1Controllers(): Promise<string[]> {
  const mounts = (await readFile('/proc/self/mounts', 'utf8')).split('\n').map((line) => line.split(' '))
  return mounts.filter(([, , type]) => type === 'cgroup').flatMap(([, , , options = '']) => options.split(','))
}
