import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes, randomInt } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { once } from 'node:events'
import { join } from 'node:path'
import { after } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { addressesOfHost } from '../support/addresses.ts'
import { claim, freePort } from '../support/listen.ts'

const projectDir = join(import.meta.dirname, '../..')
/** Longer than a start waits for what a killed server has begun, also on a busy machine. */
const startTimeoutMs = 300_000
const stopTimeoutMs = 120_000
/** Of the log, in an error. */
const faultCharacters = 4000

export interface StartOptions {
  /** Given again to start over the same data. */
  dataDir?: string
  env?: Record<string, string>
  port?: number
  subnet?: string
  /** Leaves the data where it is in the end. */
  keepsData?: boolean
  /** Default: one is made here and configured. With `''` none is configured, so that the server makes its own. */
  key?: string
  /** A command before that of the server, which it starts in its turn, such as `unshare`. */
  prefix?: readonly string[]
}

/** The real server in a process of its own, over a data directory of its own. */
export class AtollServer {
  readonly url: string
  readonly port: number
  readonly dataDir: string
  readonly subnet: string
  readonly #options: Required<StartOptions>
  #process: ChildProcess
  #output = ''

  private constructor(options: Required<StartOptions>) {
    this.#options = options
    this.port = options.port
    this.url = `http://127.0.0.1:${this.port}`
    this.dataDir = options.dataDir
    this.subnet = options.subnet
    this.#process = this.#spawn()
  }

  /** A server for all tests of a file, disposed of after the last. */
  static async startForFile(options?: StartOptions): Promise<AtollServer> {
    const server = await AtollServer.start(options)
    after(() => server[Symbol.asyncDispose]())
    return server
  }

  static async start(options: StartOptions = {}): Promise<AtollServer> {
    const server = new AtollServer({
      port: await freePort(),
      subnet: freeSubnet(),
      key: `test_${randomBytes(16).toString('hex')}`,
      prefix: [],
      keepsData: false,
      ...options,
      dataDir: options.dataDir ?? (await mkdtemp('/var/tmp/atoll-e2e-')),
      // What waits for an owner would be a load of its own, and so would the checkpoint of each turn.
      env: { ATOLL_DISK_POOL_MB: '8192', ATOLL_WARM_POOL: '0', ATOLL_SESSION_CHECKPOINTS: 'none', ...options.env },
    })
    try {
      await server.ready()
    } catch (error) {
      await server.kill()
      throw error
    }
    return server
  }

  get pid(): number {
    if (this.#process.pid === undefined) throw new Error('the server did not start')
    return this.#process.pid
  }

  /** The configured one, else the one that it printed. */
  get key(): string {
    return this.#options.key || (/^API key, shown this once: (\S+)$/m.exec(this.#output)?.[1] ?? '')
  }

  /** All that it has printed so far, over all of its lives. */
  get output(): string {
    return this.#output
  }

  /** Starts it again over the same data, after `stop` or `kill`, with these variables besides for this one life. */
  async restart(env: Record<string, string> = {}): Promise<void> {
    this.#process = this.#spawn(env)
    await this.ready().catch((error: unknown) => {
      // A report shows no error that another one suppresses, as the disposal of this server then does.
      console.error(error)
      throw error
    })
  }

  /** Starts it again where it refuses to. Returns its exit status and what it says. */
  async refusal(env: Record<string, string> = {}): Promise<{ status: number | null; words: string }> {
    const before = this.#output.length
    this.#process = this.#spawn(env)
    const closed = once(this.#process, 'close').then(() => 'refused')
    const ready = this.ready().then(
      () => 'started',
      () => closed,
    )
    if ((await Promise.race([closed, ready])) === 'started') throw new Error('the server started')
    return { status: this.#process.exitCode, words: this.#output.slice(before) }
  }

  /** Runs another program of the server in its environment. */
  async program(file: string, argv: readonly string[]): Promise<{ status: number; output: string }> {
    const child = spawn(process.execPath, [file, ...argv], {
      cwd: projectDir,
      stdio: ['ignore', 'pipe', 'pipe'],
      env: this.#environment(),
    })
    let output = ''
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (chunk: Buffer) => (output += chunk.toString()))
    await once(child, 'close')
    return { status: child.exitCode ?? -1, output }
  }

  async ready(): Promise<void> {
    const deadline = Date.now() + startTimeoutMs
    while (Date.now() < deadline) {
      if (this.#process.exitCode !== null) throw new Error(`the server ended:\n${this.#output}`)
      const answer = await fetch(`${this.url}/readyz`).catch(() => undefined)
      if (answer?.ok) return
      await sleep(50)
    }
    throw new Error(`the server was not ready in time:\n${this.#output}`)
  }

  /** Ends it as an operator would and returns its exit status. */
  async stop(): Promise<number | null> {
    if (this.#process.exitCode !== null) return this.#process.exitCode
    const ended = once(this.#process, 'exit')
    this.#process.kill('SIGTERM')
    const late = setTimeout(() => this.#process.kill('SIGKILL'), stopTimeoutMs)
    await ended
    clearTimeout(late)
    return this.#process.exitCode
  }

  /** Waits until it ends by itself and returns its exit status. */
  async ended(): Promise<number | null> {
    if (this.#process.exitCode === null && this.#process.signalCode === null) await once(this.#process, 'exit')
    return this.#process.exitCode
  }

  /** Ends it as a crash would. */
  async kill(): Promise<void> {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return
    const ended = once(this.#process, 'exit')
    this.#process.kill('SIGKILL')
    await ended
  }

  /** Deletes all sandboxes, stops it, and removes its data. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) await this.restart()
    try {
      const sandboxes = (await this.json('GET', '/api/sandboxes')) as { sandboxID: string }[]
      const paths = sandboxes.map(({ sandboxID }) => `/api/sandboxes/${sandboxID}`)
      await Promise.all(paths.map((path) => this.fetch(path, { method: 'DELETE' })))
    } finally {
      await this.stop()
    }
    if (!this.#options.keepsData) await rm(this.dataDir, { recursive: true })
  }

  async fetch(path: string, init: RequestInit = {}): Promise<Response> {
    const headers = new Headers(init.headers)
    if (!headers.has('X-API-Key')) headers.set('X-API-Key', this.key)
    return await fetch(this.url + path, { ...init, headers })
  }

  /** Calls with a JSON body and returns the answer's; a status of 400 or more throws with all of it, and for a fault with the end of the log. */
  async json(method: string, path: string, body?: unknown): Promise<unknown> {
    const response = await this.fetch(path, {
      method,
      headers: { 'Content-Type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
    const text = await response.text()
    if (response.status === 500) throw new Error(`${method} ${path}: ${text}\n${this.#output.slice(-faultCharacters)}`)
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`)
    return text === '' ? undefined : JSON.parse(text)
  }

  #spawn(env: Record<string, string> = {}): ChildProcess {
    const program = [process.execPath, '--max-semi-space-size=4', 'src/server/main.ts']
    const [command, ...argv] = [...this.#options.prefix, ...program] as [string, ...string[]]
    const child = spawn(command, argv, {
      cwd: projectDir,
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...this.#environment(), ...env },
    })
    const keep = (chunk: Buffer) => (this.#output += chunk.toString())
    child.stdout.on('data', keep)
    child.stderr.on('data', keep)
    return child
  }

  #environment(): NodeJS.ProcessEnv {
    return {
      PATH: process.env['PATH'],
      HOME: process.env['HOME'],
      NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'],
      ATOLL_LISTEN: `127.0.0.1:${this.port}`,
      ATOLL_DATA_DIR: this.dataDir,
      ATOLL_IMAGE_DIR: process.env['ATOLL_IMAGE_DIR'] ?? '',
      ATOLL_API_KEY: this.#options.key,
      ATOLL_SUBNET: this.subnet,
      ...this.#options.env,
    }
  }
}

/**
 * A subnet that no other server of the tests gets before this process ends, and of which nothing is left on this machine. The tests of the
 * driver, which run at the same time, use those from 10.231 on.
 */
export function freeSubnet(): string {
  const taken = addressesOfHost()
  for (;;) {
    const prefix = `10.${randomInt(201, 231)}.${randomInt(0, 250)}.`
    if (!taken.some((address) => address.startsWith(prefix)) && claim(`subnet-${prefix}0`)) return `${prefix}0/24`
  }
}
