import { createHash } from 'node:crypto'
import { chmod, chown, mkdir, writeFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import type { SandboxSpec } from '../../sandbox/ports/runtime-driver.ts'
import { allDone, withinRun } from '../cleanup.ts'
import { diskOf, layerOf } from '../disk/index.ts'
import { HostdError } from '../hostd/index.ts'
import type { HostNames } from '../host-names.ts'
import { gatewayName, type Subnet } from '../network/index.ts'
import { loadProfile } from '../oci/apparmor.ts'
import { containerConfig, idsPerSandbox } from '../oci/container-config.ts'
import type { LimitFiles } from './limit-files.ts'
import type { Machine } from './machine.ts'
import type { SandboxRecord } from './records.ts'
import { mountVolumes } from './volumes.ts'

const guestDirBytes = 65_536
const guestDirInodes = 64
/** Fixed lengths of these files in any subnet: CRIU restores a process that has one open only if the length is the same. */
const [hostsBytes, resolvConfBytes] = [256, 64]
const busyTimeoutMs = 1_000
const busyPollMs = 10

type DisksHost = Pick<Machine, 'pool' | 'templates'>

/** The disk of a new sandbox: an empty upper layer, without a limit yet. Overlay wants its work folder on the same file system. */
export async function makeDisk({ pool, templates }: DisksHost, record: SandboxRecord): Promise<void> {
  const disk = diskOf(record)
  const above = record.layers[0]?.inodeEnd
  await pool.createSubvolume(disk, above === undefined ? undefined : await templates.above(above))
  const upper = pool.path(`${disk}/upper`)
  await Promise.all([mkdir(upper, { mode: 0o755 }), mkdir(pool.path(`${disk}/work`), { mode: 0o700 })])
  await chmod(upper, 0o755)
  await chown(upper, record.rangeStart, record.rangeStart)
}

/** What a bundle is made with. */
export interface BundleHost extends Pick<
  Machine,
  'names' | 'images' | 'network' | 'traits' | 'hostd' | 'cgroups' | 'lxcfs' | 'pool'
> {
  limitFiles: LimitFiles
}

/** Makes the folder in `/run` from which the runtime starts the sandbox. `diskBytes`: what its disk holds, if known. */
export async function makeBundle(
  host: BundleHost,
  record: SandboxRecord,
  spec: SandboxSpec,
  diskBytes = 0,
): Promise<void> {
  if (host.traits.apparmorProfile !== undefined) await loadProfile(host.hostd.run)
  await withinRun(writeBundle(host, record, spec, diskBytes))
}

async function writeBundle(
  host: BundleHost,
  record: SandboxRecord,
  spec: SandboxSpec,
  diskBytes: number,
): Promise<void> {
  const { names, images, network, traits, hostd, cgroups, lxcfs, limitFiles } = host
  const programs = await images.programs(record)
  const folder = names.sandboxDir(record.id)
  await mkdir(folder, { mode: 0o710 })
  // runc looks up the root as the root user of the sandbox; no other id may enter.
  await chown(folder, 0, record.rangeStart)
  await Promise.all(['root', 'run', 'etc'].map((name) => mkdir(`${folder}/${name}`, { mode: 0o755 })))
  const { volumes = [] } = spec
  for (const { id } of volumes) await mkdir(names.volumeDir(record.id, id), { mode: 0o755, recursive: true })
  const shown = await lxcfs.sourceFor(record.id)
  const etc = etcFiles(record, network.subnet)
  const processors = cgroups.processors?.choose(names.cgroup(record.id), spec.cpuCount)
  const config = containerConfig(record, spec, { names, programs, traits, shown, processors })
  await allDone([
    hostd.runTool({ op: 'make-source', dir: `${folder}/etc` }),
    writeFile(`${folder}/config.json`, JSON.stringify(config), { mode: 0o600 }),
    // The file must exist from the first start on; each dump and restore writes its options.
    writeFile(`${folder}/criu.conf`, '', { mode: 0o600 }),
    ...Object.entries(etc).map(([name, text]) => writeFile(`${folder}/etc/${name}`, text, { mode: 0o444 })),
    mountVolumes(host, record, volumes),
    limitFiles.make(spec, diskBytes),
    hostd.runTool({
      op: 'mount-tmpfs',
      target: `${folder}/run`,
      bytes: guestDirBytes,
      inodes: guestDirInodes,
      owner: record.rangeStart,
    }),
  ])
}

/** Closes the folder once the guest has bound its socket, so that no id of the sandbox can replace the socket. */
export async function closeGuestDir(names: HostNames, sandboxId: string): Promise<void> {
  await chown(names.guestDir(sandboxId), 0, 0)
}

/** A process outside the sandbox holds an earlier root mount of its disk. */
export class DiskBusy extends Error {}

/** Mounts the root: the disk, which must exist, over its layers over the base, all in the sandbox's id range. Throws `DiskBusy`. */
export async function mountRoot(
  { names, pool, images, hostd }: Pick<BundleHost, 'names' | 'pool' | 'images' | 'hostd'>,
  record: SandboxRecord,
): Promise<void> {
  const layers = record.layers.map((layer) => ({
    start: layer.rangeStart,
    path: pool.path(`${layerOf(layer.checkpointId)}/upper`),
  }))
  const request = {
    op: 'mount-overlay',
    target: `${names.sandboxDir(record.id)}/root`,
    upper: pool.path(`${diskOf(record)}/upper`),
    work: pool.path(`${diskOf(record)}/work`),
    range: { start: record.rangeStart, count: idsPerSandbox },
    layers: [...layers, { start: 0, path: images.pathOf(record.base, 'base') }],
    hide: names.sandboxesDir,
  } as const
  for (const until = Date.now() + busyTimeoutMs; ;) {
    try {
      await hostd.runTool(request)
      return
    } catch (error) {
      if (!(error instanceof HostdError) || error.code !== 'busy') throw error
      // The unmounted root of the last run exists until its last user releases it. On a busy host an ended process does so a moment
      // later.
      if (Date.now() >= until) throw new DiskBusy('the disk is in use', { cause: error })
    }
    await sleep(busyPollMs)
  }
}

/** Files that differ from sandbox to sandbox. They are mounted read-only, never written through a hostile root. */
function etcFiles(record: SandboxRecord, subnet: Subnet): Record<string, string> {
  return {
    // `localhost` is IPv4 alone, so that all servers that bind it are at the same address.
    hosts: [
      '127.0.0.1 localhost',
      '::1 ip6-localhost ip6-loopback',
      `${subnet.address(record.slot)} ${record.id}`,
      `${subnet.gatewayAddress} ${gatewayName}`,
      '',
    ]
      .join('\n')
      .padEnd(hostsBytes, '\n'),
    hostname: `${record.id}\n`,
    'resolv.conf': `nameserver ${subnet.gatewayAddress}\n`.padEnd(resolvConfBytes, '\n'),
    'machine-id': `${createHash('sha256').update(`machine ${record.id} ${record.rangeStart}`).digest('hex').slice(0, 32)}\n`,
  }
}
