import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { ServiceError } from '../../errors.ts'
import type { Cgroups } from '../cgroups/index.ts'
import { endCriu, endStrayTools, withinRun } from '../cleanup.ts'
import { poolIsFull } from '../disk/index.ts'
import { CommandError } from '../command.ts'
import { exists } from '../exists.ts'
import { limitsName, type HostNames } from '../host-names.ts'
import type { HostTool } from '../hostd/index.ts'
import { maskedFolders } from '../oci/container-config.ts'
import { OciRuntimeError, type OciRuntime } from '../oci/oci-runtime.ts'
import { faultOf } from './reason.ts'

const dumpTimeoutMs = 120_000
/** Longer than all attempts of `hostd/src/process/freeze.rs`. */
const freezeTimeoutMs = 60_000
/** Files that were removed while they are open are kept up to this size each. */
const ghostFileLimit = '256M'
const probeBytes = 1024 * 1024
/** CRIU writes its statistics last, and only when the dump is complete. */
const lastFile = 'stats-dump'

/** What CRIU's folder needs of a host. */
export interface CriuHost {
  names: HostNames
  hostd: HostTool
  runtime: OciRuntime
}

interface DumpHost extends CriuHost {
  cgroups: Cgroups
}

export interface Dump {
  /** Path of the program. */
  criu: string
  /** Absolute path of a folder that does not exist yet. */
  images: string
  /** Whether the processes go on; otherwise they end. */
  leaveRunning: boolean
  /** Absolute paths of a subvolume and of the snapshot to take of it while the processes stand where the dump saw them. */
  snapshot?: { from: string; to: string }
}

/**
 * Saves the memory of a running sandbox. Its guest has no connections. Throws `conflict` with the reason when something in it
 * cannot be saved, `no_capacity` when the disk is full; the sandbox runs on then, and the caller removes the images.
 */
export async function dumpContainer(host: DumpHost, id: string, dump: Dump): Promise<void> {
  const { names, hostd, runtime, cgroups } = host
  const { criu, images, leaveRunning } = dump
  const group = names.cgroup(id)
  await mkdir(images, { mode: 0o700 })
  const config = await dumpConfig(dump)
  await withinRun(writeFile(criuConfigFile(names, id), config))
  try {
    await freezeForDump(host, group)
    await runtime
      .checkpoint(id, names.sandboxDir(id), { criu, images, leaveRunning, timeoutMs: dumpTimeoutMs })
      .catch(async (error: unknown) => {
        // A CRIU that has lost its parent must not hold the sandbox.
        await endCriu(hostd, [images])
        throw await refusal(names, images, error)
      })
  } finally {
    await cgroups.thaw(group)
  }
}

/**
 * Freezes a sandbox where CRIU can attach to every thread in it; the caller thaws, after an error too. Throws `conflict` when
 * no such moment comes within a second or so: a dump would wait for one and hold the sandbox meanwhile.
 */
async function freezeForDump({ hostd, cgroups }: DumpHost, group: string): Promise<void> {
  const folders = cgroups.memberFiles(group).map(dirname)
  const args = folders.flatMap((folder) => ['--group', folder])
  const met = await hostd.runTool(['freeze', ...args], { timeoutMs: freezeTimeoutMs }).catch(async (error: unknown) => {
    // A `freeze` whose launcher has ended goes on, and would freeze the sandbox after the thaw.
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
 * Waits, for three seconds at most, until the guest, process `pid`, has closed its ends of connections too: CRIU refuses what leads
 * out of the sandbox.
 */
export async function connectionsClosed(hostd: HostTool, pid: number): Promise<void> {
  await hostd.runTool(['await-unconnected', '--pid', String(pid)])
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
 * The file systems that mask folders are not saved: CRIU would start `tar` for each, at the dump and at the restore. Instead an empty
 * folder of the host is mounted there at the restore.
 */
const masksSaved = maskedFolders.map((path) => `external mnt[${path}]:${maskOf(path)}`)

/** Likewise what shows a sandbox its limits, which is the host's. Memory of earlier versions has no such mount. */
const limitsSaved = `external mnt[/sys/fs/cgroup/${limitsName}]:limits`

export function limitsRestored(folder: string): string {
  return `external mnt[limits]:${folder}`
}

/** The options of a restore that belong to those. `emptyDir`: absolute path of an empty folder. */
export function masksRestored(emptyDir: string): string[] {
  return maskedFolders.map((path) => `external mnt[${maskOf(path)}]:${emptyDir}`)
}

function maskOf(path: string): string {
  return `mask${path.replaceAll('/', '-')}`
}

async function dumpConfig({ images, snapshot }: Dump): Promise<string> {
  const lines = [
    ...criuOptions,
    ...masksSaved,
    limitsSaved,
    'skip-in-flight',
    `ghost-limit ${ghostFileLimit}`,
    'cpu-cap=ins',
  ]
  if (snapshot !== undefined) {
    const script = `${images}/action`
    await writeFile(script, snapshotScript(snapshot), { mode: 0o700 })
    lines.push(`action-script ${script}`)
  }
  return `${lines.join('\n')}\n`
}

/** CRIU calls it at each stage; at `post-dump` no process has moved since the dump. The paths consist of checked ids. */
function snapshotScript({ from, to }: NonNullable<Dump['snapshot']>): string {
  return `#!/bin/sh
[ "$CRTOOLS_SCRIPT_ACTION" = post-dump ] || exit 0
exec btrfs subvolume snapshot -r '${from}' '${to}' >snapshot.log 2>&1
`
}

async function refusal(names: HostNames, images: string, error: unknown): Promise<ServiceError> {
  const { reason, noSpace } = await faultOf(`${images}/dump.log`, [names.runDir, names.dataDir])
  const snapshot = await readFile(`${images}/snapshot.log`, 'utf8').catch(() => '')
  // On a full disk the log may lack the reason too.
  if (noSpace || /No space left|quota exceeded/i.test(snapshot) || (await isFull(images))) return poolIsFull(error)
  const isTimeout = error instanceof OciRuntimeError && error.isTimeout
  const reported = isTimeout ? `it took longer than ${dumpTimeoutMs / 1000} s` : reason
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
