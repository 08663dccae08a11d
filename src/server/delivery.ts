import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import type { Log } from '../lib/log.ts'
import { findSystemUser } from '../lib/system-user.ts'
import { Cgroups } from '../runtime/cgroups/index.ts'
import { entered, ServiceGroup } from '../runtime/cgroups/service-group.ts'
import { HostNames } from '../runtime/host-names.ts'
import type { DeliveryOrders, DeliveryReport } from '../webhook/delivery/orders.ts'

const program = fileURLToPath(new URL('../webhook/delivery/main.ts', import.meta.url))
const memoryBytes = 384 * 1024 * 1024
const tasksMax = 128
const firstPauseMs = 200
const pauseMaxMs = 30_000
/** A process that has run for so long has not failed at its start. */
const settledMs = 60_000
const stopGraceMs = 2000
/** Added to that, for the process to be gone. */
const killMs = 1000

interface DeliveryOptions extends Omit<Extract<DeliveryOrders, { type: 'start' }>, 'type' | 'user'> {
  dataDir: string
  log: Log
}

/**
 * The process that sends webhooks. It is no root: it has a user, a role in the private database and a control group of its own, no capability and
 * no way to gain one, and nothing of this process's environment but what TLS needs. It ends with this process, and is started again with growing
 * pauses when it ends by itself.
 *
 *     idle ── start ──► running ⇄ pausing
 *                          └────────┴── close ──► closed
 */
export class DeliveryProcess {
  readonly #options: DeliveryOptions
  readonly #closing = new AbortController()
  #supervised: Promise<void> | undefined
  #child: ChildProcess | undefined

  constructor(options: DeliveryOptions) {
    this.#options = options
  }

  /** Harmless when it runs. */
  start(): void {
    if (this.#closing.signal.aborted) return
    this.#supervised ??= this.#supervise()
  }

  /** Ends the process after the attempts under way, or some seconds. */
  async close(): Promise<void> {
    this.#closing.abort()
    const child = this.#child
    if (child?.connected) child.send({ type: 'stop', graceMs: stopGraceMs } satisfies DeliveryOrders)
    await this.#supervised
  }

  async #supervise(): Promise<void> {
    const { log } = this.#options
    const { signal } = this.#closing
    const group = await this.#group()
    let pauseMs = firstPauseMs
    while (!signal.aborted) {
      const begunMs = performance.now()
      try {
        await this.#run(await group.open())
      } catch (error) {
        log.error({ err: error }, 'the process that sends webhooks could not be started')
      }
      if (signal.aborted) break
      if (performance.now() - begunMs > settledMs) pauseMs = firstPauseMs
      log.warn({ pauseMs }, 'the process that sends webhooks has ended; it is started again')
      await sleep(pauseMs, undefined, { signal }).catch(() => undefined)
      pauseMs = Math.min(2 * pauseMs, pauseMaxMs)
    }
    await group.remove().catch((error: unknown) => log.warn({ err: error }, 'the control group of webhooks is left'))
  }

  async #group(): Promise<ServiceGroup> {
    const { deliveryGroup } = new HostNames(this.#options.dataDir)
    return new ServiceGroup(await Cgroups.find(), deliveryGroup, { memoryBytes, processes: tasksMax })
  }

  /** Until it has ended. */
  async #run(groupFolders: readonly string[]): Promise<void> {
    const { databaseUrl, secret, targets, userAgent, log } = this.#options
    const { NODE_EXTRA_CA_CERTS: extraCertificates, PATH } = process.env
    const user = await findSystemUser('webhooks')
    const rights = ['--pdeathsig=KILL', '--inh-caps=-all', '--bounding-set=-all,+setuid,+setgid', '--no-new-privs']
    const argv = ['setpriv', ...rights, '--', process.execPath, '--max-old-space-size=192', program]
    const [command, ...args] = entered(groupFolders, argv)
    const child = spawn(command, args, {
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
      env: { PATH, ...(extraCertificates === undefined ? {} : { NODE_EXTRA_CA_CERTS: extraCertificates }) },
    })
    this.#child = child
    child.stderr?.setEncoding('utf8').on('data', (text: string) => log.warn({ text: text.slice(0, 2000) }, 'webhooks'))
    child.on('message', (message) => {
      const report = message as DeliveryReport
      if (report.type === 'trouble') log.warn({ reason: report.message }, 'the process that sends webhooks has trouble')
      if (report.type === 'waiting' && child.connected) {
        child.send({ type: 'start', databaseUrl, secret, targets, userAgent, user } satisfies DeliveryOrders)
      }
    })
    const kill = () => setTimeout(() => child.kill('SIGKILL'), stopGraceMs + killMs).unref()
    this.#closing.signal.addEventListener('abort', kill, { once: true })
    try {
      await once(child, 'close')
    } finally {
      this.#closing.signal.removeEventListener('abort', kill)
      this.#child = undefined
    }
  }
}
