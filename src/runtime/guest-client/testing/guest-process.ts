import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { connect, type Socket } from 'node:net'
import { arch, tmpdir } from 'node:os'
import { join } from 'node:path'
import { after } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Guest, ProcessInfo, ProcessOutput, SpawnRequest } from '../../../sandbox/ports/guest.ts'
import { createGuest } from '../guest.ts'

const triple = `${arch() === 'arm64' ? 'aarch64' : 'x86_64'}-unknown-linux-gnu`
const built = join(import.meta.dirname, '../../../../target', triple, 'guest/atoll-guest')

/** The real guest as an ordinary process of this machine, for tests: it supervises its own descendants only. */
export class GuestProcess {
  readonly #child: ChildProcess
  readonly #isInit: boolean
  readonly folder: string
  readonly socketPath: string
  readonly guest: Guest
  #runs = 0

  private constructor(child: ChildProcess, isInit: boolean, folder: string, socketPath: string) {
    this.#child = child
    this.#isInit = isInit
    this.folder = folder
    this.socketPath = socketPath
    this.guest = createGuest(() => this.dial())
  }

  /**
   * With `asInit` it is PID 1 of a namespace of its own, which needs root; with `stale` a file is in its socket's place;
   * with `owning` its socket lies as in a sandbox, in `.atoll/run/` of its folder.
   */
  static async start({ asInit = false, stale = false, owning = false } = {}): Promise<GuestProcess> {
    const binary = process.env['ATOLL_GUEST_BIN'] ?? built
    assert.ok(
      existsSync(binary),
      `no guest at ${binary}: build it with RUSTFLAGS='-C target-feature=+crt-static' ` +
        `cargo build --profile guest --package atoll-guest --offline --target ${triple}, or set ATOLL_GUEST_BIN`,
    )
    const folder = await mkdtemp(join(tmpdir(), 'atoll-guest-'))
    const socketFolder = owning ? join(folder, '.atoll/run') : folder
    await mkdir(socketFolder, { recursive: true })
    const socketPath = join(socketFolder, 'guest.sock')
    if (stale) await writeFile(socketPath, '')
    const argv = [binary, '--socket', socketPath]
    if (asInit) argv.unshift('unshare', '--pid', '--fork', '--mount-proc', '--kill-child')
    const child = spawn(argv[0] ?? '', argv.slice(1), { stdio: ['ignore', 'ignore', 'inherit'] })
    // Also when a test ends without its cleanup.
    process.once('exit', () => child.kill('SIGKILL'))
    const started = new GuestProcess(child, asInit, folder, socketPath)
    for (;;) {
      assert.equal(child.exitCode, null, 'the guest ended at once')
      try {
        await started.guest.hello()
        return started
      } catch {
        await sleep(5)
      }
    }
  }

  /** Ends after the last test of the file. */
  static async startForFile(): Promise<GuestProcess> {
    const started = await GuestProcess.start()
    after(() => started[Symbol.asyncDispose]())
    return started
  }

  /** Runs a process to its end. */
  async run(argv: string[], request: Partial<SpawnRequest> = {}): Promise<ProcessInfo & ProcessOutput> {
    const id = `run-${++this.#runs}`
    await this.guest.spawn({ id, argv, envs: {}, ...request })
    return { ...(await this.guest.process(request.id ?? id, 60_000)), ...(await this.guest.output(request.id ?? id)) }
  }

  get pid(): number {
    return this.#child.pid ?? 0
  }

  get alive(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null
  }

  async dial(): Promise<Socket> {
    const socket = connect({ path: this.socketPath, allowHalfOpen: true })
    await once(socket, 'connect')
    return socket
  }

  /** Open files of the guest. */
  async openFiles(): Promise<number> {
    return (await readdir(`/proc/${this.pid}/fd`)).length
  }

  async threads(): Promise<number> {
    return (await readdir(`/proc/${this.pid}/task`)).length
  }

  /** Its children as `<state> <command>`, such as `Z true`. */
  async children(): Promise<string[]> {
    const found: string[] = []
    for (const name of await readdir('/proc')) {
      if (!/^\d+$/.test(name)) continue
      const stat = await readFile(`/proc/${name}/stat`, 'utf8').catch(() => '')
      const [, command, state, parent] = /\((.*)\) (\S) (\d+)/s.exec(stat) ?? []
      if (Number(parent) === this.pid) found.push(`${state} ${command}`)
    }
    return found
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.alive) {
      const exited = once(this.#child, 'exit')
      // `unshare` ignores SIGTERM; the init goes with it.
      this.#child.kill(this.#isInit ? 'SIGKILL' : 'SIGTERM')
      await exited
    }
    await rm(this.folder, { recursive: true, force: true })
  }
}

/** A connection to a port of the loopback past the guest, as drivers make it; undefined without a listener. */
export async function connectLocally(port: number): Promise<Socket | undefined> {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true })
  try {
    await once(socket, 'connect')
    return socket.on('error', () => undefined)
  } catch {
    return undefined
  }
}
