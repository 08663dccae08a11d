import type { SystemUser } from '../lib/system-user.ts'

/** Where the programs of PostgreSQL see the cluster's folder, even when folders above it are closed to their user. */
export function shownFolder(socketDir: string): string {
  return `${socketDir}/data`
}

/** Where an upgrade sees the new cluster, beside the old one. */
export function shownUpgrade(socketDir: string): string {
  return `${socketDir}/upgrade`
}

/** A control group for programs of a cluster, which outlives the server. */
export interface ProgramGroup {
  /** Memory that all of them together may hold. */
  readonly memoryBytes: number
  /** Kills what is left in the group and sets its limits. Returns its folders; a process enters the group by their `cgroup.procs`. */
  open(): Promise<readonly string[]>
  /** Whether a process is in the group, and the group has the present limits. */
  holds(pid: number): Promise<boolean>
  /** How many processes of the group the kernel has killed for memory since the group was made. */
  memoryKills(): Promise<number>
  /** Kills what runs in the group and removes it. */
  remove(): Promise<void>
}

/** The surroundings of a program of the cluster. */
export interface Surroundings {
  user: SystemUser
  /** That of the process that sends webhooks, which connects to the cluster. */
  webhookUser: SystemUser
  socketDir: string
  /** Programs do not see mounts below this folder, so that only the server holds them. */
  hiddenDir: string
  /** Absent in tests alone, where programs stay in the group of their starter. */
  group?: ProgramGroup | undefined
}

export interface Confinement {
  /** Folders and where they are shown. */
  shown: readonly (readonly [folder: string, shown: string])[]
  /** The folders of the control group that it enters. */
  groupFolders?: readonly string[]
  /** The program ends with the process that starts it, and takes its own children along. */
  endsWithStarter?: boolean
}

/**
 * The shell's part. It enters the control groups and shows folders in a mount namespace of its own. Where this server may, it asks the kernel
 * to kill others first when memory is short; sessions of PostgreSQL set that back to 0. Lists end with `--`.
 */
const prepare = [
  'hidden=$1; shift',
  // Number 0 is the process that writes it.
  'while [ "$1" != -- ]; do echo 0 >"$1/cgroup.procs" || exit; shift; done; shift',
  'echo -900 2>/dev/null >/proc/self/oom_score_adj || :',
  // Read all names first: unmounts during the read would make it skip some.
  'targets=$(cut -d " " -f 2 /proc/self/mounts)',
  'for target in $targets; do case $target in "$hidden"/*) umount --lazy "$target" 2>/dev/null ;; esac; done',
  'while [ "$1" != -- ]; do mount --bind "$1" "$2" || exit; shift 2; done; shift',
].join('\n')

/** The first process of a pid namespace, with which all others end, must not change its user: it would no longer end with its parent. */
const asFirstProcess = { yes: '"$@"; exit $?', no: 'exec "$@"' }

/**
 * The command line of a program of PostgreSQL. It runs as the cluster's user, without any group, capability or privilege of the server and
 * without a way to gain one, and sees the cluster's folder as {@link shownFolder}.
 */
export function confined(
  program: readonly string[],
  { user, hiddenDir }: Surroundings,
  { shown, groupFolders = [], endsWithStarter = false }: Confinement,
): string[] {
  const script = `${prepare}\n${asFirstProcess[endsWithStarter ? 'yes' : 'no']}`
  return [
    ...(endsWithStarter ? ['setpriv', '--pdeathsig=KILL', '--'] : []),
    ...['unshare', '--mount', '--propagation', 'slave'],
    ...(endsWithStarter ? ['--pid', '--fork', '--kill-child'] : []),
    ...['--', 'sh', '-c', script, 'sh', hiddenDir, ...groupFolders, '--', ...shown.flat(), '--'],
    ...['setpriv', `--reuid=${user.uid}`, `--regid=${user.gid}`, '--clear-groups', '--inh-caps=-all'],
    ...['--bounding-set=-all', '--no-new-privs', '--', ...program],
  ]
}
