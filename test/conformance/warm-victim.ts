/**
 * A server that prepares, takes over or removes one warm sandbox and dies at a step of that: a write to a file system of the host,
 * or a program that it starts there.
 */
import { writeSync } from 'node:fs'
import files from 'node:fs/promises'
import { syncBuiltinESMExports } from 'node:module'
import { createOciDriver, ociRuntimes } from '../../src/runtime/index.ts'
import { HostdProcess, type LaunchRequest } from '../../src/runtime/hostd/hostd-process.ts'

/** `before` the step happens, or `during` it: it has begun. */
export type CrashMode = 'before' | 'during'
export type WarmStory = 'fill' | 'takeover' | 'recycle'

export interface VictimOptions {
  dataDir: string
  imageDir: string
  subnet: string
  diskPoolBytes: number
  story: WarmStory
  /** Number of the step, from 1. */
  at: number
  mode: CrashMode
  /** Sandboxes whose start was cut off, as the database has them. */
  interrupted: string[]
}

const spec = { id: 'sb-warm', image: 'base', cpuCount: 1, memoryMb: 256, diskMb: 256 }

const writes = ['chmod', 'chown', 'mkdir', 'rename', 'rm', 'rmdir', 'symlink', 'unlink', 'writeFile'] as const

/** Steps that are left until the crash; none are counted before the story. */
let left = Infinity
let mode: CrashMode = 'before'

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
  HostdProcess.prototype.launch = function (request: LaunchRequest) {
    return step(request.argv.slice(0, 2).join(' '), () => launch.call(this, request))
  }
}

async function live({ story, at, interrupted, ...options }: VictimOptions): Promise<void> {
  countSteps()
  const driver = createOciDriver({ runtime: ociRuntimes.runc, ...options })
  const abandoned = { sandboxIds: interrupted, checkpointIds: [] }
  const { quarantined } = await driver.open({ sandboxIds: [], checkpointIds: [], abandoned })
  const proceed = new Promise((resolve) => process.once('message', resolve))
  process.send?.({ quarantined })
  await proceed
  if (story !== 'fill') await driver.prepare(spec)
  mode = options.mode
  left = at
  if (story === 'fill') await driver.prepare(spec)
  else if (story === 'takeover') await driver.create({ ...spec, cpuCount: 2, memoryMb: 384, diskMb: 512 })
  else await driver.delete(spec.id)
  left = Infinity
  await driver.delete(spec.id)
  await driver.close()
  process.disconnect?.()
}

await live(JSON.parse(process.argv[2] ?? '{}') as VictimOptions)
