import { spawn } from 'node:child_process'
import { chmod, mkdir, open, readFile, rm } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { CommandError, commandEnvironment, messageOf } from './command.ts'
import { isMounted, unmountBelow } from './disk/index.ts'
import type { Hostd } from './hostd/index.ts'
import { end, isAlive, type ProcessIdentity, startTicksOf } from './process.ts'

const startTimeoutMs = 10_000
const readTimeoutMs = 5_000
/** Of one that runs: what sandboxes read at once must have been answered by then. */
const hungTimeoutMs = 10_000
const checkIntervalMs = 10_000
/** A start waits so long for an answer, and takes the host's files without one. It reads some ten files one after the other. */
const quickMs = 100
/** An answer says so long that it is quick. */
const quickForMs = 1_000
/** After a start that has failed, or one end too many. */
const retryMs = 60_000
/** Ends within `endsWithinMs` after each of which it is started again. */
const endsMax = 5
const endsWithinMs = 60_000
const pollMs = 5
const folderBytes = 4096
/** The root, the two folders of files, and two below each; one is spare. */
const folderInodes = 8

/**
 * Files below `/proc` and `/sys` whose content lxcfs makes for each sandbox, so that programs choose sizes that fit it. `/proc/diskstats` is none of them: lxcfs
 * takes the names of the host's disks from it, so it stays hidden. Nor is `/proc/uptime`: programs subtract the start times of processes from
 * it, which the kernel counts from the machine's boot.
 */
export const shownFiles = [
  '/proc/cpuinfo',
  '/proc/loadavg',
  '/proc/meminfo',
  '/proc/stat',
  '/proc/swaps',
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
 * the next. It is mounted over the files of the host, which sandboxes see at the same paths where it does not work. Memory that was saved
 * with the files of either is restored with those of the other.
 *
 * `dir` is a shared mount: what is mounted below, also later, shows in the mount namespaces in which hostd starts the runtime.
 *
 *     not started ── ensure ──► works ── it ends, or hangs; ensure ──► works
 *                       │         └── it does not start again, or ends too often ──┐
 *                       └── it does not start ──► the host's files ── a minute; ensure ──► works
 *
 * It answers the reads of all sandboxes in turn, so one with thousands of readers makes it slow. A start does not wait for that: it takes
 * the host's files, which are replaced later.
 */
export class Lxcfs {
  readonly #options: LxcfsOptions
  #process: ProcessIdentity | undefined
  /** Whose files are at `source`, as far as this process knows. */
  #shown: 'nobody' | 'lxcfs' | 'host' = 'nobody'
  /** Why they are not those of lxcfs. */
  #reason: string | undefined = 'it has not been started'
  #retryAtMs = 0
  #endsMs: number[] = []
  #checkedAtMs = 0
  #ensuring: Promise<void> | undefined
  #generation = 0
  #asking: Promise<boolean> | undefined
  #quickAtMs = -Infinity
  readonly #withHostFiles = new Set<string>()

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

  /** The folder below which all of `shownFiles` are, always the same one. */
  get source(): string {
    return `${this.#options.dir}/own`
  }

  /** The folder with those of the host. */
  get #hostSource(): string {
    return `${this.#options.dir}/host`
  }

  /** The folder below which the next start of a sandbox finds the files: `source`, or that of the host's while lxcfs is slow. */
  async sourceFor(sandboxId: string): Promise<string> {
    await this.ensure()
    this.#withHostFiles.delete(sandboxId)
    if (this.#shown !== 'lxcfs' || (await this.#isQuick())) return this.source
    this.#withHostFiles.add(sandboxId)
    return this.#hostSource
  }

  /** The generation of the files that a start finds now. One that no longer is, or never was, the present one is replaced. */
  generationFor(sandboxId: string): number {
    return this.#withHostFiles.delete(sandboxId) ? 0 : this.#generation
  }

  async #isQuick(): Promise<boolean> {
    if (performance.now() - this.#quickAtMs < quickForMs) return true
    this.#asking ??= this.#answersQuickly().finally(() => (this.#asking = undefined))
    const enough = new AbortController()
    const late = sleep(quickMs, false, { signal: enough.signal }).catch(() => false)
    const isQuick = await Promise.race([this.#asking, late])
    enough.abort()
    return isQuick
  }

  async #answersQuickly(): Promise<boolean> {
    const startedMs = performance.now()
    try {
      await this.#meminfo(hungTimeoutMs)
    } catch {
      // One that has ended or hangs is for `ensure` and `check`.
      return false
    }
    const nowMs = performance.now()
    if (nowMs - startedMs >= quickMs) return false
    this.#quickAtMs = nowMs
    return true
  }

  /** Whether `source` has files that can be read, or is to be left alone for a while. */
  get isFine(): boolean {
    if (this.#process !== undefined) return isAlive(this.#process)
    return this.#shown === 'host' && Date.now() < this.#retryAtMs
  }

  /** Adopts the one that runs, or starts one. `reason` says why it does not work; it throws when even the host's files cannot be shown. */
  async ensure(): Promise<void> {
    if (this.isFine) return
    this.#ensuring ??= this.#renew().finally(() => (this.#ensuring = undefined))
    await this.#ensuring
  }

  /** Ends one that runs and answers no read, now and then; `ensure` starts another. */
  async check(): Promise<void> {
    const process = this.#process
    if (process === undefined || Date.now() - this.#checkedAtMs < checkIntervalMs) return
    this.#checkedAtMs = Date.now()
    try {
      await this.#meminfo(hungTimeoutMs)
    } catch (error) {
      // Any other fault is one of the reader.
      const isHung = error instanceof CommandError && error.outcome === 'took too long'
      if (!isHung || process !== this.#process || !isAlive(process)) return
      this.#options.log('lxcfs answers nothing, it is ended')
      // Whoever waits for an answer gets an error with its end.
      await end(process)
    }
  }

  /**
   * Puts the files of `source` in the place of those that a running sandbox has mounted; `folders` are its control group. A file of the
   * host that one of its processes has open stays as it is, since the memory of that process could not be saved afterwards. Returns whether
   * all are replaced.
   */
  async replaceIn({ pid, startTicks }: ProcessIdentity, folders: readonly string[]): Promise<boolean> {
    const said = await this.#options.hostd.runTool({
      op: 'replace-files',
      process: { pid, startTicks },
      source: this.source,
      files: shownFiles,
      groups: folders,
    })
    return said.trim() !== 'held'
  }

  /** Ends it. No sandbox runs. */
  async close(): Promise<void> {
    await this.#stop()
    await unmountBelow(this.#options.dir)
    this.#shown = 'nobody'
    this.#reason = 'it has not been started'
  }

  async #renew(): Promise<void> {
    const before = this.#shown
    try {
      const running = before === 'nobody' ? await this.#answering() : undefined
      if (running === undefined) {
        if (before === 'lxcfs') this.#noteEnd()
        // Its mount, if it has left one, answers nothing.
        await this.#stop()
      }
      await this.#makeFolder()
      this.#process = running ?? (await this.#start())
      this.#shown = 'lxcfs'
      this.#reason = undefined
    } catch (error) {
      await this.#stop()
      await this.#makeFolder()
      this.#shown = 'host'
      this.#retryAtMs = Date.now() + retryMs
      this.#noteReason(messageOf(error))
    }
    // What running sandboxes have is not known after a start of the server.
    if (this.#shown === 'lxcfs' || before !== 'host') this.#generation += 1
  }

  /** Throws when there were too many. */
  #noteEnd(): void {
    this.#endsMs = [...this.#endsMs.filter((endMs) => Date.now() - endMs < endsWithinMs), Date.now()]
    if (this.#endsMs.length > endsMax) throw new Error(`it has ended ${this.#endsMs.length} times within a minute`)
    this.#options.log('lxcfs has ended; it is started again')
  }

  #noteReason(reason: string): void {
    if (this.#reason !== reason)
      this.#options.log(`sandboxes see the sizes of this machine, not their own: lxcfs: ${reason}`)
    this.#reason = reason
  }

  /** The folder with the files of the host below both sources. */
  async #makeFolder(): Promise<void> {
    const { dir, hostd } = this.#options
    await mkdir(dir, { recursive: true })
    if (!(await isMounted(dir))) {
      await hostd.runTool({ op: 'mount-tmpfs', target: dir, bytes: folderBytes, inodes: folderInodes, owner: 0 })
    }
    // A restore looks the files up as root of the sandbox.
    await chmod(dir, 0o711)
    for (const source of [this.source, this.#hostSource]) {
      // By an lxcfs that is adopted.
      if (await isMounted(source)) continue
      for (const name of ['proc', 'sys']) {
        const target = `${source}/${name}`
        await mkdir(target, { recursive: true })
        if (!(await isMounted(target))) await this.#options.hostd.run(['mount', '--bind', `/${name}`, target])
      }
    }
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
      const [, total] =
        /^MemTotal: +(\d+) kB$/m.exec(await Promise.race([ended.promise, this.#meminfo(readTimeoutMs)])) ?? []
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
    for (const until = Date.now() + startTimeoutMs; !(await isMounted(this.source)); await sleep(pollMs)) {
      signal.throwIfAborted()
      if (Date.now() > until) throw new Error('it did not mount its files')
    }
  }

  /** Read by another process: a file of a server that hangs holds its reader. */
  async #meminfo(timeoutMs: number): Promise<string> {
    return await this.#options.hostd.run(['head', '--bytes=4096', `${this.source}/proc/meminfo`], { timeoutMs })
  }

  async #stop(): Promise<void> {
    const process = this.#process ?? (await this.#recorded())
    this.#process = undefined
    if (process !== undefined) await end(process)
    // The host's files below stay: a sandbox that starts just now has one or the other.
    while (await isMounted(this.source)) await this.#options.hostd.run(['umount', '--lazy', this.source])
    await rm(this.#options.pidFile, { force: true })
  }

  /** The one of an earlier server, if its files can be read. */
  async #answering(): Promise<ProcessIdentity | undefined> {
    const process = await this.#recorded()
    if (process === undefined || !(await isMounted(this.source))) return undefined
    try {
      await this.#meminfo(readTimeoutMs)
      return process
    } catch (error) {
      this.#options.log(`lxcfs answers nothing, another is started: ${messageOf(error)}`)
      return undefined
    }
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
    return ['-f', '--enable-loadavg', '--enable-cfs', '--pidfile', this.#options.pidFile, this.source]
  }
}
