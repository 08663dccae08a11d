/** What one check or trial works on and removes again: a folder, and the configuration of a container. */
import { mkdtemp, readFile, realpath, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { run } from '../command.ts'

export interface Scratch extends AsyncDisposable {
  path: string
  /** Registers a program that runs at the end, the latest first, such as an unmount. */
  defer(argv: readonly [string, ...string[]]): void
}

export async function openScratch(parent: string = tmpdir()): Promise<Scratch> {
  const path = await mkdtemp(join(await realpath(parent), 'atoll-doctor-'))
  const deferred: (readonly [string, ...string[]])[] = []
  return {
    path,
    defer: (argv) => void deferred.push(argv),
    async [Symbol.asyncDispose]() {
      // A failure here is no news when the mount was never made; a mount that stays is reported below.
      for (const argv of deferred.reverse()) await run(argv).catch(() => undefined)
      // Never remove through a mount: the base image may lie behind it.
      const mounts = await readFile('/proc/self/mounts', 'utf8')
      if (mounts.includes(` ${path}/`)) throw new Error(`${path} is left behind: something is still mounted in it`)
      await rm(path, { recursive: true, force: true })
    },
  }
}

/** The ids of the containers and overlays of checks. */
export const idRange = { start: 1_000_000_000, size: 65_536 } as const

/** A container in namespaces of its own, like a sandbox, on a read-only root. */
export interface TrialContainer {
  /** Absolute path of a mount of the base image: runc refuses a root behind a symbolic link. */
  root: string
  hostname: string
  /** From the root of the control groups. */
  cgroup: string
  argv: readonly [string, ...string[]]
  annotations?: Record<string, string>
}

/** Its OCI runtime configuration. Only `/dev` is writable in it. */
export function trialConfig({ root, hostname, cgroup, argv, annotations = {} }: TrialContainer): object {
  const mapping = [{ containerID: 0, hostID: idRange.start, size: idRange.size }]
  return {
    ociVersion: '1.0.2',
    root: { path: root, readonly: true },
    hostname,
    process: {
      args: argv,
      cwd: '/',
      env: ['PATH=/usr/bin:/bin'],
      user: { uid: 0, gid: 0 },
      noNewPrivileges: true,
    },
    mounts: [
      { destination: '/proc', type: 'proc', source: 'proc' },
      { destination: '/dev', type: 'tmpfs', source: 'tmpfs', options: ['nosuid', 'mode=755', 'size=65536k'] },
      { destination: '/sys', type: 'sysfs', source: 'sysfs', options: ['nosuid', 'noexec', 'nodev', 'ro'] },
    ],
    annotations,
    linux: {
      cgroupsPath: cgroup,
      uidMappings: mapping,
      gidMappings: mapping,
      resources: { memory: { limit: 64 * 1024 * 1024 }, pids: { limit: 64 } },
      namespaces: ['user', 'pid', 'network', 'ipc', 'uts', 'mount', 'cgroup'].map((type) => ({ type })),
    },
  }
}
