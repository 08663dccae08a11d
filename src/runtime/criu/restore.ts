import { readFile, writeFile } from 'node:fs/promises'
import { ServiceError } from '../../errors.ts'
import { shellCommand } from '../hostd/index.ts'
import { endCriu, withinRun } from '../cleanup.ts'
import { CommandError, type Run } from '../command.ts'
import type { DiskPool } from '../disk/index.ts'
import { networkSysctls, type HostTraits } from '../oci/container-config.ts'
import { OciRuntimeError } from '../oci/oci-runtime.ts'
import type { ProcessIdentity } from '../process.ts'
import { criuConfigFile, criuOptions, type CriuHost, limitsRestored, masksRestored } from './dump.ts'
import { holdConnections, linkImages, type ImageOwner } from './image-files.ts'
import { lazyProcessesFile } from './lazy-pages.ts'
import { faultIn, faultOf } from './reason.ts'

const restoreTimeoutMs = 120_000
/** The MTU of the loopback of a new network namespace, and another one. IPv4 takes both 65 535 and more for 65 535. */
const loopbackMtu = 65_536
const otherMtu = 65_534
/** The image with the features of the processor at the dump. CRIU writes none on ARM64. */
const processorFile = 'cpuinfo.img'
const fittingMax = 256

/** The mark of packets that CRIU itself sends (`SOCCR_MARK` of its soccr/soccr.h). */
const criuMark = '0xc114'
const heldTable = 'restore'
const holdPackets = `nft -f - <<END
table inet ${heldTable} {
  chain output {
    type filter hook output priority -300; policy drop;
    meta mark ${criuMark} accept
  }
  chain input {
    type filter hook input priority -300; policy drop;
    meta mark ${criuMark} accept
  }
}
END
`

/** Contents of processor files that fit this machine, whose processor does not change before a reboot. */
const fitting = new Set<string>()

interface RestoreHost extends CriuHost {
  pool: DiskPool
  traits: HostTraits
}

/** What the processes of a fork find when they go on (`host/fork-hooks.ts`). */
export interface ForkSign {
  hostTool: string
  /** For `/run/atoll/fork-generation`. */
  generation: string
  /** If the sandbox has this folder, its processes wait until the programs in it have run. */
  hooksDir: string
  /** Folders of its control group. */
  groups: readonly string[]
}

export interface StagedMemory {
  /** Folder of the images, and the file to make when the processes go on (`host/fence.ts`). Both relative to the pool. */
  folder: string
  fence: string
  /** The address that its connections were made from. */
  address: string
  /** For processes of another sandbox, or of another time; undefined in a wake. */
  fork: ForkSign | undefined
  /** The `cgroup.procs` files of the groups that a lazy-pages daemon joins; empty where memory comes at once. */
  lazyMembers: readonly string[]
}

/** The folder of the images that one restore uses. */
export function runImagesOf(sandboxId: string): string {
  return `memory/runs/${sandboxId}`
}

/** Prepares images of saved memory for the sandbox of an existing bundle. */
export async function stageImages(host: RestoreHost, owner: ImageOwner, memory: StagedMemory): Promise<void> {
  const { names, hostd, pool, traits } = host
  const images = pool.path(runImagesOf(owner.id))
  const imageNames = await linkImages(hostd, pool.path(memory.folder), images, owner)
  const script = `${images}/action`
  const sysctls = networkSysctls(traits.ipv6, owner.rangeStart)
  const stages = [
    fencing(pool.path(memory.fence), memory.fork, owner.rangeStart),
    holding(memory.fork),
    networking(memory, sysctls, holdConnections(imageNames)),
  ]
  await writeFile(script, ['#!/bin/sh', ...stages].join('\n'), { mode: 0o700 })
  // Without this root CRIU on version 2 restores into the control group of the dump, and the fork runs within the source's limits.
  const masks = masksRestored(names.emptyDir)
  const limits = limitsRestored(names.limitsDir(owner.id))
  const options = [...criuOptions, ...masks, limits, `cgroup-root ${names.cgroup(owner.id)}`, `action-script ${script}`]
  // Replaces the profile of another version or another host. A process without a profile keeps none.
  if (traits.apparmorProfile !== undefined) options.push(`lsm-profile apparmor:${traits.apparmorProfile}`)
  await withinRun(writeFile(criuConfigFile(names, owner.id), `${options.join('\n')}\n`))
}

/**
 * Checks that this processor has all instructions of the one at the dump: programs look once for what the processor has, and go on using
 * it. Throws `full_checkpoint_unavailable`.
 */
export async function assertProcessorFits(run: Run, criu: string, images: string): Promise<void> {
  const wanted = await readFile(`${images}/${processorFile}`, 'base64').catch(() => undefined)
  if (wanted === undefined || fitting.has(wanted)) return
  try {
    await run([criu, 'cpuinfo', 'check', '--images-dir', images, '--work-dir', images, '--cpu-cap=ins'])
  } catch (error) {
    if (!(error instanceof CommandError) || error.exitCode === undefined) throw error
    const { reason } = faultIn(error.stderr, [images])
    const message = `the memory cannot be restored on this machine: ${reason}`
    throw new ServiceError('full_checkpoint_unavailable', message, { cause: error })
  }
  if (fitting.size >= fittingMax) fitting.clear()
  fitting.add(wanted)
}

/**
 * Restores the processes of staged images into a prepared bundle and returns the first of them. All run by then, without a network; with
 * `lazy` a waiting daemon serves pages that they have not touched yet. Throws `conflict` when the memory exceeds the limit,
 * `memory_not_restorable` when CRIU refuses the images, otherwise `full_checkpoint_unavailable`, each with the reason.
 */
export async function restoreContainer(
  { names, hostd, pool, runtime }: RestoreHost,
  criu: string,
  id: string,
  lazy: boolean,
): Promise<ProcessIdentity> {
  const images = pool.path(runImagesOf(id))
  const options = { criu, images, lazyPages: lazy, timeoutMs: restoreTimeoutMs }
  return runtime.restore(id, names.sandboxDir(id), options).catch(async (cause: unknown) => {
    await endCriu(hostd, [images])
    const { reason, killed, mayPass } = await faultOf(`${images}/restore.log`, [names.runDir, names.dataDir])
    // After a timeout CRIU's log says only that CRIU was ended.
    const isTimeout = cause instanceof OciRuntimeError && cause.isTimeout
    if (killed && !isTimeout)
      throw new ServiceError('conflict', 'the saved memory does not fit into memoryMB', { cause })
    const reported = isTimeout ? `it took longer than ${restoreTimeoutMs / 1000} s` : reason
    const code = isTimeout || mayPass ? 'full_checkpoint_unavailable' : 'memory_not_restorable'
    throw new ServiceError(code, `the memory cannot be restored: ${reported}`, { cause })
  })
}

/*
 * Parts of the script that CRIU calls at each stage. CRIU aborts when the script fails at `setup-namespaces` or at `post-restore`, the last
 * stage at which it can. No value comes from the sandbox.
 */

/**
 * `post-restore`: all processes exist and none has gone on. Writes the generation of a fork, so that watches inside see the change, and
 * makes the `fence`. Where the sandbox has made the write impossible it goes on without; the server tries again, and logs why.
 */
function fencing(fence: string, fork: ForkSign | undefined, owner: number): string {
  const write = fork && [
    `  read -r stat <"/proc/$CRTOOLS_INIT_PID/stat"`,
    // The name of the program, in brackets, may hold anything (proc_pid_stat(5)).
    '  set -- ${stat##*)}',
    `  ${writeGeneration(fork, owner)} || :`,
  ]
  return [
    '[ "$CRTOOLS_SCRIPT_ACTION" != post-restore ] || {',
    ...(write ?? []),
    `  exec >'${fence}'`,
    '  exit',
    '}',
  ].join('\n')
}

/** `${20}` is the start tick of the process. */
function writeGeneration({ hostTool, generation }: ForkSign, owner: number): string {
  const process = { pid: 0, startTicks: 0 }
  const request = { op: 'write-fork-generation', process, owner, value: generation } as const
  return shellCommand(hostTool, request, { pid: '$CRTOOLS_INIT_PID', startTicks: '${20}' })
}

/** `pre-resume`: all processes of a fork but the guest wait for the hooks, which the guest runs. */
function holding(fork: ForkSign | undefined): string {
  if (fork === undefined) return ''
  const request = { op: 'hold-back', first: 0, hooks: fork.hooksDir, groups: fork.groups } as const
  const hold = `exec ${shellCommand(fork.hostTool, request, { first: '$CRTOOLS_INIT_PID' })}`
  return `[ "$CRTOOLS_SCRIPT_ACTION" != pre-resume ] || ${hold}`
}

/**
 * `setup-namespaces`: gives the new network namespace the settings under which sockets were opened, and the address from which connections
 * were made, on the loopback alone, so that no packet of theirs leaves the namespace. A lazy-pages daemon joins the control group, in which
 * CRIU is by now: the sandbox pays for the daemon's work.
 *
 * With `connected` no packet leaves a socket before all of them exist (`network-unlock`): CRIU releases a socket to send what had not been sent yet,
 * and a packet to a peer that does not exist yet would be answered with a reset. Packets of CRIU itself, which bear its mark, pass. A
 * namespace that stays shut would be worse than no sandbox, and CRIU ignores a failure at `network-unlock`.
 *
 * A restored connection sends segments of 524 bytes, since CRIU tells the kernel only afterwards what the peer takes, until the MTU of its route
 * changes. So the loopback gets its own MTU last.
 */
function networking(
  { address, lazyMembers }: StagedMemory,
  sysctls: ReturnType<typeof networkSysctls>,
  connected: boolean,
): string {
  const settings = Object.entries(sysctls).map(
    ([name, value]) => `echo ${value} > /proc/sys/${name.replaceAll('.', '/')}`,
  )
  const unlock = `[ "$CRTOOLS_SCRIPT_ACTION" != network-unlock ] || {
  nsenter --net="/proc/$CRTOOLS_INIT_PID/ns/net" sh -c '
ip link set lo mtu ${loopbackMtu}
nft delete table inet ${heldTable}
' || kill -9 "$CRTOOLS_INIT_PID"
  exit
}
`
  return `${connected ? unlock : ''}[ "$CRTOOLS_SCRIPT_ACTION" = setup-namespaces ] || exit 0
${lazyMembers.length > 0 ? joinScript(lazyMembers) : ''}exec nsenter --net="/proc/$CRTOOLS_INIT_PID/ns/net" sh -ec '
${settings.join('\n')}
ip -batch - <<END
link set lo ${connected ? `mtu ${otherMtu} ` : ''}up
address add ${address}/32 dev lo
route add default dev lo
END
${connected ? holdPackets : ''}'
`
}

/** CRIU calls the script in the folder of the images. */
function joinScript(members: readonly string[]): string {
  const files = members.map((path) => `'${path}'`).join(' ')
  return `{ read -r watcher; read -r daemon rest; } <${lazyProcessesFile} || exit
for members in ${files}; do [ ! -e "$members" ] || echo "$daemon" >"$members" || exit; done
`
}
