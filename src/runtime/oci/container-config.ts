import { readFile } from 'node:fs/promises'
import { defined } from '../../lib/defined.ts'
import type { SandboxSpec } from '../../sandbox/ports/runtime-driver.ts'
import type { DiskBounds } from '../cgroups/disk-rates.ts'
import type { Cgroups } from '../cgroups/index.ts'
import { formatProcessors } from '../cgroups/processors.ts'
import type { Run } from '../command.ts'
import { exists } from '../exists.ts'
import type { HostNames } from '../host-names.ts'
import { shownFiles } from '../lxcfs.ts'
import { findProfile } from './apparmor.ts'
import { seccompProfile } from './seccomp.ts'

export const idsPerSandbox = 65_536
const cpuPeriodUs = 100_000
const processesMax = 4_096
const filesSoft = 65_536
const filesHard = 1_048_576
/** The kernel bounds terminals for all sandboxes together, signals and queues even with root on the host: each sandbox gets a share. */
const terminalsMax = 256
const terminalOptions = 'nosuid noexec newinstance ptmxmode=0666 mode=0620 gid=5'
const signalsQueuedMax = 4_096
/** Enough for one message queue of the default size, which takes 83 000 bytes. */
const messageQueueBytes = 98_304
/** When the host runs out of memory, the kernel kills sandboxes first. Children inherit it. */
const oomScoreAdjust = 500

/** The privileges of root that package managers and development servers need; none reaches beyond the sandbox. */
const capabilities = words(`
  CAP_AUDIT_WRITE CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER CAP_FSETID CAP_KILL CAP_NET_BIND_SERVICE CAP_SETFCAP CAP_SETGID
  CAP_SETPCAP CAP_SETUID CAP_SYS_CHROOT`)

/**
 * Files and folders that expose the host or other sandboxes, such as their use of the disk, or that take requests to the kernel: each
 * trigger of `/proc/pressure` delays the end of its process. runc mounts an empty file system on each of the folders, and skips paths
 * that the host does not have.
 */
export const maskedFolders = words(`
  /proc/acpi /proc/asound /proc/pressure /proc/scsi /sys/block /sys/devices/virtual/block /sys/devices/virtual/powercap
  /sys/firmware /sys/fs/btrfs /sys/fs/ext4`)
const maskedFiles = words(`
  /proc/cmdline /proc/diskstats /proc/interrupts /proc/kcore /proc/keys /proc/latency_stats /proc/locks /proc/partitions
  /proc/sched_debug /proc/timer_list /proc/timer_stats`)

/** The search path of the first process, and of what the driver starts beside it. */
export const rootPath = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'

const readonlyPaths = ['/proc/bus', '/proc/fs', '/proc/irq', '/proc/sys', '/proc/sysrq-trigger']

export type ContainerLimits = Pick<SandboxSpec, 'cpuCount' | 'memoryMb'>

/** Features of the host, detected once. */
export type HostTraits = Awaited<ReturnType<typeof findTraits>>

export async function findTraits(cgroups: Cgroups, run: Run, log: (message: string) => void) {
  const limits = await readFile('/proc/self/limits', 'utf8')
  const files = /^Max open files\s+\S+\s+(\d+)/m.exec(limits)?.[1]
  return {
    /** Hard limit of open files of this process; a higher one can be refused. */
    filesMax: files === undefined ? Number.MAX_SAFE_INTEGER : Number(files),
    /** Whether the kernel counts swap; without it a limit on swap cannot be set and none is needed. */
    swapAccounting: await cgroups.countsSwap(),
    /** Absent where the kernel has no AppArmor, or takes no profile of ours. */
    apparmorProfile: await findProfile(run, log),
    ipv6: await exists('/proc/net/if_inet6'),
    /** The disk rates of each sandbox. Known once the pool is open; undefined where the kernel has none. */
    disk: undefined as DiskBounds | undefined,
  }
}

/** The OCI runtime configuration of one sandbox (runtime-spec 1.0.2). */
export function containerConfig(
  record: { id: string; rangeStart: number },
  { volumes = [], ...limits }: ContainerLimits & Pick<SandboxSpec, 'volumes'>,
  {
    names,
    programs,
    traits: host,
    shown,
    processors,
  }: {
    names: HostNames
    /** Host paths of the programs, which are mounted. */
    programs: { guest: string; agent?: string }
    traits: HostTraits
    /** The folder that holds `shownFiles`. */
    shown: string
    /** The processors that the sandbox may use; undefined: all. */
    processors?: readonly number[] | undefined
  },
) {
  const folder = names.sandboxDir(record.id)
  const range = [{ containerID: 0, hostID: record.rangeStart, size: idsPerSandbox }]
  const files = Math.min(filesHard, host.filesMax)
  return {
    ociVersion: '1.0.2',
    process: {
      terminal: false,
      user: { uid: 0, gid: 0 },
      args: ['/.atoll/guest', '--socket', '/.atoll/run/guest.sock'],
      env: [`PATH=${rootPath}`, 'HOME=/root'],
      cwd: '/',
      capabilities: { bounding: capabilities, effective: capabilities, permitted: capabilities },
      rlimits: [
        { type: 'RLIMIT_NOFILE', soft: Math.min(filesSoft, files), hard: files },
        { type: 'RLIMIT_CORE', soft: 0, hard: 0 },
        { type: 'RLIMIT_SIGPENDING', soft: signalsQueuedMax, hard: signalsQueuedMax },
        { type: 'RLIMIT_MSGQUEUE', soft: messageQueueBytes, hard: messageQueueBytes },
      ],
      noNewPrivileges: true,
      ...defined({ apparmorProfile: host.apparmorProfile }),
      oomScoreAdj: oomScoreAdjust,
    },
    root: { path: `${folder}/root`, readonly: false },
    hostname: record.id,
    mounts: [
      mount('/proc', 'proc', 'proc', 'nosuid noexec nodev'),
      mount('/dev', 'tmpfs', 'tmpfs', 'nosuid strictatime mode=755 size=64k'),
      mount('/dev/pts', 'devpts', 'devpts', `${terminalOptions} max=${terminalsMax}`),
      mount('/dev/shm', 'tmpfs', 'shm', 'nosuid noexec nodev mode=1777 size=256m'),
      mount('/dev/mqueue', 'mqueue', 'mqueue', 'nosuid noexec nodev'),
      mount('/sys', 'sysfs', 'sysfs', 'nosuid noexec nodev ro'),
      mount('/sys/fs/cgroup', 'cgroup', 'cgroup', 'nosuid noexec nodev relatime ro'),
      // Always all of them, since memory that was saved with a mount needs it at the restore. Private, since CRIU refuses to give a
      // mount of the host's file systems the peers that it had below lxcfs.
      ...shownFiles.map((file) => bind(file, `${shown}${file}`, 'noexec private')),
      bind('/.atoll/guest', programs.guest),
      mount('/.atoll/run', 'bind', names.guestDir(record.id), 'bind nosuid nodev noexec'),
      ...(programs.agent === undefined ? [] : [bind('/.atoll/agent', programs.agent)]),
      // Distributions mount `/run` noexec. A user namespace locks that flag, so a bind from there that lacks it is refused.
      ...['hosts', 'hostname', 'resolv.conf', 'machine-id'].map((name) =>
        bind(`/etc/${name}`, `${folder}/etc/${name}`, 'noexec'),
      ),
      // The pool is mounted noatime, which a user namespace locks too.
      ...volumes.map(({ id, path, readOnly }) =>
        mount(path, 'bind', names.volumeDir(record.id, id), `bind nosuid nodev noatime ${readOnly ? 'ro' : 'rw'}`),
      ),
    ],
    // CRIU reads its options from here; the annotation must be there from the first start on.
    annotations: { 'org.criu.config': `${folder}/criu.conf` },
    linux: {
      namespaces: ['user', 'pid', 'mount', 'ipc', 'uts', 'cgroup', 'network'].map((type) => ({ type })),
      uidMappings: range,
      gidMappings: range,
      cgroupsPath: names.cgroup(record.id),
      resources: { devices: [{ allow: false, access: 'rwm' }], ...startResourcesOf(limits, host, processors) },
      sysctl: networkSysctls(host.ipv6),
      seccomp: seccompProfile(),
      maskedPaths: [...maskedFolders, ...maskedFiles],
      readonlyPaths,
    },
  }
}

/** The part of `linux.resources` that can change while a sandbox runs. Bytes; of the CPU, microseconds of each period. */
export type ContainerResources = ReturnType<typeof resourcesOf>

export function resourcesOf({ cpuCount, memoryMb }: ContainerLimits, { swapAccounting }: HostTraits) {
  const bytes = memoryMb * 1024 * 1024
  return {
    memory: { limit: bytes, ...defined({ swap: swapAccounting ? bytes : undefined }) },
    cpu: { quota: Math.max(1_000, Math.round(cpuCount * cpuPeriodUs)), period: cpuPeriodUs },
    pids: { limit: processesMax },
  }
}

/**
 * Processors and disk rates hold from the first process on, which may ask for them at once. `Processors.change` and `Cgroups.setDiskRates`
 * change those of a running sandbox: `update` of runc takes no rates.
 */
function startResourcesOf(limits: ContainerLimits, host: HostTraits, processors: readonly number[] | undefined) {
  const { cpu, ...others } = resourcesOf(limits, host)
  const cpus = processors && formatProcessors(processors)
  return {
    ...others,
    cpu: { ...cpu, ...defined({ cpus }) },
    ...defined({ blockIO: host.disk && blockIoOf(host.disk) }),
  }
}

function blockIoOf({ device, rates }: DiskBounds) {
  const [major = 0, minor = 0] = device.split(':').map(Number)
  const at = (rate: number) => [{ major, minor, rate }]
  return {
    throttleReadBpsDevice: at(rates.readBytes),
    throttleWriteBpsDevice: at(rates.writeBytes),
    throttleReadIOPSDevice: at(rates.reads),
    throttleWriteIOPSDevice: at(rates.writes),
  }
}

/** Settings of the network namespace, which CRIU does not save. `firstGroup` is the sandbox's first group id, 0 from inside. */
export function networkSysctls(ipv6: boolean, firstGroup = 0): Record<string, string> {
  return {
    'net.ipv4.ip_unprivileged_port_start': '0',
    'net.ipv4.ping_group_range': `${firstGroup} ${firstGroup + idsPerSandbox - 1}`,
    // The loopback keeps ::1; interfaces that come later have no IPv6.
    ...(ipv6 ? { 'net.ipv6.conf.default.disable_ipv6': '1' } : {}),
  }
}

function bind(destination: string, source: string, more = '') {
  return mount(destination, 'bind', source, `bind ro nosuid nodev ${more}`)
}

function mount(destination: string, type: string, source: string, options: string) {
  return { destination, type, source, options: words(options) }
}

function words(text: string): string[] {
  return text.trim().split(/\s+/)
}
