import assert from 'node:assert/strict'
import { execFile, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, realpathSync, writeFileSync } from 'node:fs'
import {
  chown,
  mkdir,
  readdir,
  readFile,
  readlink,
  rename,
  rm,
  stat,
  statfs,
  truncate,
  writeFile,
} from 'node:fs/promises'
import { createServer, type AddressInfo, type Server } from 'node:net'
import { networkInterfaces, tmpdir } from 'node:os'
import { after, before } from 'node:test'
import { promisify } from 'node:util'
import { createGuest } from '../../src/runtime/guest-client/index.ts'
import { createOciDriver, ociRuntimes, quarantinedIn } from '../../src/runtime/index.ts'
import type { OciDriverOptions } from '../../src/runtime/host/context.ts'
import type { Guest } from '../../src/sandbox/ports/guest.ts'
import type { KnownResources, ReconcileReport, RuntimeDriver } from '../../src/sandbox/ports/runtime-driver.ts'
import type { CreateOciRuntime } from '../../src/runtime/oci/oci-runtime.ts'
import { Cgroups } from '../../src/runtime/cgroups/index.ts'
import { HostNames } from '../../src/runtime/host-names.ts'
import { recordedIds, type SavedMemory } from '../../src/runtime/host/records.ts'
import { hostTool } from '../../src/runtime/host/testing/host-tool.ts'
import { connectionsClosed } from '../../src/runtime/criu/dump.ts'
import { end as endProcess } from '../../src/runtime/process.ts'
import { imageDir } from '../support/images.ts'
import { knowing } from './driver-known.ts'
import { slowness } from './driver-shell.ts'
import type { DriverFixture } from './driver.ts'
import { claimSubnet } from './subnets.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

const runFile = promisify(execFile)
/** Kept in the metadata, as short files are. */
const small = Buffer.alloc(2000)
const fillStepBytesMax = 1024 ** 3
const fillRoundsMax = 20
const fillStepBytesMin = 64 * 1024 ** 2
const poolBytes = 4 * 1024 ** 3
const draftWaitMs = 30_000
/** What a driver starts for a moment, whatever it is asked for: a look at lxcfs, a flush, sharing, a balance, a reserve. */
const backgroundProgram = /^process (?:\S*\/)?(?:head --bytes|btrfs (?:filesystem|balance)|atoll-hostd perform) /
/** Sooner than in earnest, so that tests see it, and all the more for those that load a sandbox or freeze it. */
const livenessTimes = {
  intervalMs: 1_000,
  answerMs: 5_000 * slowness,
  pauseMs: 500,
  silenceMs: 15_000 * slowness,
  probesMin: 3,
}
/** First id that may belong to a sandbox. */
const sandboxIdMin = 1_000_000_000

type DriverChanges = Pick<OciDriverOptions, 'mayQuarantineMany' | 'log' | 'diskRates' | 'egress'>

export interface RuncFixture extends DriverFixture {
  makeDriver(more?: DriverChanges): RuntimeDriver
  names: HostNames
  subnet: string
  pidOf(sandboxId: string): Promise<number>
  /** The processes in the control group of a sandbox, by their numbers on the host. */
  membersOf(sandboxId: string): Promise<number[]>
}

interface RuncFixtureOptions {
  runtime: CreateOciRuntime
  subnet: string
  imageDir: string
  /** The driver's; absent for its default. */
  lazyMemoryBytesMin: number
  diskRates: NonNullable<OciDriverOptions['diskRates']>
  registries: NonNullable<OciDriverOptions['registries']>
  imageLimits: NonNullable<OciDriverOptions['imageLimits']>
}

export async function makeRuncFixture(given: Partial<RuncFixtureOptions> = {}): Promise<RuncFixture> {
  const dataDir = realpathSync(mkdtempSync(`${tmpdir()}/atoll-driver-`))
  const names = new HostNames(dataDir)
  const claimed = await claimSubnet()
  const options = { imageDir, subnet: claimed.cidr, runtime: ociRuntimes.runc, ...given, dataDir }
  const runtime = options.runtime({ runDir: names.runDir, sandboxesDir: names.sandboxesDir, dataDir, hostd: hostTool })
  const makeDriver: RuncFixture['makeDriver'] = (more) =>
    createOciDriver({ ...options, ...more, diskPoolBytes: poolBytes, livenessTimes })
  const tcp = createServer((connection) => connection.destroy())
  const hostSocket = { path: `${dataDir}/host.sock`, connections: 0 }
  const unix = createServer((connection) => {
    hostSocket.connections += 1
    connection.destroy()
  })
  await listen(tcp, { port: 0, host: '0.0.0.0' })
  await listen(unix, { path: hostSocket.path })
  const { port } = tcp.address() as AddressInfo
  const pidOf = async (sandboxId: string) => {
    const init = await runtime.state(sandboxId)
    return init?.pid ?? assert.fail(`${sandboxId} was never started`)
  }
  return {
    names,
    subnet: options.subnet,
    pidOf,
    membersOf: async (sandboxId) => (await Cgroups.find()).members(names.cgroup(sandboxId)),
    makeDriver,
    recorded: async () => ({
      sandboxIds: await recordedIds(`${dataDir}/sandboxes`),
      checkpointIds: await recordedIds(`${dataDir}/checkpoints`),
    }),
    spoilRecord: async (id) => {
      const file = `${dataDir}/sandboxes/${id}.json`
      const text = await readFile(file, 'utf8')
      await truncate(file, text.length - 1)
      return async () => {
        const item = (await quarantinedIn(dataDir)).find((found) => found.id === id)
        await writeFile(item?.file ?? file, text)
      }
    },
    guest: (driver, sandboxId) =>
      createGuest((signal) => driver.dial(sandboxId, signal), {
        connect: async (to, signal) => driver.connect?.(sandboxId, to, signal),
      }),
    trace: async () => {
      // A record that says what has been flushed may be on its way, and so may the link of a deleted sandbox; a draft that nobody
      // writes on and a link that nobody removes stay, and show.
      let lines: string[] = []
      await eventually(
        async () => {
          lines = await traceOf(names)
          // A program that the driver starts bears the name of hostd until it runs, and in the background it starts some for a moment.
          const isOnItsWay =
            new Set(lines).size < lines.length ||
            lines.some((line) => line.endsWith('.json.new') || backgroundProgram.test(line))
          return !isOnItsWay && (await haveOwners(names, lines))
        },
        { timeoutMs: draftWaitMs },
      ).catch(() => undefined)
      return lines
    },
    memoryOf: async (id) => (await recordOf(names, id)).record.memory,
    changeMemory: async (id, change) => {
      const { file, record } = await recordOf(names, id)
      await writeFile(file, JSON.stringify({ ...record, memory: { ...record.memory, ...change } }))
    },
    otherProcessor: async (id) => {
      const image = await imageOf(names, id, 'cpuinfo.img')
      const content = await readFile(image).catch(() => undefined)
      if (content === undefined) return undefined
      await writeFile(image, withAllInstructions(content))
      return () => writeFile(image, content)
    },
    forgetProcessor: async (id) => {
      const { file, record } = await recordOf(names, id)
      const image = await imageOf(names, id, 'cpuinfo.img')
      const { size } = await stat(image)
      await rm(image)
      const memory = { ...record.memory, bytes: (record.memory?.bytes ?? 0) - size }
      await writeFile(file, JSON.stringify({ ...record, memory }))
    },
    spoilMemory: async (id) => {
      const image = await imageOf(names, id)
      await rename(image, `${image}.gone`)
      return () => rename(`${image}.gone`, image)
    },
    garbleMemory: async (id) => {
      const image = await imageOf(names, id)
      const content = await readFile(image)
      await writeFile(image, Buffer.alloc(content.length, 0xff))
      return () => writeFile(image, content)
    },
    fillDisk: async () => {
      const folder = `${names.poolDir}/filler`
      const freeBytes = async () => {
        const { bavail, bsize } = await statfs(names.poolDir)
        return bavail * bsize
      }
      // What earlier tests have removed would come back as room later.
      const settled = async () => {
        await runFile('btrfs', ['subvolume', 'sync', names.poolDir])
        await runFile('btrfs', ['filesystem', 'sync', names.poolDir])
      }
      await settled()
      const freeBefore = await freeBytes()
      await mkdir(folder)
      // More metadata than the chunk of a new file system holds, or data would take the room of the next one for good.
      for (let file = 0; file < 8000; file += 1) writeFileSync(`${folder}/small-${file}`, small)
      let fillers = 0
      const fill = async () => {
        const earlier = fillers
        for (let bytes = fillStepBytesMax; bytes >= fillStepBytesMin;) {
          try {
            await runFile('fallocate', ['--length', String(bytes), `${folder}/${fillers}`])
            fillers += 1
          } catch {
            bytes /= 2
          }
        }
        return fillers > earlier
      }
      // While much is on its way to the disk, the file system refuses more than it has to, and what the driver removes in the
      // background gives room.
      for (let round = 0; (await fill()) && round < fillRoundsMax; round += 1) await settled()
      return async () => {
        await rm(folder, { recursive: true })
        // What was removed holds room until it is gone, and metadata is short of it longest.
        await settled()
        // The file system gives it back in its own time, later on a machine that has much else to do.
        await eventually(async () => (await freeBytes()) > freeBefore / 2)
      }
    },
    crash: async (sandboxId) => {
      await endProcess((await runtime.state(sandboxId)) ?? assert.fail(`${sandboxId} was never started`))
    },
    giveSocketFolder: async (sandboxId) => {
      const { uid, gid } = await stat(names.guestSocket(sandboxId))
      await chown(names.guestDir(sandboxId), uid, gid)
    },
    hang: async (sandboxId) => {
      const pid = await pidOf(sandboxId)
      // What it had not noticed would keep its memory from being saved.
      await connectionsClosed(hostTool, pid)
      process.kill(pid, 'SIGSTOP')
    },
    forbidden: () => [
      ...Object.values(networkInterfaces()).flatMap((infos = []) =>
        infos
          .filter((info) => info.family === 'IPv4' && !info.internal)
          .map((info) => ({ address: info.address, port })),
      ),
    ],
    hostSocket: () => hostSocket,
    startVictim: async (known) => {
      const child = fork(new URL('driver-victim.ts', import.meta.url), [JSON.stringify({ ...options, ...known })])
      const gone = once(child, 'exit')
      const ended = gone.then(([code]) => assert.fail(`the victim has ended with ${code}`))
      await Promise.race([once(child, 'message'), ended])
      ended.catch(() => {})
      return {
        kill: async () => {
          child.kill('SIGKILL')
          await gone
        },
      }
    },
    dispose: async () => {
      tcp.close()
      unix.close()
      claimed.release()
      await rm(dataDir, { recursive: true, force: true })
    },
  }
}

/** A fixture whose driver is open during the tests of a suite. */
interface OpenRunc {
  fixture: RuncFixture
  driver: RuntimeDriver
  guest: (sandboxId: string) => Guest
  /** Opens another driver over the same data, as a start of the server does. */
  reopen: (known?: Partial<KnownResources>) => Promise<ReconcileReport>
}

/** Registers hooks that open a driver before the tests of a suite, and remove everything after them, also what a failed test left. */
export function useRunc(options?: Partial<RuncFixtureOptions>, changes?: DriverChanges): OpenRunc {
  const reopen: OpenRunc['reopen'] = async (known = {}) => {
    runc.driver = runc.fixture.makeDriver(changes)
    return runc.driver.open(await knowing(runc.fixture, known))
  }
  const guest: OpenRunc['guest'] = (sandboxId) => runc.fixture.guest(runc.driver, sandboxId)
  const runc = { guest, reopen } as OpenRunc
  before(async () => {
    runc.fixture = await makeRuncFixture(options)
    await reopen()
  })
  after(async () => {
    await runc.driver.close()
    await reopen()
    await runc.driver.close()
    await runc.fixture.dispose()
  })
  return runc
}

/** One without which no memory comes back: of the processes that there were. */
async function imageOf(names: HostNames, id: string, name = 'pstree.img'): Promise<string> {
  const { record } = await recordOf(names, id)
  return `${names.poolDir}/${record.memory?.folder}/${name}`
}

/** The record of a sandbox or checkpoint, in force or in quarantine. */
/** What the tests look at in a record. */
interface Saved {
  slot?: number
  memory?: SavedMemory
}

async function recordOf(names: HostNames, id: string): Promise<{ file: string; record: Saved }> {
  const item = (await quarantinedIn(names.dataDir)).find((found) => found.id === id)
  const kind = id.startsWith('cp-') ? 'checkpoints' : 'sandboxes'
  const file = item?.file ?? `${names.dataDir}/${kind}/${id}.json`
  return { file, record: JSON.parse(await readFile(file, 'utf8')) as Saved }
}

/**
 * CRIU's image of a processor (images/cpuinfo.proto: one message in a message) with each of its words of capabilities, field
 * 6, filled as far as the length of its number goes.
 */
function withAllInstructions(image: Buffer): Buffer {
  const changed = Buffer.from(image)
  const numberEnd = (from: number): number => {
    let at = from
    while ((changed[at] ?? 0) >= 128) at += 1
    return at + 1
  }
  const headerBytes = 12
  let at = numberEnd(headerBytes + 1)
  while (at < changed.length) {
    const tag = changed[at] ?? 0
    const end = numberEnd(at + 1)
    const wordEnd = tag === 6 << 3 ? end : at
    for (let byte = at + 1; byte < wordEnd; byte += 1) changed[byte]! |= byte === at + 5 ? 0x0f : 0x7f
    at = (tag & 7) === 2 ? end + (changed[at + 1] ?? 0) : end
  }
  return changed
}

/** What carries the data directory's hash or path: mounts, loop devices, links, tables, control groups, files, processes. */
async function traceOf(names: HostNames): Promise<string[]> {
  const { dataDir, hash } = names
  const lines = await Promise.all([
    mountsOf(names).then((all) => all.map((target) => `mount ${target}`)),
    loopDevices(dataDir),
    readdir('/sys/class/net').then((all) => all.filter((name) => name.includes(hash)).map((name) => `link ${name}`)),
    tables(hash),
    cgroups(names.cgroupRoot),
    files(names.runDir),
    files(dataDir),
    processes(names),
  ])
  return lines.flat().toSorted()
}

/** Whether each link is that of a sandbox on record. */
async function haveOwners(names: HostNames, lines: readonly string[]): Promise<boolean> {
  const gateway = `link atl${names.hash}`
  const links = lines.filter((line) => line.startsWith(gateway) && line !== gateway)
  if (links.length === 0) return true
  const ids = await recordedIds(`${names.dataDir}/sandboxes`)
  const slotOf = async (id: string) => (await recordOf(names, id)).record.slot
  // One that a test has spoilt has none.
  const slots = await Promise.all(ids.map((id) => slotOf(id).catch(() => undefined)))
  return links.every((link) => slots.includes(parseInt(link.slice(gateway.length), 36)))
}

/** A later one can lie on top of an earlier one. */
export async function mountsOf(names: HostNames): Promise<string[]> {
  const lines = (await readFile('/proc/self/mountinfo', 'utf8')).split('\n')
  return lines.filter((line) => line.includes(names.hash)).map((line) => line.split(' ')[4] ?? '')
}

async function loopDevices(dataDir: string): Promise<string[]> {
  const { stdout } = await runFile('losetup', ['--list', '--noheadings', '--output', 'NAME,BACK-FILE'])
  return (
    stdout
      .split('\n')
      .filter((line) => line.includes(dataDir))
      // Which number it has depends on who else has one.
      .map((line) => `loop ${line.trim().split(/\s+/)[1]}`)
  )
}

async function tables(hash: string): Promise<string[]> {
  const { stdout: list } = await runFile('nft', ['list', 'tables'])
  const own = list.split('\n').filter((line) => line.includes(hash))
  const contents = await Promise.all(own.map((line) => runFile('nft', ['list', ...line.split(' ')])))
  // Counts of connections and queries are the kernel's own notes; it forgets them when they have timed out.
  return contents.map(({ stdout }) => `nft ${stdout.replaceAll(/^.*(ct count over \d+[ ,}]| expires ).*\n/gm, '')}`)
}

async function cgroups(root: string): Promise<string[]> {
  const found: string[] = []
  const hierarchies = await readdir('/sys/fs/cgroup', { withFileTypes: true })
  for (const folder of [
    '/sys/fs/cgroup',
    ...hierarchies.filter((entry) => entry.isDirectory()).map((entry) => `/sys/fs/cgroup/${entry.name}`),
  ]) {
    const entries = await readdir(`${folder}${root}`, { withFileTypes: true }).catch(() => [])
    found.push(
      ...entries.filter((entry) => entry.isDirectory()).map((entry) => `cgroup ${folder}${root}/${entry.name}`),
    )
  }
  return found
}

/** Two levels are enough to see every sandbox, layer, record and bundle; the pool's file stays. */
async function files(folder: string, depth = 3): Promise<string[]> {
  const entries = await readdir(folder, { withFileTypes: true }).catch(() => [])
  const found: string[] = []
  for (const entry of entries) {
    const path = `${folder}/${entry.name}`
    // The pool keeps its inode-offset templates, and disks that began as one have its mark.
    if (['pool.img', 'host.sock', 'templates', 'mark'].includes(entry.name)) continue
    // Files of the kernel, which come and go with processes.
    if (path.endsWith('/shown')) continue
    if (entry.isDirectory() && depth > 0) found.push(...(await files(path, depth - 1)))
    if (!entry.isDirectory() || depth === 0) found.push(`file ${path}`)
  }
  return found
}

/** Processes of sandboxes, in any of this driver's control groups or mount namespaces, and its tools. */
async function processes(names: HostNames): Promise<string[]> {
  const found: string[] = []
  for (const pid of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
    if (Number(pid) === process.pid) continue
    const read = (file: string) => readFile(`/proc/${pid}/${file}`, 'utf8').catch(() => '')
    const [cgroup, argv, status] = await Promise.all([read('cgroup'), read('cmdline'), read('status')])
    const executable = await readlink(`/proc/${pid}/exe`).catch(() => '')
    const inGroup = cgroup.includes(names.cgroupRoot)
    const isTool = argv.includes(names.runDir) || executable.includes(names.runDir)
    const uid = Number(/^Uid:\s+(\d+)/m.exec(status)?.[1] ?? 0)
    // What has ended meanwhile, or waits for the host's init to notice, is no longer ours.
    if (status === '' || /^State:\s+Z/m.test(status)) continue
    if (inGroup || isTool)
      found.push(`process ${argv.replaceAll('\0', ' ')} ${uid >= sandboxIdMin ? 'of a sandbox' : ''}`)
  }
  return found
}

async function listen(server: Server, options: { port: number; host: string } | { path: string }): Promise<void> {
  server.listen(options)
  await once(server, 'listening')
  server.unref()
}
