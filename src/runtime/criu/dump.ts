import { totalmem } from 'node:os'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { OutOfMemory, type WorkGroups } from '../cgroups/work-groups.ts'
import { ServiceError } from '../../errors.ts'
import type { Cgroups } from '../cgroups/index.ts'
import { endCriu, endStrayTools, withinRun } from '../cleanup.ts'
import { poolIsFull } from '../disk/index.ts'
import { CommandError, reportable } from '../command.ts'
import { exists } from '../exists.ts'
import { limitsName, type HostNames } from '../host-names.ts'
import { faultIn, shellCommand, type HostTool } from '../hostd/index.ts'
import { maskedFolders } from '../oci/container-config.ts'
import { OciRuntimeError, type OciRuntime } from '../oci/oci-runtime.ts'
import type { WorkingCriu } from './program.ts'
import { faultOf } from './reason.ts'

const dumpTimeoutMs = 120_000
/** Longer than all attempts of `hostd/src/process/freeze.rs`. */
const freezeTimeoutMs = 60_000
/** Largest removed but open file that CRIU saves. */
const ghostFileLimit = '256M'
const probeBytes = 1024 * 1024
/** CRIU writes its statistics last, and only when the dump is complete. */
const lastFile = 'stats-dump'
/** The file that says why the saved memory cannot be restored; empty when it can. */
const refusalFile = 'refused.log'
/** Longer than a dump may take. After this time the kernel itself releases packets that a killed CRIU has held. */
const holdSeconds = dumpTimeoutMs / 1000 + 10
const heldFile = 'held'
const heldTable = 'dump'
/** Replaces the table that a dump that was cut off has left. */
const holdPackets = `nft -f - <<END
table inet ${heldTable}
delete table inet ${heldTable}
table inet ${heldTable} {
  set held { type inet_proto; flags timeout; timeout ${holdSeconds}s; elements = { tcp } }
  chain output { type filter hook output priority -300; oif lo meta l4proto @held drop; }
  chain input { type filter hook input priority -300; iif lo meta l4proto @held drop; }
}
END
`
const refusalCharsMax = 300

/**
 * Limits of one dump. CRIU takes some 2 KB for each mapping of memory: 2 GB for a million. The images are cache, which the kernel can drop
 * once it is written, so a dump of more than this waits for the disk.
 */
const dumpLimits = { memoryBytes: Math.max(2 * 1024 ** 3, totalmem() / 4), processors: 2, processes: 256 }

/** What CRIU's folder needs of a host. */
export interface CriuHost {
  names: HostNames
  hostd: HostTool
  runtime: OciRuntime
}

export interface DumpHost extends CriuHost {
  cgroups: Cgroups
  work: WorkGroups
}

export interface Dump {
  criu: WorkingCriu
  /** Path of `atoll-hostd`, which checks whether the saved memory can be restored. */
  hostTool: string
  /** Absolute path of a folder that does not exist yet. */
  images: string
  /** Whether the processes go on; otherwise they end. */
  leaveRunning: boolean
  /** Absolute paths of a subvolume and of the snapshot to take of it before the processes go on. */
  snapshot?: { from: string; to: string }
}

/**
 * Saves the memory of a running sandbox, whose guest has no connections. Throws `conflict` with the reason when something in the sandbox
 * cannot be saved, `no_capacity` when the disk is full; after an error the sandbox runs on, and the caller removes the images.
 */
export async function dumpContainer(host: DumpHost, id: string, dump: Dump): Promise<void> {
  const { names, hostd, runtime, cgroups, work } = host
  const { images, leaveRunning } = dump
  const group = names.cgroup(id)
  await mkdir(images, { mode: 0o700 })
  const folders = cgroups.memberFiles(group).map(dirname)
  const config = await dumpConfig(dump, names.sandboxDir(id), folders)
  await withinRun(writeFile(criuConfigFile(names, id), config))
  try {
    await freezeForDump(host, folders)
    await work.use('dump', dumpLimits, async (job) => {
      const options = {
        criu: dump.criu.path,
        images,
        leaveRunning,
        timeoutMs: dumpTimeoutMs,
        groups: job.groups,
      }
      await runtime.checkpoint(id, names.sandboxDir(id), options).catch(async (error: unknown) => {
        // End a CRIU that has lost its parent and still holds the sandbox.
        await endCriu(hostd, [images])
        throw await refusal(names, images, (await job.outOfMemory(error)) ?? error)
      })
    })
  } finally {
    await cgroups.thaw(group)
  }
}

/**
 * Freezes a sandbox at a moment at which CRIU can attach to every thread in it. The caller thaws, after an error too. Throws `conflict`
 * when no such moment comes within a second or so: a dump would hold the sandbox until one comes.
 */
async function freezeForDump({ hostd }: DumpHost, folders: readonly string[]): Promise<void> {
  const request = { op: 'freeze', groups: folders } as const
  const met = await hostd.runTool(request, { timeoutMs: freezeTimeoutMs }).catch(async (error: unknown) => {
    // A `freeze` outlives the hostd that started it, and would freeze the sandbox after the thaw.
    await endStrayTools(hostd, folders)
    if (!(error instanceof CommandError) || error.exitCode === undefined) throw error
    const reason = 'one of its processes waits for the machine and cannot be stopped'
    throw new ServiceError('conflict', `the memory of the sandbox cannot be saved now: ${reason}`, { cause: error })
  })
  if (met.trim() === 'frozen') return
  const reason = 'one of its processes has borrowed its memory to a child (vfork) and does not get it back'
  throw new ServiceError('conflict', `the memory of the sandbox cannot be saved: ${reason}`)
}

/**
 * Waits, for three seconds at most, until the guest (process `pid`) has closed its ends of connections: CRIU refuses connections that lead
 * out of the sandbox.
 */
export async function connectionsClosed(hostd: HostTool, pid: number): Promise<void> {
  await hostd.runTool({ op: 'await-unconnected', pid })
}

/** Whether the dump into this folder is complete. */
export function isCompleteDump(images: string): Promise<boolean> {
  return exists(`${images}/${lastFile}`)
}

/** CRIU reads its options from this file. The path is fixed when the sandbox starts; each dump and restore writes the content. */
export function criuConfigFile(names: HostNames, id: string): string {
  return `${names.sandboxDir(id)}/criu.conf`
}

/**
 * Options of dumps and restores. Connections are saved as they are; the restore decides whether they live on. CRIU reads an
 * option with an optional argument only as `name=value`: it ignores a value after a blank.
 */
export const criuOptions = [
  'tcp-established',
  'file-locks',
  'link-remap',
  // CRIU must not change the packet rules of the host, and lacks the programs for it.
  'network-lock skip',
  // `ignore` is refused at the restore: CRIU could not mount the control groups inside.
  'manage-cgroups=soft',
  'verbosity=2',
]

/**
 * File systems that mask folders are not saved: CRIU would start `tar` for each, at the dump and at the restore. The restore mounts an
 * empty folder of the host there.
 */
const masksSaved = maskedFolders.map((path) => `external mnt[${path}]:${maskOf(path)}`)

/** The files that show a sandbox its limits are the host's, and are not saved either. */
const limitsSaved = `external mnt[/sys/fs/cgroup/${limitsName}]:limits`

export function limitsRestored(folder: string): string {
  return `external mnt[limits]:${folder}`
}

/** The options of a restore that mount the masks. `emptyDir`: absolute path of an empty folder. */
export function masksRestored(emptyDir: string): string[] {
  return maskedFolders.map((path) => `external mnt[${maskOf(path)}]:${emptyDir}`)
}

function maskOf(path: string): string {
  return `mask${path.replaceAll('/', '-')}`
}

/** `groups`: the folders of the sandbox's control group. */
async function dumpConfig(dump: Dump, sandboxDir: string, groups: readonly string[]): Promise<string> {
  const script = `${dump.images}/action`
  await writeFile(script, dumpScript(dump, sandboxDir, groups), { mode: 0o700 })
  const lines = [
    ...criuOptions,
    ...masksSaved,
    limitsSaved,
    'skip-in-flight',
    `ghost-limit ${ghostFileLimit}`,
    'cpu-cap=ins',
    `action-script ${script}`,
  ]
  return `${lines.join('\n')}\n`
}

/**
 * The script that CRIU calls at each stage, in the folder of the images. CRIU aborts the dump when it fails.
 *
 * `network-lock`, before CRIU reads the first socket: from then on no packet leaves or arrives over the loopback. The kernel's timers go on sending
 * for processes that stand still, and CRIU reads the two ends of a connection one after the other: the second could have received what the
 * first has not sent by its image. What may not leave does not count as sent: lost data would be sent again after seconds in a fork, and later and
 * later as long as the receiver is full. In a sandbox without connections nothing is held.
 *
 * `post-dump`: no process has moved since the dump, and all go on when the script fails. So no process ends before the saved memory is
 * known to be restorable. The kernel releases the mutexes that ending processes hold in mapped files; so as the last step the
 * processes forget those mutexes. The paths consist of checked ids.
 */
function dumpScript(dump: Dump, sandboxDir: string, groups: readonly string[]): string {
  const { criu, hostTool, images, leaveRunning, snapshot } = dump
  const kept = { keepsPosixLocks: criu.keepsPosixLocks, keepsSemaphores: criu.keepsSemaphores }
  const check = shellCommand(hostTool, { op: 'check-dump', images, beside: sandboxDir, ...kept, groups })
  const takeSnapshot = snapshot && `btrfs subvolume snapshot -r '${snapshot.from}' '${snapshot.to}' >snapshot.log 2>&1`
  const forget = shellCommand(hostTool, { op: 'empty-robust-lists', groups })
  return `#!/bin/sh
enter() { nsenter --net="/proc/$CRTOOLS_INIT_PID/ns/net" "$@"; }
case $CRTOOLS_SCRIPT_ACTION in
network-lock)
  grep -qs ' 0[1-57-9BC] ' "/proc/$CRTOOLS_INIT_PID/net/tcp" "/proc/$CRTOOLS_INIT_PID/net/tcp6" || exit 0
  : >${heldFile}
  enter ${holdPackets}  ;;
network-unlock)
  [ ! -e ${heldFile} ] || enter nft delete table inet ${heldTable} ;;
post-dump)
  ${check} 2>${refusalFile} || exit
  ${takeSnapshot ?? ':'} || exit
  ${leaveRunning ? ':' : `${forget} 2>${refusalFile}`} ;;
esac
`
}

async function refusal(names: HostNames, images: string, error: unknown): Promise<ServiceError> {
  const { reason, noSpace } = await faultOf(`${images}/dump.log`, [names.runDir, names.dataDir])
  const snapshot = await readFile(`${images}/snapshot.log`, 'utf8').catch(() => '')
  const refused = await readFile(`${images}/${refusalFile}`, 'utf8').catch(() => '')
  // On a full disk the log may lack the reason too.
  if (noSpace || /No space left|quota exceeded/i.test(snapshot) || (await isFull(images))) return poolIsFull(error)
  const isTimeout = error instanceof OciRuntimeError && error.isTimeout
  if (refused !== '') {
    const told = reportable(faultIn(refused)?.message ?? refused, [names.runDir, names.dataDir], refusalCharsMax)
    return new ServiceError('conflict', `the memory of the sandbox cannot be saved: ${told}`, { cause: error })
  }
  const bound = error instanceof OutOfMemory ? error.message : undefined
  const reported = bound ?? (isTimeout ? `it took longer than ${dumpTimeoutMs / 1000} s` : reason)
  return new ServiceError('conflict', `the memory of the sandbox cannot be saved: ${reported}`, { cause: error })
}

/** Whether the file system of a folder is full. */
async function isFull(folder: string): Promise<boolean> {
  try {
    await writeFile(`${folder}/probe`, Buffer.alloc(probeBytes), { flush: true })
    return false
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ENOSPC'
  }
}
