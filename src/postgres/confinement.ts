import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { ServiceError } from '../errors.ts'

/** The user that PostgreSQL runs as: it refuses root. Setup makes it. */
const systemUser = 'atoll-db'

export interface SystemUser {
  name: string
  uid: number
  gid: number
}

/** Throws `unavailable` when setup has not made the user. */
export async function findSystemUser(): Promise<SystemUser> {
  const { stdout } = await promisify(execFile)('getent', ['passwd', systemUser]).catch(() => ({ stdout: '' }))
  const [, , uid = '', gid = ''] = stdout.split(':')
  if (!/^\d+$/.test(uid) || !/^\d+$/.test(gid)) {
    throw new ServiceError(
      'unavailable',
      `there is no system user ${systemUser} for the database: npm run setup makes it`,
    )
  }
  return { name: systemUser, uid: Number(uid), gid: Number(gid) }
}

/** Where the programs of PostgreSQL see the cluster's folder, whatever closes the folders above it to their user. */
export function shownFolder(socketDir: string): string {
  return `${socketDir}/data`
}

/** Where an upgrade sees the new cluster, beside the old one. */
export function shownUpgrade(socketDir: string): string {
  return `${socketDir}/upgrade`
}

/** A control group for programs of a cluster, which outlives the server. */
export interface ProgramGroup {
  /** What all of them together may hold. */
  readonly memoryBytes: number
  /** Ends what is left in it and gives it its limits. Returns its folders, in whose `cgroup.procs` a process enters it. */
  open(): Promise<readonly string[]>
  /** Whether a process is in it, under the present limits. */
  holds(pid: number): Promise<boolean>
  /** How many of its processes the kernel has killed for memory since it was made. */
  memoryKills(): Promise<number>
  /** Kills what runs in it. */
  remove(): Promise<void>
}

/** What a program of the cluster runs with. */
export interface Surroundings {
  user: SystemUser
  socketDir: string
  /** Mounts below it are not seen: nobody but the server may hold them. */
  hiddenDir: string
  /** Absent in tests alone: the programs are in the group of whoever starts them. */
  group?: ProgramGroup | undefined
}

export interface Confinement {
  /** Folders and where they are shown. */
  shown: readonly (readonly [folder: string, shown: string])[]
  /** Of the control group that it enters. */
  groupFolders?: readonly string[]
  /** It ends with the process that starts it, and all that it has started ends with it. */
  endsWithStarter?: boolean
}

/**
 * The shell's part: it enters the control groups, asks that the kernel ends others first when memory is short, where this server may ask, and
 * shows folders in a mount namespace of its own. Sessions of PostgreSQL return to 0. Lists end with `--`.
 */
const prepare = [
  'hidden=$1; shift',
  // Number 0 is the process that writes it.
  'while [ "$1" != -- ]; do echo 0 >"$1/cgroup.procs" || exit; shift; done; shift',
  'echo -900 2>/dev/null >/proc/self/oom_score_adj || :',
  // All names first: a list that changes while it is read skips some.
  'targets=$(cut -d " " -f 2 /proc/self/mounts)',
  'for target in $targets; do case $target in "$hidden"/*) umount --lazy "$target" 2>/dev/null ;; esac; done',
  'while [ "$1" != -- ]; do mount --bind "$1" "$2" || exit; shift 2; done; shift',
].join('\n')

/** The first process of a namespace of processes, with which all others end, must not change its user: it would no longer end with its parent. */
const asFirstProcess = { yes: '"$@"; exit $?', no: 'exec "$@"' }

/**
 * The command line of a program of PostgreSQL: as the cluster's user, who can gain nothing (no group, capability or privilege of the
 * server's), and who sees the cluster's folder as {@link shownFolder}.
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
