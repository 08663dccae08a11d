import { execFile } from 'node:child_process'
import { mkdir, writeFile } from 'node:fs/promises'
import { promisify } from 'node:util'
import { imageDir } from '../support/images.ts'
import { BareContainers, criu } from './bare-containers.ts'

const run = promisify(execFile)

/**
 * runc as one would use it by hand: the same base image under an overlay, all namespaces but the user's, no network beside
 * `lo`, no limits. What Atoll adds on top of it (user namespace, quota, network, guest, database) is what the ratio shows.
 */
export class BareRunc extends BareContainers {
  /** Starts a container with this program as its only process. */
  async start(args: readonly string[] = ['sleep', 'infinity']): Promise<string> {
    const { dir } = this
    const id = this.nextId()
    const bundle = `${dir}/${id}`
    await Promise.all(['root', 'upper', 'work'].map((name) => mkdir(`${bundle}/${name}`, { recursive: true })))
    const layers = `lowerdir=${imageDir}/base/rootfs,upperdir=${bundle}/upper,workdir=${bundle}/work`
    await run('mount', ['-t', 'overlay', 'overlay', '-o', layers, `${bundle}/root`])
    await writeFile(`${bundle}/config.json`, JSON.stringify(config(args, `${bundle}/criu.conf`)))
    // Without it CRIU asks for iptables, which not every host has.
    await writeFile(`${bundle}/criu.conf`, 'network-lock skip\ntcp-close\nfile-locks\n')
    // runc waits for its pipes to close, which the detached container would hold open.
    await run('sh', ['-c', 'exec runc run --detach --bundle "$0" "$1" </dev/null >/dev/null 2>&1', bundle, id])
    this.started(id)
    return id
  }

  async exec(id: string, ...argv: string[]): Promise<string> {
    return (await run('runc', ['exec', id, ...argv])).stdout
  }

  /** Dumps a container that runs on. */
  async checkpoint(id: string, images: string): Promise<void> {
    const { dir } = this
    const folders = ['--image-path', `${dir}/${images}`, '--work-path', `${dir}/${images}.work`]
    await Promise.all([mkdir(folders[1] ?? ''), mkdir(folders[3] ?? '')])
    await run('runc', ['--criu', criu, 'checkpoint', '--leave-running', ...folders, id])
  }

  /** Starts another container from the dump, on a copy of the disk that a person would take before. */
  async restore(source: string, images: string): Promise<string> {
    const { dir } = this
    const id = this.nextId()
    const bundle = `${dir}/${id}`
    await Promise.all(['root', 'work', 'restore'].map((name) => mkdir(`${bundle}/${name}`, { recursive: true })))
    await run('cp', ['-a', `${dir}/${source}/upper`, `${bundle}/upper`])
    await run('cp', [`${dir}/${source}/config.json`, `${dir}/${source}/criu.conf`, bundle])
    const layers = `lowerdir=${imageDir}/base/rootfs,upperdir=${bundle}/upper,workdir=${bundle}/work`
    await run('mount', ['-t', 'overlay', 'overlay', '-o', layers, `${bundle}/root`])
    return await this.restoreFrom(id, `${dir}/${images}`)
  }
}

function config(args: readonly string[], criuConfig: string): object {
  return {
    ociVersion: '1.0.2',
    process: {
      args,
      cwd: '/',
      env: ['PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'],
      user: { uid: 0, gid: 0 },
    },
    root: { path: 'root' },
    hostname: 'bench',
    annotations: { 'org.criu.config': criuConfig },
    mounts: [
      { destination: '/proc', type: 'proc', source: 'proc' },
      { destination: '/dev', type: 'tmpfs', source: 'tmpfs', options: ['nosuid', 'mode=755', 'size=65536k'] },
      { destination: '/sys', type: 'sysfs', source: 'sysfs', options: ['ro'] },
    ],
    linux: { namespaces: ['pid', 'network', 'ipc', 'uts', 'mount'].map((type) => ({ type })) },
  }
}
