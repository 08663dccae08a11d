const idRangeStart = 1_000_000_000
const idRangeSize = 65_536

/** A container in namespaces of its own, as each sandbox is one, on a root that nobody writes to. */
export interface TrialContainer {
  /** Absolute path of a mount of the base image: runc refuses a root behind a symbolic link. */
  root: string
  hostname: string
  /** From the root of the control groups. */
  cgroup: string
  argv: readonly [string, ...string[]]
  annotations?: Record<string, string>
}

/** Its OCI runtime configuration. What runs in it may write to `/dev` alone. */
export function trialConfig({ root, hostname, cgroup, argv, annotations = {} }: TrialContainer): object {
  const mapping = [{ containerID: 0, hostID: idRangeStart, size: idRangeSize }]
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
