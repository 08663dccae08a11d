import { chmod, mkdir, realpath, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { run } from '../command.ts'
import { openScratch } from '../scratch.ts'
import { fails, missing, runSetup, versionText, works, type HostCheck } from '../self-test.ts'
import { trialConfig } from './trial-container.ts'

/** Starts a container on the base image in namespaces of its own, like a sandbox. */
export const runcCheck: HostCheck = {
  name: 'runc',
  required: true,
  async run({ imageDir }) {
    const version = await versionText('runc', '--version')
    if (version === undefined) return missing('no runc', runSetup)
    const number = /^runc version (\S+)/m.exec(version)?.[1] ?? 'unknown version'
    const image = await realpath(join(imageDir, 'base', 'rootfs')).catch(() => undefined)
    if (image === undefined) return fails(`${number}; no base image to try it with`, runSetup)
    const inside = await startContainer(image)
    if (inside !== 'uid 0') return fails(`${number}; the container said ${JSON.stringify(inside)}`)
    return works(`${number}; a container with a user namespace started`)
  },
}

async function startContainer(image: string): Promise<string> {
  await using scratch = await openScratch()
  // Root in the container is an unprivileged user on the host and must reach its bundle.
  await chmod(scratch.path, 0o711)
  // The folders above the image may be closed, and runc refuses a root behind a symbolic link.
  const root = join(scratch.path, 'rootfs')
  await mkdir(root)
  scratch.defer(['umount', '--lazy', root])
  await run(['mount', '-o', 'bind,ro', image, root])
  const id = `atoll-doctor-${process.pid}`
  const argv = ['/bin/sh', '-c', 'echo uid $(id -u)'] as const
  const config = trialConfig({ root, hostname: 'doctor', cgroup: `/${id}`, argv })
  await writeFile(join(scratch.path, 'config.json'), JSON.stringify(config))
  const state = join(scratch.path, 'state')
  scratch.defer(['runc', '--root', state, 'delete', '--force', id])
  return (await run(['runc', '--root', state, 'run', '--bundle', scratch.path, id])).trim()
}
