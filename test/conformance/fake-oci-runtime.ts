import { spawn } from 'node:child_process'
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { ServiceError } from '../../src/errors.ts'
import { isAlive, startTicksOf, type ProcessIdentity } from '../../src/runtime/process.ts'
import type { ContainerResources } from '../../src/runtime/oci/container-config.ts'
import { OciRuntimeError, type CreateOciRuntime } from '../../src/runtime/oci/oci-runtime.ts'

const startTimeoutMs = 60_000
const pollMs = 5
const cgroupRoot = '/sys/fs/cgroup'
const devices = { null: '1 3', zero: '1 5', full: '1 7', random: '1 8', urandom: '1 9', tty: '5 0' }

interface Bundle {
  hostname: string
  root: { path: string }
  process: { args: string[]; env: string[] }
  mounts: { destination: string; type: string; source: string; options?: string[] }[]
  linux: { cgroupsPath: string; resources: Partial<ContainerResources>; sysctl?: Record<string, string> }
}

/**
 * A second OCI runtime, from `unshare` and `chroot`: namespaces and control groups, but no user namespace, no filter and no
 * memory. It shows that the driver needs nothing of runc, and must never run a stranger's program.
 */
export const createFakeOciRuntime: CreateOciRuntime = ({ runDir }) => {
  const stateDir = `${runDir}/fake`
  const stateFile = (id: string) => `${stateDir}/${id}/state.json`
  const refuse = (call: string) =>
    Promise.reject(new OciRuntimeError(`fake ${call}`, 'not implemented', { cause: undefined }))
  return {
    name: 'fake',
    program: 'unshare',
    stateDir,
    canCheckpoint: false,

    run: async (id, bundle) => {
      const config = JSON.parse(await readFile(`${bundle}/config.json`, 'utf8')) as Bundle
      await mkdir(`${stateDir}/${id}`, { recursive: true })
      const groups = await makeGroups(config.linux.cgroupsPath)
      await setLimits(groups, config.linux.resources)
      const script = `${stateDir}/${id}/start`
      await writeFile(script, startScript(config, groups), { mode: 0o700 })
      const namespaces = ['--pid', '--net', '--mount', '--ipc', '--uts', '--fork']
      const child = spawn('unshare', [...namespaces, script], { detached: true, stdio: 'ignore' })
      child.unref()
      const init = await firstProcess(child.pid ?? 0, config.process.args[0] ?? '')
      await writeFile(stateFile(id), JSON.stringify({ init, groups }))
      return init
    },

    checkpoint: () => refuse('checkpoint'),
    restore: () => refuse('restore'),

    update: async (id, resources) => {
      const { groups } = JSON.parse(await readFile(stateFile(id), 'utf8')) as { groups: string[] }
      await setLimits(groups, resources).catch((cause: unknown) => {
        throw new ServiceError('conflict', 'the processes of the sandbox hold more memory than that', { cause })
      })
    },

    delete: (id) => rm(`${stateDir}/${id}`, { recursive: true, force: true }),

    state: async (id) => {
      const text = await readFile(stateFile(id), 'utf8').catch(() => undefined)
      return text === undefined ? undefined : (JSON.parse(text) as { init: ProcessIdentity }).init
    },

    list: () => readdir(stateDir).catch(() => []),
    awaitStrays: async () => 0,
  }
}

async function makeGroups(path: string): Promise<string[]> {
  const entries = await readdir(cgroupRoot, { withFileTypes: true })
  const isTree = entries.some(({ name }) => name === 'cgroup.procs')
  const trees = isTree
    ? [cgroupRoot]
    : entries.filter((entry) => entry.isDirectory()).map(({ name }) => `${cgroupRoot}/${name}`)
  const groups: string[] = []
  for (const tree of trees) {
    // A group of `cpuset` takes no process before it has processors.
    if (tree.endsWith('/cpuset')) continue
    await mkdir(`${tree}${path}`, { recursive: true })
    groups.push(`${tree}${path}`)
  }
  return groups
}

async function setLimits(groups: readonly string[], { memory, pids }: Partial<ContainerResources>): Promise<void> {
  const files = { 'memory.limit_in_bytes': memory?.limit, 'memory.max': memory?.limit, 'pids.max': pids?.limit }
  for (const group of groups) {
    const names = await readdir(group)
    for (const [name, value] of Object.entries(files)) {
      if (value !== undefined && names.includes(name)) await writeFile(`${group}/${name}`, String(value))
    }
  }
}

/** All paths are of this test's folders. */
function startScript({ hostname, root, process: { args, env }, mounts, linux }: Bundle, groups: string[]): string {
  const lines = mounts
    .filter(({ type }) => type !== 'mqueue')
    .map(({ destination, type, source, options = [] }) => {
      const target = `${root.path}${destination}`
      if (type === 'cgroup') return groups.map((group) => showGroup(group, linux.cgroupsPath, target)).join('\n')
      const make = `[ -e '${target}' ] || if [ -f '${source}' ]; then mkdir -p "$(dirname '${target}')"; touch '${target}'; else mkdir -p '${target}'; fi`
      const kind = type === 'bind' ? '' : `-t ${type}`
      return `${make}\nmount ${kind} -o '${options.join(',') || 'rw'}' '${source}' '${target}'`
    })
  const nodes = Object.entries(devices).map(([name, numbers]) => `mknod -m 666 '${root.path}/dev/${name}' c ${numbers}`)
  const settings = Object.entries(linux.sysctl ?? {}).map(
    ([name, value]) => `echo '${value}' >/proc/sys/${name.replaceAll('.', '/')}`,
  )
  const quoted = args.map((arg) => `'${arg}'`).join(' ')
  return `#!/bin/sh -e
${groups.map((group) => `echo 0 >'${group}/cgroup.procs'`).join('\n')}
${settings.join('\n')}
hostname '${hostname}'
${lines.join('\n')}
${nodes.join('\n')}
exec env -i ${env.map((line) => `'${line}'`).join(' ')} /usr/bin/unshare --cgroup /usr/sbin/chroot '${root.path}' ${quoted}
`
}

/** Shows a group where its hierarchy would be mounted. */
function showGroup(group: string, path: string, target: string): string {
  const shown = `${target}${group.slice(cgroupRoot.length, -path.length)}`
  if (shown === target) return `mount --bind '${group}' '${target}'`
  return `mountpoint -q '${target}' || mount -t tmpfs cgroup '${target}'\nmkdir '${shown}'\nmount --bind '${group}' '${shown}'`
}

/** The child of `unshare`, once it runs `program`. */
async function firstProcess(parent: number, program: string): Promise<ProcessIdentity> {
  const until = Date.now() + startTimeoutMs
  while (Date.now() < until) {
    const children = await readFile(`/proc/${parent}/task/${parent}/children`, 'utf8').catch(() => undefined)
    if (children === undefined) break
    const pid = Number(children.split(' ')[0])
    const [name] = (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).split('\0')
    const init = { pid, startTicks: startTicksOf(pid) }
    if (name === program && isAlive(init)) return init
    await sleep(pollMs)
  }
  throw new OciRuntimeError('fake run', 'the process did not start', { cause: undefined })
}
