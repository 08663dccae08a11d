import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import type { ShippedMachine } from './machine.ts'

const startTimeoutMs = 300_000
const logTimeoutMs = 120_000

/** `npm start` on a shipped machine, by somebody who reads what it prints. */
export class ShippedServer {
  readonly url: string
  /** The key that it has printed; empty when it has none to show. */
  readonly freshKey: string
  readonly #machine: ShippedMachine
  readonly #process: ChildProcess
  readonly #output: () => string

  private constructor(machine: ShippedMachine, process: ChildProcess, output: () => string) {
    const [, url = ''] = /^Atoll serves at (\S+)/m.exec(output()) ?? []
    this.url = url
    this.freshKey = /^API key, shown this once: (\S+)$/m.exec(output())?.[1] ?? ''
    this.#machine = machine
    this.#process = process
    this.#output = output
  }

  /** Returns when it has said how to use it. */
  static async start(machine: ShippedMachine): Promise<ShippedServer> {
    const child = machine.spawn({ stdio: 'pipe' }, 'npm', 'start')
    let output = ''
    const keep = (chunk: Buffer) => (output += chunk.toString())
    child.stdout?.on('data', keep)
    child.stderr?.on('data', keep)
    const until = Date.now() + startTimeoutMs
    while (!/^Create a session:$/m.test(output)) {
      const hasEnded = child.exitCode !== null || child.signalCode !== null
      if (hasEnded || Date.now() > until) throw new Error(`npm start does not serve:\n${output}`)
      await sleep(20)
    }
    return new ShippedServer(machine, child, () => output)
  }

  /** All that it has printed so far. */
  get output(): string {
    return this.#output()
  }

  /** Waits until it has printed some words. */
  async logs(words: string): Promise<void> {
    const until = Date.now() + logTimeoutMs
    while (!this.output.includes(words)) {
      if (Date.now() > until) throw new Error(`${words}: the server does not say so:\n${this.output}`)
      await sleep(20)
    }
  }

  /** The numbers of its processes that run a program; npm is what it was started by. */
  async pidsOf(program: string): Promise<number[]> {
    const pids: number[] = []
    for (const server of await childrenOf(this.#process.pid)) {
      for (const pid of await childrenOf(server)) {
        if ((await readFile(`/proc/${pid}/comm`, 'utf8').catch(() => '')) === `${program}\n`) pids.push(pid)
      }
    }
    return pids
  }

  /** Calls its API with a JSON body and returns the answer's. */
  async json(key: string, method: string, path: string, body: unknown = {}): Promise<unknown> {
    const headers = ['--header', `X-API-Key: ${key}`, '--header', 'Content-Type: application/json']
    const request = ['--request', method, '--data', JSON.stringify(body), this.url + path]
    const answer = await this.#machine.run(
      'curl',
      '--silent',
      '--show-error',
      '--fail-with-body',
      ...headers,
      ...request,
    )
    return answer === '' ? undefined : JSON.parse(answer)
  }

  /** Ends it by Ctrl-C and returns its exit status. */
  async stop(): Promise<number | null> {
    this.#signal('SIGINT')
    return await this.#ended()
  }

  /** Ends it as a crash would. */
  async kill(): Promise<void> {
    this.#signal('SIGKILL')
    await this.#ended()
  }

  #signal(name: 'SIGINT' | 'SIGKILL'): void {
    if (this.#process.pid !== undefined) process.kill(-this.#process.pid, name)
  }

  async #ended(): Promise<number | null> {
    if (this.#process.exitCode === null && this.#process.signalCode === null) await once(this.#process, 'exit')
    return this.#process.exitCode
  }
}

async function childrenOf(pid = 0): Promise<number[]> {
  const children = await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8').catch(() => '')
  return children.split(' ').filter(Boolean).map(Number)
}
