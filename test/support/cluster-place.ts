/** A data directory for a cluster, with a socket, a control group and a log of its own, all of which end with the test. */
import assert from 'node:assert/strict'
import { type ChildProcessByStdio, spawn } from 'node:child_process'
import { EventEmitter, once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import type { Readable } from 'node:stream'
import type { TestContext } from 'node:test'
import { isServiceError } from '../../src/errors.ts'
import { silentLog } from '../../src/lib/log.ts'
import { Cgroups } from '../../src/runtime/cgroups/index.ts'
import { ServiceGroup } from '../../src/runtime/cgroups/service-group.ts'
import { PrivateCluster } from '../../src/postgres/index.ts'

export interface PlaceOptions {
  /** Where there is one already. */
  dataDir?: string
  memoryMb?: number
}

export interface Place {
  dataDir: string
  socketDir: string
  folder: string
  /** Of its control group. */
  groupName: string
  logged: string[]
  /** Waits until this is logged. */
  says(message: string): Promise<void>
  start(): Promise<PrivateCluster>
  refuses(pattern: RegExp): Promise<void>
}

export async function makePlace(
  t: TestContext,
  { dataDir: given, memoryMb = 1024 }: PlaceOptions = {},
): Promise<Place> {
  const dataDir = given ?? (await mkdtemp(join(tmpdir(), 'atoll-cluster-')))
  const name = basename(given === undefined ? dataDir : await mkdtemp(join(tmpdir(), 'atoll-cluster-')))
  const { socketDir, groupName, options } = await ofName(name, dataDir, memoryMb)
  const logged: string[] = []
  const said = new EventEmitter()
  const keep = (_facts: object, message: string) => {
    logged.push(message)
    said.emit(message)
  }
  const says = async (message: string) => {
    if (!logged.includes(message)) await once(said, message)
  }
  const log = { ...silentLog, info: keep, error: keep }
  const started: PrivateCluster[] = []
  t.after(async () => {
    for (const cluster of started) await cluster.stop()
    for (const left of [join(tmpdir(), name), socketDir]) await rm(left, { recursive: true, force: true })
    await options.group.remove()
  })
  const start = async () => {
    const cluster = await PrivateCluster.start({ ...options, log })
    started.push(cluster)
    return cluster
  }
  const refuses = (pattern: RegExp) =>
    assert.rejects(start(), (error) => {
      assert.ok(isServiceError(error, 'unavailable'), String(error))
      assert.match(error.message, pattern)
      return true
    })
  return { dataDir, socketDir, folder: `${dataDir}/db`, groupName, logged, says, start, refuses }
}

async function ofName(name: string, dataDir: string, memoryMb: number) {
  const [socketDir, groupName] = [`/run/${name}-db`, `/${name}-db`]
  const limits = { memoryBytes: memoryMb * 2 ** 20, processes: 200 }
  const group = new ServiceGroup(await Cgroups.find(), groupName, limits)
  const options = { dataDir, socketDir, hiddenDir: '/run/nothing', connectionsMax: 10, group }
  return { socketDir, groupName, options }
}

export async function pidOf(folder: string): Promise<number> {
  return Number.parseInt(await readFile(`${folder}/postmaster.pid`, 'utf8'), 10)
}

/** A server in a process of its own that starts the cluster, and says `up` then. */
export function startServer({ dataDir, groupName }: Place): ChildProcessByStdio<null, Readable, null> {
  const program = [import.meta.filename, groupName.slice(1, -'-db'.length), dataDir]
  return spawn(process.execPath, program, { stdio: ['ignore', 'pipe', 'inherit'] })
}

/** One that is killed once the cluster is up. */
export async function startAndKill(place: Place): Promise<void> {
  const server = startServer(place)
  const [first] = await Promise.race([once(server.stdout, 'data'), once(server, 'exit')])
  assert.equal(String(first), 'up\n')
  server.kill('SIGKILL')
  await once(server, 'exit')
}

if (import.meta.main) {
  const [name = '', dataDir = ''] = process.argv.slice(2)
  await PrivateCluster.start({ ...(await ofName(name, dataDir, 1024)).options, log: silentLog })
  process.stdout.write('up\n')
  setInterval(() => undefined, 1000)
}
