import { spawn } from 'node:child_process'
import { chmod, mkdir, open, readFile, rm } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { CommandError, commandEnvironment, messageOf } from './command.ts'
import { isMounted, unmountBelow } from './disk/index.ts'
import type { Hostd } from './hostd/index.ts'
import { end, isAlive, type ProcessIdentity, startTicksOf } from './process.ts'

const startTimeoutMs = 10_000
const readTimeoutMs = 5_000
/** An lxcfs that answers no read for this long hangs: longer than the reads of all sandboxes at once take. */
const hungTimeoutMs = 10_000
const checkIntervalMs = 10_000
/** A start that gets no answer within this time takes the host's files. It reads some ten files one after the other. */
const quickMs = 100
/** After a quick answer lxcfs counts as quick for this long. */
const quickForMs = 1_000
/** Pause before the next start, after a failed one or more than `endsMax` ends. */
const retryMs = 60_000
/** lxcfs is started again after this many ends within `endsWithinMs`. */
const endsMax = 5
const endsWithinMs = 60_000
const pollMs = 5
const folderBytes = 4096
/** The root, the two folders of files, and two below each; one is spare. */
const folderInodes = 8

/**
 * Files below `/proc` and `/sys` whose content lxcfs makes for each sandbox, so that programs choose sizes that fit it. Left out are
 * `/proc/diskstats`, in which lxcfs shows the names of the host's disks (it stays hidden), and `/proc/uptime`: programs subtract the
 * start times of processes from it, which the kernel counts from the machine's boot.
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
  /** A folder for lxcfs alone; made if absent. */
  dir: string
  pidFile: string
  hostd: Hostd
  log: (message: string) => void
}

/**
 * The lxcfs of all sandboxes of one data directory. It has a process session of its own, so it outlives this process and the next server
 * adopts it. It is mounted over the files of the host: where it does not work, sandboxes see those at the same paths. So memory that was
 * saved with the files of lxcfs can be restored with those of the host, and the other way round.
 *
 * `dir` is a shared mount: what is mounted below, also later, shows in the mount namespaces in which hostd starts the runtime.
 *
 *     not started ── ensure ──► works ── it ends, or hangs; ensure ──► works
 *                       │         └── it does not start again, or ends too often ──┐
 *                       └── it does not start ──► the host's files ── a minute; ensure ──► works
 *
 * lxcfs answers the reads of all sandboxes in turn, so a sandbox with thousands of readers makes it slow. A start does not wait then: it
 * takes the host's files, which are replaced later.
 */
export class Lxcfs {
  readonly #options: LxcfsOptions
  #process: ProcessIdentity | undefined
  /** Whose files are at `source`, as far as this process knows. */
  #shown: 'nobody' | 'lxcfs' | 'host' = 'nobody'
  /** Why lxcfs does not work; undefined while it works. */
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

  /** Grows when the files that running sandboxes have mounted must be replaced. */
  get generation(): number {
    return this.#generation
  }

  /** The folder that holds all of `shownFiles`. It never changes. */
  get source(): string {
    return `${this.#options.dir}/own`
  }

  /** The folder with the files of the host. */
  get #hostSource(): string {
    return `${this.#options.dir}/host`
  }

  /** The folder from which the next start of a sandbox takes the files: `source`, or that of the host's files while lxcfs is slow. */
  async sourceFor(sandboxId: string): Promise<string> {
    await this.ensure()
    this.#withHostFiles.delete(sandboxId)
    if (this.#shown !== 'lxcfs' || (await this.#isQuick())) return this.source
    this.#withHostFiles.add(sandboxId)
    return this.#hostSource
  }

  /** The generation of the files that a start takes now; 0 for the host's, which never counts as the present one. */
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
      // `ensure` and `check` deal with an lxcfs that has ended or hangs.
      return false
    }
    const nowMs = performance.now()
    if (nowMs - startedMs >= quickMs) return false
    this.#quickAtMs = nowMs
    return true
  }

  /** Whether lxcfs runs, or its next start is not due yet. */
  get isFine(): boolean {
    if (this.#process !== undefined) return isAlive(this.#process)
    return this.#shown === 'host' && Date.now() < this.#retryAtMs
  }

  /** Adopts a running lxcfs or starts one. A failure is told by `reason`; throws only when even the host's files cannot be shown. */
  async ensure(): Promise<void> {
    if (this.isFine) return
    this.#ensuring ??= this.#renew().finally(() => (this.#ensuring = undefined))
    await this.#ensuring
  }

  /** Ends an lxcfs that hangs; `ensure` starts another. To be called often: it looks once in `checkIntervalMs`. */
  async check(): Promise<void> {
    const process = this.#process
    if (process === undefined || Date.now() - this.#checkedAtMs < checkIntervalMs) return
    this.#checkedAtMs = Date.now()
    try {
      await this.#meminfo(hungTimeoutMs)
    } catch (error) {
      // Any other fault lies in the reader.
      const isHung = error instanceof CommandError && error.outcome === 'took too long'
      if (!isHung || process !== this.#process || !isAlive(process)) return
      this.#options.log('lxcfs answers nothing, it is ended')
      // Pending reads of sandboxes fail when it ends.
      await end(process)
    }
  }

  /**
   * Replaces the files that a running sandbox has mounted by those of `source`; `folders` are those of its control group. A file of the
   * host that a process of the sandbox has open stays: otherwise the memory of that process could not be saved. Returns whether all
   * are replaced.
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

  /** Ends lxcfs. No sandbox may run. */
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
        // A mount that a dead lxcfs has left answers nothing.
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
    // After a start of the server nobody knows which files running sandboxes have mounted.
    if (this.#shown === 'lxcfs' || before !== 'host') this.#generation += 1
  }

  /** Throws after too many ends. */
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

  /** Makes the folder, with the files of the host in both sources. */
  async #makeFolder(): Promise<void> {
    const { dir, hostd } = this.#options
    await mkdir(dir, { recursive: true })
    if (!(await isMounted(dir))) {
      await hostd.runTool({ op: 'mount-tmpfs', target: dir, bytes: folderBytes, inodes: folderInodes, owner: 0 })
    }
    // A restore looks the files up as root of the sandbox.
    await chmod(dir, 0o711)
    for (const source of [this.source, this.#hostSource]) {
      // An lxcfs that is to be adopted is mounted there.
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

  /** Another process reads the file, since an lxcfs that hangs blocks its reader. */
  async #meminfo(timeoutMs: number): Promise<string> {
    return await this.#options.hostd.run(['head', '--bytes=4096', `${this.source}/proc/meminfo`], { timeoutMs })
  }

  async #stop(): Promise<void> {
    const process = this.#process ?? (await this.#recorded())
    this.#process = undefined
    if (process !== undefined) await end(process)
    // The host's files below stay, so that a sandbox that starts just now finds files in any case.
    while (await isMounted(this.source)) await this.#options.hostd.run(['umount', '--lazy', this.source])
    await rm(this.#options.pidFile, { force: true })
  }

  /** The lxcfs of an earlier server, if it answers. */
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

  /** The process of the pid file, if it runs with our arguments. */
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
