import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { ServiceError } from '../../errors.ts'
import { faultOf } from './reason.ts'
import { CommandError, run } from '../command.ts'
import { poolIsFull } from '../disk/index.ts'
import type { HostTool } from '../hostd/index.ts'
import type { Cgroups } from '../host/cgroups.ts'
import { freezeForDump } from './freeze.ts'
import { withinRun } from '../host/run-folders.ts'
import type { HostNames } from '../host/names.ts'
import { runcCommand } from '../oci/runc.ts'
import { endCriu } from '../host/strays.ts'

const dumpTimeoutMs = 120_000
/** Files that were removed while they are open are kept up to this size each. */
const ghostFileLimit = '256M'
const roomBytes = 1024 * 1024
/** CRIU writes its statistics last, and only when the dump is whole. */
const lastFile = 'stats-dump'

export interface DumpHost {
  names: HostNames
  hostd: HostTool
  cgroups: Cgroups
  /** Path of the program. */
  criu: string
}

export interface Dump {
  /** Absolute path of a folder that does not exist yet. */
  images: string
  /** Whether the processes go on; otherwise they end. */
  leaveRunning: boolean
  /** Absolute paths of a subvolume and of the snapshot to take of it while the processes stand where the dump saw them. */
  snapshot?: { from: string; to: string }
}

/**
 * Saves the memory of a running sandbox. Nobody is connected to its guest. Throws `conflict` with the reason when something
 * in it cannot be saved, `no_capacity` when there is no room; it runs on then, and the caller removes the images.
 */
export async function dumpContainer(host: DumpHost, id: string, dump: Dump): Promise<void> {
  const { names, hostd, cgroups } = host
  const group = names.cgroup(id)
  await mkdir(dump.images, { mode: 0o700 })
  const config = await dumpConfig(dump)
  await withinRun(writeFile(criuConfigFile(names, id), config))
  try {
    await freezeForDump(hostd, cgroups, group)
    await runDump(host, id, dump)
  } finally {
    await cgroups.thaw(group)
  }
}

async function runDump({ names, hostd, criu }: DumpHost, id: string, { images, leaveRunning }: Dump): Promise<void> {
  try {
    await run(
      runcCommand(names, { criu, log: `${images}/runc.log` }, [
        ...['checkpoint', '--image-path', images, '--work-path', images],
        ...(leaveRunning ? ['--leave-running'] : []),
        id,
      ]),
      { detached: true, timeoutMs: dumpTimeoutMs },
    )
  } catch (error) {
    // A CRIU that has lost its runc must not hold the sandbox.
    await endCriu(hostd, [images])
    throw await refusal(names, images, error)
  }
}

/** Whether a dump into this folder came to its end. */
export async function isWhole(images: string): Promise<boolean> {
  return (await readFile(`${images}/${lastFile}`).catch(() => undefined)) !== undefined
}

/** CRIU reads its options from here; the path is fixed when the sandbox starts, the content is what is done next. */
export function criuConfigFile(names: HostNames, id: string): string {
  return `${names.sandboxDir(id)}/criu.conf`
}

/**
 * Options for both directions. Connections are saved as they are; whether they live on is decided at the restore. CRIU takes
 * an option whose argument is optional only as `name=value` from its configuration file: what stands behind a blank is lost.
 */
export const criuOptions = [
  'tcp-established',
  'file-locks',
  'link-remap',
  // The host's own rules are not CRIU's to change, nor does it have their programs.
  'network-lock skip',
  // `ignore` is refused at the restore: CRIU could not mount the control groups inside.
  'manage-cgroups=soft',
  'verbosity=2',
]

async function dumpConfig({ images, snapshot }: Dump): Promise<string> {
  const lines = [...criuOptions, 'skip-in-flight', `ghost-limit ${ghostFileLimit}`, 'cpu-cap=ins']
  if (snapshot !== undefined) {
    const script = `${images}/action`
    await writeFile(script, snapshotScript(snapshot), { mode: 0o700 })
    lines.push(`action-script ${script}`)
  }
  return `${lines.join('\n')}\n`
}

/** CRIU calls it at each stage; after the dump all is still as it was saved. The paths are ours, of checked ids. */
function snapshotScript({ from, to }: { from: string; to: string }): string {
  return `#!/bin/sh
[ "$CRTOOLS_SCRIPT_ACTION" = post-dump ] || exit 0
exec btrfs subvolume snapshot -r '${from}' '${to}' >snapshot.log 2>&1
`
}

async function refusal(names: HostNames, images: string, error: unknown): Promise<ServiceError> {
  const { reason, noSpace } = await faultOf(`${images}/dump.log`, [names.runDir, names.dataDir])
  const snapshot = await readFile(`${images}/snapshot.log`, 'utf8').catch(() => '')
  // Nor may there have been room to say so.
  if (noSpace || /No space left|quota exceeded/i.test(snapshot) || (await isFull(images))) {
    return poolIsFull(error)
  }
  const late = error instanceof CommandError && error.message.includes('took too long')
  const told = late ? `it took longer than ${dumpTimeoutMs / 1000} s` : reason
  return new ServiceError('conflict', `the memory of the sandbox cannot be saved: ${told}`, { cause: error })
}

/** Whether a folder takes no more bytes. */
async function isFull(folder: string): Promise<boolean> {
  try {
    await writeFile(`${folder}/room`, Buffer.alloc(roomBytes), { flush: true })
    return false
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ENOSPC'
  }
}
