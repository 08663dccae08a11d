/**
 * A server that changes one sandbox and dies at a step of that: a write to a file system of the host, or a program that it starts
 * there.
 */
import { writeSync } from 'node:fs'
import files from 'node:fs/promises'
import { syncBuiltinESMExports } from 'node:module'
import { openOfflineQuarantine } from '../../src/runtime/host/offline-quarantine.ts'
import { createOciDriver, ociRuntimes } from '../../src/runtime/index.ts'
import { HostdProcess } from '../../src/runtime/hostd/hostd-process.ts'
import type { KnownResources, RuntimeDriver } from '../../src/sandbox/ports/runtime-driver.ts'
import { specOf } from './driver-shell.ts'

/** `before` the step happens, or `during` it: it has begun. */
export type CrashMode = 'before' | 'during'
export type Story = keyof typeof stories

export interface VictimOptions {
  dataDir: string
  imageDir: string
  subnet: string
  diskPoolBytes: number
  story: Story
  /** Number of the step, from 1. */
  at: number
  mode: CrashMode
  /** What the database says. */
  known: KnownResources
  sandboxId: string
  /** The one to restore, to make, or to take back. */
  checkpointId: string
}

const writes = ['chmod', 'chown', 'mkdir', 'rename', 'rm', 'rmdir', 'symlink', 'unlink', 'writeFile'] as const
const { story, at, mode, known, sandboxId, checkpointId, ...options } = JSON.parse(
  process.argv[2] ?? '{}',
) as VictimOptions
const spec = specOf(sandboxId)

/** Steps that are left until the crash; none are counted before the story. */
let left = Infinity

const stories = {
  fill: ofWarm(async (driver) => {
    left = at
    await driver.prepare(spec)
  }),
  takeover: ofWarm(async (driver) => {
    await driver.prepare(spec)
    left = at
    await driver.create({ ...spec, cpuCount: 2, memoryMb: 384, diskMb: 512 })
  }),
  recycle: ofWarm(async (driver) => {
    await driver.prepare(spec)
    left = at
    await driver.delete(spec.id)
  }),
  restore: opened(async (driver) => {
    left = at
    await driver.restore(spec, checkpointId)
  }),
  /** As the service does it: the checkpoint is ready once the first call has returned. */
  coldWake: opened(async (driver) => {
    left = at
    await driver.checkpoint(sandboxId, checkpointId, 'full')
    await say('kept')
    await driver.restart(spec)
  }),
  /** A start that finds in quarantine what the database knows. */
  readmission: async () => {
    const driver = makeDriver()
    left = at
    await driver.open(known)
    left = Infinity
    await driver.close()
  },
  /** What `npm run quarantine -- restore` does besides the database. */
  readmissionByHand: async () => {
    left = at
    await using quarantine = await openOfflineQuarantine({ runtime: ociRuntimes.runc, ...options })
    for (const item of quarantine.items) await quarantine.restore(item)
    left = Infinity
  },
}

function ofWarm(work: (driver: RuntimeDriver) => Promise<void>): () => Promise<void> {
  return opened(async (driver) => {
    await work(driver)
    left = Infinity
    await driver.delete(spec.id)
  })
}

/** A story of an open driver. It begins when the test says so. */
function opened(work: (driver: RuntimeDriver) => Promise<void>): () => Promise<void> {
  return async () => {
    const driver = makeDriver()
    const { quarantined } = await driver.open(known)
    const proceed = new Promise((resolve) => process.once('message', resolve))
    await say({ quarantined })
    await proceed
    await work(driver)
    left = Infinity
    await driver.close()
  }
}

function makeDriver(): RuntimeDriver {
  return createOciDriver({ runtime: ociRuntimes.runc, ...options })
}

async function say(message: unknown): Promise<void> {
  await new Promise((resolve) => process.send?.(message, resolve))
}

function step<Result>(name: string, call: () => Result): Result {
  left -= 1
  if (left !== 0) return call()
  writeSync(1, name)
  if (mode === 'during') call()
  process.kill(process.pid, 'SIGKILL')
  // The signal of a process to itself has arrived by then.
  throw new Error('still alive')
}

function countSteps(): void {
  const named = files as unknown as Record<string, (...parameters: unknown[]) => unknown>
  for (const name of writes) {
    const write = named[name]?.bind(files)
    if (write !== undefined) named[name] = (...given) => step(`${name} ${String(given[0])}`, () => write(...given))
  }
  syncBuiltinESMExports()
  const launch = HostdProcess.prototype.launch
  HostdProcess.prototype.launch = function (request: Parameters<typeof launch>[0]) {
    const name = request.op === 'start-program' ? request.argv.slice(0, 2).join(' ') : request.op
    return step(name, () => launch.call(this, request))
  }
}

countSteps()
await stories[story]()
process.disconnect?.()
