/** A server on a volatile disk, whose power can be cut. */
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { HostNames } from '../../src/runtime/host-names.ts'
import { AtollServer } from '../e2e/server.ts'
import { type Cut, type CutKind, VolatileDisk } from '../support/volatile-disk.ts'
import { endMachine, forgetBoot } from './dead-host.ts'

const run = promisify(execFile)
const diskMb = 8192
const poolMb = 5120

export class Machine implements AsyncDisposable {
  readonly disk: VolatileDisk
  readonly server: AtollServer
  #isUp = true

  private constructor(disk: VolatileDisk, server: AtollServer) {
    this.disk = disk
    this.server = server
  }

  /** Without a key the server makes the first one itself: it is one of the things that must not be lost. */
  static async start(key = ''): Promise<Machine> {
    await using stack = new AsyncDisposableStack()
    const disk = stack.use(await VolatileDisk.make(diskMb))
    const env = { ATOLL_DISK_POOL_MB: String(poolMb), ATOLL_REQUESTS_PER_SECOND: '100000' }
    stack.defer(() => endMachine(new HostNames(disk.dataDir)))
    const server = await AtollServer.start({ dataDir: disk.dataDir, keepsData: true, env, key })
    stack.move()
    return new Machine(disk, server)
  }

  /** The power goes after so many more writes of the disk. `gone` is called before anything that waits for the disk can go on. */
  async cut(kind: CutKind, seed: number, afterWrites = 0, gone = () => {}): Promise<Cut> {
    const cut = await this.disk.cut(kind, seed, afterWrites)
    gone()
    await this.#off()
    return cut
  }

  async #off(): Promise<void> {
    this.#isUp = false
    await this.disk.release()
    await endMachine(new HostNames(this.disk.dataDir), this.server)
    await this.disk.detach()
  }

  /** Begins the first start of a server, on an empty directory, and does not wait for it. */
  async startAnew(): Promise<void> {
    await this.server.stop()
    await endMachine(new HostNames(this.disk.dataDir), this.server)
    for (const name of await readdir(this.disk.dataDir)) await rm(join(this.disk.dataDir, name), { recursive: true })
    await run('sync', ['--file-system', this.disk.dataDir])
    // It ends with the power, or is ready before.
    void this.server.restart().catch(() => undefined)
  }

  /** The next boot, up to a server that is ready. */
  async boot(): Promise<void> {
    await this.disk.attach()
    await forgetBoot(this.disk.dataDir)
    const pool = join(this.disk.dataDir, 'pool.img')
    if (existsSync(pool)) assert.match((await run('btrfs', ['check', '--readonly', pool])).stdout, /no error found/)
    this.#isUp = true
    await this.server.restart()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    try {
      if (this.#isUp) await this.cut('all', 0)
    } finally {
      await this.disk[Symbol.asyncDispose]()
    }
  }
}
