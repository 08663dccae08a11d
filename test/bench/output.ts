import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { sh, startSandbox } from '../e2e/sandbox-calls.ts'
import type { AtollServer } from '../e2e/server.ts'
import { BareRunc } from './bare-runc.ts'
import { type Comparison, compare, type Peaks } from './measure.ts'

const program = join(import.meta.dirname, '../../bin/atoll')
const client = join(import.meta.dirname, 'output-client.ts')
const gibibyte = 2 ** 30
const rounds = 3
const pollMs = 20

/** How the output is read: `way` of `output-client.ts`, or the command line. */
const ways = [
  { what: 'exec: 1 GiB of output', way: undefined },
  { what: 'SDK run with a callback: 1 GiB', way: 'run' },
  { what: 'SDK spawn: 1 GiB', way: 'spawn' },
  { what: 'WebSocket: 1 GiB', way: 'socket' },
  { what: 'public SDK: 1 GiB', way: 'public' },
] as const

type Way = (typeof ways)[number]['way']

/** A gibibyte of output in each way that a client has, by a program of its own that reads at once, and the memory that it takes. */
export async function outputBench(server: AtollServer): Promise<Comparison[]> {
  await using bare = new BareRunc()
  const container = await bare.start()
  const rows: Comparison[] = []
  for (const { what, way } of ways) {
    const sandbox = await startSandbox(server)
    const row = await compare(what, 'runc exec', rounds, {
      atoll: () => readAll(server, sandbox, way, gibibyte),
      other: () => run('runc', ['exec', container, ...argvOf(gibibyte)], process.env, gibibyte),
    })
    await server.json('DELETE', `/api/sandboxes/${sandbox}`)
    rows.push({
      ...row,
      output: {
        megabytesPerSecond: gibibyte / 1000 / row.atoll.median,
        peakMibOfEighth: await peaks(server, way, gibibyte / 8),
        peakMib: await peaks(server, way, gibibyte),
      },
    })
  }
  return rows
}

const argvOf = (bytes: number) => ['head', '-c', String(bytes), '/dev/zero']

/** Returns the peak of the client's memory in MiB. */
async function readAll(server: AtollServer, sandbox: string, way: Way, bytes: number): Promise<number> {
  const env = { ...process.env, ATOLL_URL: server.url, ATOLL_API_KEY: server.key }
  return way === undefined
    ? await run(program, ['exec', sandbox, '--', ...argvOf(bytes)], env, bytes)
    : await run(process.execPath, [client, way, sandbox, ...argvOf(bytes)], env, bytes, true)
}

/** Of one run in a new sandbox, whose guest holds nothing of others. */
async function peaks(server: AtollServer, way: Way, bytes: number): Promise<Peaks> {
  const sandbox = await startSandbox(server)
  // From here on it is the peak since now.
  await writeFile(`/proc/${server.pid}/clear_refs`, '5')
  const ofClient = await readAll(server, sandbox, way, bytes)
  const ofServer = peakOf(await readFile(`/proc/${server.pid}/status`, 'utf8'))
  const ofGuest = peakOf(await sh(server, sandbox, 'cat /proc/1/status'))
  await server.json('DELETE', `/api/sandboxes/${sandbox}`)
  return { server: ofServer, guest: ofGuest, client: ofClient }
}

/** MiB, of proc_pid_status(5). */
const peakOf = (status: string) => Number(/^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1] ?? 0) / 1024

/** Runs a program that writes so many bytes, or the number of those that it has read. Returns the peak of its memory in MiB. */
async function run(
  command: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  bytes: number,
  counts = false,
): Promise<number> {
  const child = spawn(command, args, { env, stdio: ['ignore', 'pipe', 'inherit'] })
  let [written, text, peak] = [0, '', 0]
  child.stdout.on('data', (data: Buffer) => {
    written += data.length
    if (counts) text += data.toString()
  })
  const look = async () => {
    peak = Math.max(peak, peakOf(await readFile(`/proc/${child.pid}/status`, 'utf8').catch(() => '')))
  }
  const timer = setInterval(() => void look(), pollMs)
  const [exitCode] = (await once(child, 'close')) as [number | null]
  clearInterval(timer)
  const read = counts ? Number(text) : written
  if (exitCode !== 0 || read !== bytes) throw new Error(`${command} ended with ${exitCode} after ${read} bytes`)
  return peak
}
