import { spawn } from 'node:child_process'
import { chmod, mkdir, open, readFile, rm } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { commandEnvironment, messageOf, run } from './command.ts'
import { isMounted, unmountBelow } from './disk/index.ts'
import type { Hostd } from './hostd/index.ts'
import { end, isAlive, type ProcessIdentity, startTicksOf } from './process.ts'

const startTimeoutMs = 10_000
const readTimeoutMs = 5_000
/** After a start that has failed. */
const retryMs = 60_000
const pollMs = 5
const folderBytes = 4096
/** The root, two folders for what is mounted, two below. */
const folderInodes = 8

/**
 * Files of the kernel that a sandbox sees as its own, so that programs choose sizes that fit it. `/proc/diskstats` is none of them: lxcfs
 * takes the names of the host's disks from it, so it stays hidden.
 */
export const shownFiles = [
  '/proc/cpuinfo',
  '/proc/loadavg',
  '/proc/meminfo',
  '/proc/stat',
  '/proc/swaps',
  '/proc/uptime',
  '/sys/devices/system/cpu/online',
] as const

interface LxcfsOptions {
  /** For this alone; made if absent. */
  dir: string
  pidFile: string
  hostd: Hostd
  log: (message: string) => void
}

/**
 * The lxcfs of all sandboxes of one data directory, in a process session of its own, so that it outlives this process and is adopted by
 * the next. Where it does not work, sandboxes see the files of the host, bound in the same way: memory that was saved with the one can be
 * restored with the other.
 *
 * `dir` is a shared mount: what is mounted below, also later, shows in the mount namespaces in which hostd starts the runtime.
 */
export class Lxcfs {
  readonly #options: LxcfsOptions
  #process: ProcessIdentity | undefined
  /** Why sandboxes see the files of the host. */
  #reason: string | undefined = 'it has not been started'
  #retryAtMs = 0
  #ensuring: Promise<void> | undefined
  #generation = 0

  constructor(options: LxcfsOptions) {
    this.#options = options
  }

  /** Undefined while it works. */
  get reason(): string | undefined {
    return this.#reason
  }

  /** Changes when what sandboxes have mounted is to be replaced. */
  get generation(): number {
    return this.#generation
  }

  /** The folder below which all of `shownFiles` are. */
  get source(): string {
    return this.#reason === undefined ? this.#mountDir : this.#hostDir
  }

  /** Adopts the one that runs, or starts one. `reason` says why it does not work; it throws when even the host's files cannot be shown. */
  async ensure(): Promise<void> {
    if (this.#isFine()) return
    this.#ensuring ??= this.#renew().finally(() => (this.#ensuring = undefined))
    await this.#ensuring
  }

  /** Puts the files of `source` in the place of those that a running sandbox has mounted. */
  async replaceIn({ pid, startTicks }: ProcessIdentity): Promise<void> {
    await this.#options.hostd.runTool([
      ...(['replace-files', '--pid', String(pid), '--start', String(startTicks), '--source', this.source] as const),
      ...shownFiles.flatMap((file) => ['--file', file]),
    ])
  }

  /** Ends it. No sandbox runs. */
  async close(): Promise<void> {
    await this.#stop()
    await unmountBelow(this.#options.dir)
    this.#reason = 'it has not been started'
  }

  #isFine(): boolean {
    if (this.#process !== undefined) return isAlive(this.#process)
    return this.#generation > 0 && Date.now() < this.#retryAtMs
  }

  async #renew(): Promise<void> {
    const { dir, log } = this.#options
    const before = this.#reason
    const isFirst = this.#generation === 0
    try {
      const running = isFirst ? await this.#recorded() : undefined
      const isAdopted = running !== undefined && (await isMounted(this.#mountDir))
      if (!isFirst && before === undefined) log('lxcfs has ended; it is started again')
      // Its mount, if it has left one, answers nothing.
      if (!isAdopted) await this.#stop()
      await this.#makeFolder()
      this.#process = isAdopted ? running : await this.#start()
      this.#reason = undefined
    } catch (error) {
      await this.#stop().catch(() => undefined)
      this.#reason = messageOf(error)
      this.#retryAtMs = Date.now() + retryMs
      if (before !== this.#reason) log(`sandboxes see the sizes of this machine, not their own: lxcfs: ${this.#reason}`)
      if (!(await isMounted(dir))) throw error
    }
    // After a start of the server nobody knows what running sandboxes have.
    this.#generation += 1
  }

  /** The folder with the files of the host below it. */
  async #makeFolder(): Promise<void> {
    const { dir, hostd } = this.#options
    await mkdir(dir, { recursive: true })
    if (!(await isMounted(dir))) {
      await hostd.runTool([
        ...(['tmpfs', '--target', dir, '--owner', '0'] as const),
        ...['--size', String(folderBytes), '--inodes', String(folderInodes)],
      ])
    }
    // A restore looks the files up as root of the sandbox.
    await chmod(dir, 0o711)
    for (const name of ['proc', 'sys']) {
      const target = `${this.#hostDir}/${name}`
      await mkdir(target, { recursive: true })
      if (!(await isMounted(target))) await run(['mount', '--bind', `/${name}`, target])
    }
    await mkdir(this.#mountDir, { recursive: true })
  }

  async #start(): Promise<ProcessIdentity> {
    const { pidFile } = this.#options
    // A file, not a pipe: lxcfs outlives this process.
    const logFile = `${pidFile}.log`
    await using log = await open(logFile, 'w', 0o600)
    const child = spawn('lxcfs', this.#arguments(), {
      detached: true,
      stdio: ['ignore', log.fd, log.fd],
      env: commandEnvironment(),
    })
    const ended = Promise.withResolvers<never>()
    ended.promise.catch(() => undefined)
    child.once('error', () => ended.reject(new Error('it is not installed (Debian package lxcfs)')))
    child.once('exit', (code) => {
      void readFile(logFile, 'utf8').then((said) => {
        const last = said.trim().split('\n').at(-1) ?? ''
        ended.reject(new Error(`it ended with status ${code}: ${last}`))
      }, ended.reject)
    })
    child.unref()
    const timer = new AbortController()
    try {
      await Promise.race([ended.promise, this.#mounted(timer.signal)])
      const [, total] = /^MemTotal: +(\d+) kB$/m.exec(await Promise.race([ended.promise, this.#meminfo()])) ?? []
      if (total === undefined) throw new Error('its /proc/meminfo has no MemTotal')
    } catch (error) {
      child.kill('SIGKILL')
      throw error
    } finally {
      timer.abort()
    }
    const { pid = 0 } = child
    return { pid, startTicks: startTicksOf(pid) }
  }

  async #mounted(signal: AbortSignal): Promise<void> {
    for (const until = Date.now() + startTimeoutMs; !(await isMounted(this.#mountDir)); await sleep(pollMs)) {
      signal.throwIfAborted()
      if (Date.now() > until) throw new Error('it did not mount its files')
    }
  }

  /** Read by another process: a file of a server that hangs holds its reader. */
  async #meminfo(): Promise<string> {
    return await run(['head', '--bytes=4096', `${this.#mountDir}/proc/meminfo`], { timeoutMs: readTimeoutMs })
  }

  async #stop(): Promise<void> {
    const process = this.#process ?? (await this.#recorded())
    this.#process = undefined
    if (process !== undefined) await end(process)
    await unmountBelow(this.#mountDir)
    await rm(this.#options.pidFile, { force: true })
  }

  /** The process of the pid file, if it is one of ours. */
  async #recorded(): Promise<ProcessIdentity | undefined> {
    const pid = Number((await readFile(this.#options.pidFile, 'utf8').catch(() => '')).trim())
    if (!Number.isSafeInteger(pid) || pid <= 1) return undefined
    const startTicks = startTicksOf(pid)
    const argv = (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).split('\0').slice(1, -1)
    const isOurs = argv.join('\0') === this.#arguments().join('\0')
    return isOurs && isAlive({ pid, startTicks }) ? { pid, startTicks } : undefined
  }

  #arguments(): string[] {
    return ['-f', '--enable-loadavg', '--enable-cfs', '--pidfile', this.#options.pidFile, this.#mountDir]
  }

  get #mountDir(): string {
    return `${this.#options.dir}/own`
  }

  get #hostDir(): string {
    return `${this.#options.dir}/host`
  }
}
