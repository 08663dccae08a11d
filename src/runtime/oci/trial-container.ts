import { idRange } from '../scratch.ts'

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
