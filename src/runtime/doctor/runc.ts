import { chmod, mkdir, realpath, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { run } from '../command.ts'
import { runSetup, type HostCheck } from './check.ts'
import { trialConfig } from './container.ts'
import { openScratch } from './scratch.ts'

/** Starts a container on the base image in namespaces of its own, as each sandbox does. */
export const runcCheck: HostCheck = {
  name: 'runc',
  required: true,
  async run({ imageDir }) {
    const version = await run(['runc', '--version']).catch(() => undefined)
    if (version === undefined) return { state: 'missing', found: 'no runc', advice: runSetup }
    const number = /^runc version (\S+)/m.exec(version)?.[1] ?? 'unknown version'
    const image = await realpath(join(imageDir, 'base', 'rootfs')).catch(() => undefined)
    if (image === undefined) {
      return { state: 'fails', found: `${number}; no base image to try it with`, advice: runSetup }
    }
    const inside = await startContainer(image)
    if (inside !== 'uid 0') return { state: 'fails', found: `${number}; the container said ${JSON.stringify(inside)}` }
    return { state: 'works', found: `${number}; a container with a user namespace started` }
  },
}

async function startContainer(image: string): Promise<string> {
  await using scratch = await openScratch()
  // Root inside is nobody on the host, and must reach its bundle.
  await chmod(scratch.path, 0o711)
  // The image itself may lie where nobody may go, and runc refuses a root behind a symbolic link.
  const root = join(scratch.path, 'rootfs')
  await mkdir(root)
  scratch.undo(['umount', '--lazy', root])
  await run(['mount', '-o', 'bind,ro', image, root])
  const id = `atoll-doctor-${process.pid}`
  const argv = ['/bin/sh', '-c', 'echo uid $(id -u)'] as const
  const config = trialConfig({ root, hostname: 'doctor', cgroup: `/${id}`, argv })
  await writeFile(join(scratch.path, 'config.json'), JSON.stringify(config))
  const state = join(scratch.path, 'state')
  scratch.undo(['runc', '--root', state, 'delete', '--force', id])
  return (await run(['runc', '--root', state, 'run', '--bundle', scratch.path, id])).trim()
}
