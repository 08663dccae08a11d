import { mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { ServiceError } from '../../src/errors.ts'
import { Gateway, startDemoModel, type GatewayOptions, type RecordedUsage } from '../../src/gateway/index.ts'
import { silentLog } from '../../src/lib/log.ts'
import type { AgentCommandInput } from '../../src/protocol/agent.ts'
import { freePort } from '../support/listen.ts'
import { AgentProcess } from './agent-process.ts'

export const token = 'token-of-this-session-5f1c'

const goodbyeTries = 500

type Configure = Extract<AgentCommandInput, { type: 'configure' }>

/** A gateway, a demo model and a folder that stands for the sandbox's disk. */
export class World implements AsyncDisposable {
  readonly folder = mkdtempSync(join(tmpdir(), 'atoll-agent-test-'))
  readonly usage: RecordedUsage[] = []
  /** What the gateway kept out of requests. */
  readonly warnings: string[] = []
  isBudgetSpent = false
  /** Requests that the gateway has had. */
  asked = 0
  readonly pagePort: number
  readonly gatewayUrl: string
  /** `stop` and `start` are what a restart of the server does to the gateway. */
  readonly gateway: { close(): Promise<void>; stop(): Promise<void>; start(): Promise<void> }

  private constructor(pagePort: number, gatewayUrl: string, gateway: World['gateway']) {
    this.pagePort = pagePort
    this.gatewayUrl = gatewayUrl
    this.gateway = gateway
  }

  static async create(upstreams: Pick<GatewayOptions['upstreams'], 'anthropic'> = {}): Promise<World> {
    const pagePort = await freePort()
    const demo = await startDemoModel({ pagePort })
    const options: GatewayOptions = {
      meter: {
        identify() {
          world.asked += 1
          return Promise.resolve({ orgId: 'org-test', sessionId: 'session_test', sandboxId: 'sb-test' })
        },
        checkBudget() {
          if (world.isBudgetSpent) return Promise.reject(new ServiceError('rate_limited', 'All 500 tokens are spent.'))
          return Promise.resolve()
        },
        record(_sessionId, usage) {
          world.usage.push(usage)
          return Promise.resolve()
        },
      },
      upstreams: { ...upstreams, demo: { baseUrl: demo.baseUrl } },
      sandboxAt: () => 'sb-test',
      warnSession: async (_sessionId, _code, message) => void world.warnings.push(message),
      log: silentLog,
    }
    let gateway = new Gateway(options)
    // A port that nobody else gets while the gateway restarts.
    const port = await freePort()
    await gateway.listen({ host: '127.0.0.1', port })
    const world: World = new World(pagePort, `http://127.0.0.1:${port}`, {
      async close() {
        await gateway.close()
        await demo.close()
      },
      stop: () => gateway.close(),
      async start() {
        gateway = new Gateway(options)
        await gateway.listen({ host: '127.0.0.1', port })
      },
    })
    return world
  }

  get cwd(): string {
    return join(this.folder, 'app')
  }

  /** A new process on the same disk, configured. */
  async agent(configure: Partial<Configure> = {}, env: Record<string, string> = {}): Promise<AgentProcess> {
    const agent = this.start(configure, env)
    await agent.event('configured')
    return agent
  }

  /** One that has been sent its configuration. */
  start(configure: Partial<Configure> = {}, env: Record<string, string> = {}): AgentProcess {
    const agent = this.process(configure.harness, env)
    agent.send({
      type: 'configure',
      sessionId: 'session_test',
      harness: 'pi',
      model: { provider: 'demo', id: 'demo' },
      cwd: this.cwd,
      stateDir: join(this.folder, 'agent/.atoll'),
      skillsDir: join(this.folder, 'agent'),
      ...configure,
    })
    return agent
  }

  process(harness = 'pi', more: Record<string, string> = {}): AgentProcess {
    return new AgentProcess({ gatewayUrl: this.gatewayUrl, token, more }, this.folder, harness)
  }

  async page(): Promise<string> {
    const response = await fetch(`http://127.0.0.1:${this.pagePort}/`)
    return response.text()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const pid of processes(`http.server\0${this.pagePort}`)) killed(pid)
    await this.gateway.close()
    // A harness's own program outlives the agent for a moment, and writes home.
    for (let tries = 0; tries < goodbyeTries && isAnyoneIn(this.folder); tries += 1) await sleep(20)
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 })
    rmSync(`/tmp/demo-server-${this.pagePort}.log`, { force: true })
  }
}

/** It may have ended meanwhile. */
function killed(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}

function isAnyoneIn(folder: string): boolean {
  return readdirSync('/proc').some((name) => {
    try {
      return readlinkSync(`/proc/${name}/cwd`).startsWith(folder)
    } catch {
      return false
    }
  })
}

/** Processes whose command line holds a text; arguments are separated by NUL. */
export function processes(text: string): number[] {
  const found: number[] = []
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue
    try {
      if (readFileSync(`/proc/${name}/cmdline`, 'utf8').includes(text)) found.push(Number(name))
    } catch {
      // It has ended meanwhile.
    }
  }
  return found
}
