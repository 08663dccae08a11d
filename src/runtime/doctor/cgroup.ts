import { readFile } from 'node:fs/promises'
import { exists } from '../exists.ts'
import type { HostCheck } from './check.ts'

const root = '/sys/fs/cgroup'
const controllers = ['cpu', 'memory', 'pids'] as const

/** Which version of cgroups the machine has, and that the controllers for the limits of a sandbox are in it. */
export const cgroupCheck: HostCheck = {
  name: 'cgroups',
  required: true,
  async run() {
    const inV2 = await words(`${root}/cgroup.controllers`)
    const hybrid = await exists(`${root}/unified`)
    const available = inV2 ?? (await v1Controllers())
    const version = inV2 !== undefined ? 'v2' : hybrid ? 'hybrid (v1 controllers)' : 'v1'
    const lacking = controllers.filter((name) => !available.includes(name))
    if (lacking.length > 0) {
      return {
        state: 'fails',
        found: `${version}, without ${lacking.join(', ')}`,
        advice: 'start the kernel with cgroup_enable=memory, or free the controllers from the parent group',
      }
    }
    return { state: 'works', found: `${version}, with ${controllers.join(', ')}` }
  },
}

async function v1Controllers(): Promise<string[]> {
  const mounts = await readFile('/proc/self/mounts', 'utf8')
  return mounts
    .split('\n')
    .map((line) => line.split(' '))
    .filter((fields) => fields[2] === 'cgroup')
    .flatMap((fields) => (fields[3] ?? '').split(','))
}

async function words(path: string): Promise<string[] | undefined> {
  const text = await readFile(path, 'utf8').catch(() => undefined)
  return text?.trim().split(/\s+/)
}
