import { readlink, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { exists } from '../exists.ts'
import { runSetup, type HostCheck } from './check.ts'

/** What setup installs for all servers of the machine: the link, and the file behind it that makes it whole. */
export const imageChecks: HostCheck[] = [
  installed('base image', 'base', 'rootfs/usr/local/bin/node'),
  installed('guest', 'guest', 'guest'),
  installed('host helper', 'hostd', 'atoll-hostd'),
  installed('agent', 'agent', 'app/src/agent/main.ts'),
]

function installed(name: string, link: string, file: string): HostCheck {
  return {
    name,
    required: true,
    async run({ imageDir }) {
      const target = await readlink(join(imageDir, link)).catch(() => undefined)
      if (target === undefined) return { state: 'missing', found: `no ${join(imageDir, link)}`, advice: runSetup }
      const path = join(imageDir, target, file)
      if (!(await exists(path))) {
        return { state: 'fails', found: `no ${path}`, advice: `remove ${join(imageDir, target)}, then ${runSetup}` }
      }
      const { mtime } = await stat(path)
      return { state: 'works', found: `${target}, of ${mtime.toISOString().slice(0, 10)}` }
    },
  }
}
