import { randomBytes, randomUUID } from 'node:crypto'
import { mkdir, readdir, readFile, realpath, rm, writeFile } from 'node:fs/promises'
import { networkInterfaces } from 'node:os'
import { join } from 'node:path'
import { lockName } from '../../lib/process-lock.ts'
import type { RuntimeDriver } from '../../sandbox/ports/runtime-driver.ts'
import type { Guest } from '../../sandbox/ports/guest.ts'
import { exists } from '../exists.ts'
import { createGuest } from '../guest-client/index.ts'
import { Subnet } from '../network/index.ts'
import { Cgroups } from '../cgroups/index.ts'
import { deviceOf } from '../disk/index.ts'
import { createOciDriver } from './driver.ts'
import { createRunc, runcState } from '../oci/runc.ts'
import { HostNames } from '../host-names.ts'
import { recordedIds } from './records.ts'
import { fails, missing, oneLine, runSetup, works } from '../self-test.ts'
import type { CheckReport, CheckResult, DoctorOptions } from '../self-test.ts'
import { confinementAdvice } from '../oci/confinement.ts'
import { tryNetwork } from '../network/trial.ts'

const forwardingFile = '/proc/sys/net/ipv4/ip_forward'
const trialFolder = '.atoll-doctor'
/** The data of a driver. */
const ownEntries = /^(pool\.img(\.new)?|sandboxes|checkpoints|quarantine)$/
const mebibyte = 1024 * 1024
const waitMs = 30_000
const poolBytes = 1024 * mebibyte
const sizes = { image: 'base', cpuCount: 1, memoryMb: 256, diskMb: 256 } as const
/** Far above what is tried. */
const diskRates = { readBytes: 1024 ** 3, writeBytes: 1024 ** 3, reads: 100_000, writes: 100_000 }
const directBytes = 4 * mebibyte
/** Must survive a fork and a hibernation. */
const witness = { id: 'witness', argv: ['/bin/sleep', '3600'], envs: {} }

/** The state that the attempts share. */
interface Trial {
  driver: RuntimeDriver
  names: HostNames
  leaveHostFirewall: boolean
  /** Ids of the sandbox that is started, of its checkpoint, and of the fork. */
  source: string
  checkpoint: string
  fork: string
}

interface Attempt {
  name: string
  required: boolean
  run: (trial: Trial) => Promise<CheckResult>
}

/** Each needs the required ones before it. */
const attempts: readonly Attempt[] = [
  { name: 'start', required: true, run: tryStart },
  {
    name: 'network',
    required: false,
    run: ({ driver, names, leaveHostFirewall, source }) =>
      tryNetwork({ hash: names.hash, leaveHostFirewall }, driver, guestOf(driver, source)),
  },
  { name: 'own sizes', required: false, run: tryOwnSizes },
  { name: 'disk rates', required: false, run: tryDiskRates },
  { name: 'fork', required: true, run: tryFork },
  { name: 'wake', required: true, run: tryWake },
]

/**
 * Starts, forks, hibernates and wakes a sandbox with the driver that the server uses, on data of its own, and yields a row for
 * each. The path of the data is fixed, so that the next trial removes what a killed one left, as a server's start does.
 */
export async function* tryDriver(options: DoctorOptions): AsyncGenerator<CheckReport> {
  const prepared = await prepare(options).catch(oneLine)
  if (typeof prepared === 'string') {
    yield { name: 'start', required: true, ...fails(prepared) }
    return
  }
  await using trial = prepared
  let broken: string | undefined
  for (const { name, required, run } of attempts) {
    const result =
      broken === undefined ? await outcomeOf(() => run(trial)) : missing(`not tried, since the ${broken} failed`)
    if (result.state !== 'works' && required) broken ??= name
    yield { name, required, ...result }
  }
}

/** Throws while another trial runs, or when the data cannot be made. */
async function prepare({ imageDir, ...given }: DoctorOptions): Promise<Trial & AsyncDisposable> {
  await using made = new AsyncDisposableStack()
  const dataDir = await trialDir(given.dataDir)
  const { leaveHostFirewall = false } = given
  const names = new HostNames(dataDir)
  const lock = await lockName(`atoll-doctor-${names.hash}`)
  if (lock === undefined) throw new Error('another doctor is at its trial')
  made.use(lock)
  made.defer(await saveForwarding())
  // Keep the data while something is mounted or runs: the next trial finds it by the data.
  made.defer(async () => {
    if (!(await exists(names.runDir))) await rm(dataDir, { recursive: true, force: true })
  })
  const folders = { dataDir, imageDir, diskPoolBytes: poolBytes, diskRates }
  const options = { ...folders, subnet: freeSubnet(), leaveHostFirewall, lazyMemoryBytesMin: 0 }
  const driver = createOciDriver({ runtime: createRunc, ...options, mayQuarantineMany: true })
  const ids = { source: freshId('sb'), checkpoint: freshId('cp'), fork: freshId('sb') }
  const trial = { driver, names, leaveHostFirewall, ...ids }
  made.defer(() => end(trial))
  const release = made.move()
  return { ...trial, [Symbol.asyncDispose]: () => release.disposeAsync() }
}

/** Below the data directory, or in /var/lib without one. All its content must be a trial's, since it is removed. */
async function trialDir(dataDir: string): Promise<string> {
  const folder = (await exists(dataDir)) ? join(await realpath(dataDir), trialFolder) : join('/var/lib', trialFolder)
  await mkdir(folder, { recursive: true, mode: 0o700 })
  const foreign = (await readdir(folder)).filter((name) => !ownEntries.test(name))
  if (foreign.length > 0) throw new Error(`${folder} holds what is not of a trial: ${foreign[0]}`)
  return folder
}

async function tryStart({ driver, names, source }: Trial): Promise<CheckResult> {
  // Everything in it is of a killed trial.
  const abandoned = {
    sandboxIds: await recordedIds(`${names.dataDir}/sandboxes`),
    checkpointIds: await recordedIds(`${names.dataDir}/checkpoints`),
  }
  await driver.open({ sandboxIds: [], checkpointIds: [], abandoned })
  const startedAt = performance.now()
  await driver.create({ id: source, ...sizes })
  const tookMs = Math.round(performance.now() - startedAt)
  await assertOwnGroup(driver, names, source)
  await guestOf(driver, source).spawn(witness)
  return works(`a sandbox started in ${tookMs} ms, in a control group of its own`)
}

/** By lxcfs. */
async function tryOwnSizes({ driver, source }: Trial): Promise<CheckResult> {
  const text = await printed(guestOf(driver, source), 'cat /proc/meminfo')
  const kibibytes = Number(/^MemTotal: +(\d+) kB$/m.exec(text)?.[1])
  if (kibibytes === sizes.memoryMb * 1024) return works(`a sandbox sees its ${sizes.memoryMb} MB of memory`)
  return missing(`a sandbox sees the ${Math.round(kibibytes / 1024)} MB of this machine as its memory`, runSetup)
}

/** Whether the kernel has the rates of a sandbox, for the device to which it charges what the sandbox writes. */
async function tryDiskRates({ driver, names, source }: Trial): Promise<CheckResult> {
  const cgroups = await Cgroups.find()
  const group = names.cgroup(source)
  const device = await deviceOf(names.poolDir)
  const inForce = device === undefined ? undefined : cgroups.diskRates(group, device)
  if (device === undefined || inForce?.writeBytes !== diskRates.writeBytes) {
    const advice =
      'needs the controller io (version 2 of control groups) or blkio (version 1), with throttling in the kernel'
    return missing('sandboxes read and write the disk as fast as it goes', advice)
  }
  const before = cgroups.diskBytes(group, device) ?? 0
  const count = directBytes / mebibyte
  await printed(
    guestOf(driver, source),
    `dd if=/dev/zero of=/root/direct bs=1M count=${count} oflag=direct; rm /root/direct`,
  )
  const charged = (cgroups.diskBytes(group, device) ?? 0) - before
  if (charged < directBytes) return fails(`of ${directBytes} bytes that a sandbox wrote ${charged} count for its rates`)
  if (cgroups.chargesWriteback(group)) return works('reads and writes of a sandbox have a bound')
  return works(
    'reads and direct writes of a sandbox have a bound; what the kernel writes for it later has none (version 1 of control groups)',
  )
}

async function tryFork({ driver, names, source, checkpoint, fork }: Trial): Promise<CheckResult> {
  const { fullCheckpoints, fullCheckpointsReason = '' } = driver.capabilities
  await driver.checkpoint(source, checkpoint, fullCheckpoints ? 'full' : 'disk_only')
  await driver.create({ id: fork, ...sizes, from: { checkpointId: checkpoint } })
  // The fork must not need its source.
  await driver.delete(source)
  await assertOwnGroup(driver, names, fork)
  if (!fullCheckpoints) return works(`of the disk alone: ${fullCheckpointsReason}`)
  await assertWitness(driver, fork)
  return works('its processes go on in a control group of their own, also without the source')
}

async function tryWake({ driver, names, fork }: Trial): Promise<CheckResult> {
  await driver.hibernate(fork)
  await driver.wake({ id: fork, ...sizes })
  await assertOwnGroup(driver, names, fork)
  if (!driver.capabilities.fullCheckpoints) return works('on the disk alone, without its processes')
  await assertWitness(driver, fork)
  return works('its processes go on after a hibernation')
}

/** Processes and limit must be the sandbox's own, or a limit or a freeze of one hits another. */
async function assertOwnGroup(driver: RuntimeDriver, names: HostNames, id: string): Promise<void> {
  const process = runcState(`${names.runDir}/runc`, id)
  const members = await (await Cgroups.find()).members(names.cgroup(id))
  if (process === undefined || !members.includes(process.pid)) {
    throw new Error(`the processes of a sandbox are not in its control group ${names.cgroup(id)}`)
  }
  const limitBytes = await memoryLimitBytes(guestOf(driver, id))
  if (limitBytes !== sizes.memoryMb * mebibyte) throw new Error(`a sandbox has a memory limit of ${limitBytes} bytes`)
}

/** The limit that the sandbox sees, in version 2 or 1 of control groups. */
async function memoryLimitBytes(guest: Guest): Promise<number> {
  return Number(
    await printed(guest, 'cd /sys/fs/cgroup; cat memory.max 2>/dev/null || cat memory/memory.limit_in_bytes'),
  )
}

/** What a script writes in the sandbox. */
async function printed(guest: Guest, script: string): Promise<string> {
  const id = randomUUID()
  await guest.spawn({ id, argv: ['/bin/sh', '-c', script], envs: {} })
  await guest.process(id, waitMs)
  const { stdout } = await guest.output(id)
  await guest.release(id)
  return stdout.toString()
}

async function assertWitness(driver: RuntimeDriver, id: string): Promise<void> {
  const { running } = await guestOf(driver, id).process(witness.id)
  if (!running) throw new Error('a process that ran in the checkpoint does not run on')
}

async function outcomeOf(attempt: () => Promise<CheckResult>): Promise<CheckResult> {
  try {
    return await attempt()
  } catch (error) {
    const found = oneLine(error)
    return fails(found, found.includes(runSetup) ? undefined : await confinementAdvice())
  }
}

/** Deletes what the trial made. The next trial removes what stays. */
async function end({ driver, source, fork, checkpoint }: Trial): Promise<void> {
  try {
    await driver.delete(source)
    await driver.delete(fork)
    await driver.deleteCheckpoint(checkpoint)
  } catch {
    // The driver was never opened, or its row reports the failure.
  }
  await driver.close().catch(() => undefined)
}

/** Reads what a driver switches on for the whole host. The returned function switches it back unless a server needs it. */
async function saveForwarding(): Promise<() => Promise<void>> {
  const before = await readFile(forwardingFile, 'utf8')
  return async () => {
    const gateways = (await readdir('/sys/class/net')).filter((name) => /^atl[0-9a-f]{8}$/.test(name))
    if (before.trim() === '0' && gateways.length === 0) await writeFile(forwardingFile, before)
  }
}

/** The smallest kind of subnet, one that meets no address of this machine. */
function freeSubnet(): string {
  const taken = Object.values(networkInterfaces()).flatMap((infos = []) => infos.flatMap(({ cidr }) => cidr ?? []))
  for (let third = 255; third >= 0; third -= 1) {
    const subnet = new Subnet(`10.254.${third}.240/28`)
    if (!taken.some((address) => subnet.meets(address))) return subnet.cidr
  }
  // All of 10.254.0.0/16 is taken; the error of the driver names the link.
  return '10.254.255.240/28'
}

function guestOf(driver: RuntimeDriver, sandboxId: string): Guest {
  return createGuest((signal) => driver.dial(sandboxId, signal))
}

function freshId(prefix: 'sb' | 'cp'): string {
  return `${prefix}-doctor-${randomBytes(4).toString('hex')}`
}
