import { seccompProfile } from '../oci/seccomp.ts'
import { maskedFolders } from '../oci/container-config.ts'

/** Ids that no sandbox has: the range before the first of theirs. */
export const treeRange = { start: 1_000_000_000 - 65_536, count: 65_536 } as const

/** What a comparison may take of the host. */
const memoryBytes = 512 * 1024 * 1024
const processesMax = 64
const filesMax = 1024
/** In memory, and charged to the container. */
export const outputBytes = 384 * 1024 * 1024
export const outputFiles = 400_000

/** Lets it read what every owner in a tree has closed to others; the ids of a tree are all in its user namespace. */
const capabilities = ['CAP_DAC_READ_SEARCH']

/**
 * The OCI runtime configuration of a container that reads trees: a read-only root, no network, no device, nothing of the host. It can write to
 * `/out` alone.
 */
export function treesConfig({
  folder,
  cgroup,
  argument,
}: {
  folder: string
  cgroup: string
  argument: string
}): object {
  const range = [{ containerID: 0, hostID: treeRange.start, size: treeRange.count }]
  const bind = (destination: string, options: string) => ({
    destination,
    type: 'bind',
    source: `${folder}${destination}`,
    options: `bind nosuid nodev noexec ${options}`.split(' '),
  })
  return {
    ociVersion: '1.0.2',
    root: { path: `${folder}/root`, readonly: true },
    hostname: 'trees',
    process: {
      args: ['/usr/local/bin/node', '--disable-warning=ExperimentalWarning', '/program.ts', argument],
      cwd: '/',
      env: ['PATH=/usr/local/bin:/usr/bin:/bin', 'HOME=/out'],
      user: { uid: 0, gid: 0 },
      capabilities: { bounding: capabilities, effective: capabilities, permitted: capabilities },
      rlimits: [
        { type: 'RLIMIT_NOFILE', soft: filesMax, hard: filesMax },
        { type: 'RLIMIT_CORE', soft: 0, hard: 0 },
      ],
      noNewPrivileges: true,
    },
    mounts: [
      { destination: '/proc', type: 'proc', source: 'proc', options: ['nosuid', 'noexec', 'nodev'] },
      { destination: '/dev', type: 'tmpfs', source: 'tmpfs', options: ['nosuid', 'mode=755', 'size=64k'] },
      bind('/from', 'ro'),
      bind('/to', 'ro'),
      bind('/out', 'rw'),
    ],
    linux: {
      cgroupsPath: cgroup,
      uidMappings: range,
      gidMappings: range,
      resources: {
        devices: [{ allow: false, access: 'rwm' }],
        memory: { limit: memoryBytes },
        pids: { limit: processesMax },
        cpu: { shares: 128 },
      },
      namespaces: ['user', 'pid', 'network', 'ipc', 'uts', 'mount', 'cgroup'].map((type) => ({ type })),
      seccomp: seccompProfile(),
      maskedPaths: maskedFolders,
      readonlyPaths: ['/proc/bus', '/proc/fs', '/proc/irq', '/proc/sys', '/proc/sysrq-trigger'],
    },
  }
}
