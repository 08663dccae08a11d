import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { freePort } from '../support/listen.ts'

/** A model API that can be killed and started again under the same address; see `model-process.ts`. */
export class ModelServer implements AsyncDisposable {
  readonly port: number
  #process: ChildProcess | undefined
  #output = ''

  private constructor(port: number) {
    this.port = port
  }

  static async start(...statuses: string[]): Promise<ModelServer> {
    const server = new ModelServer(await freePort())
    await server.restart(...statuses)
    return server
  }

  get baseUrl(): string {
    return `http://127.0.0.1:${this.port}`
  }

  /** The statuses that it has answered, over all of its lives. */
  get answers(): number[] {
    return this.#output
      .split('\n')
      .filter((line) => /^\d+$/.test(line))
      .map(Number)
  }

  /** After `kill`. */
  async restart(...statuses: string[]): Promise<void> {
    const program = join(import.meta.dirname, 'model-process.ts')
    const child = spawn(process.execPath, [program, String(this.port), ...statuses], {
      // It ends with this process, whose failure it would hide by keeping its output open.
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    this.#process = child
    let said = ''
    await new Promise<void>((resolve, reject) => {
      child.once('exit', () => reject(new Error('the model server ended')))
      child.stdout.on('data', (chunk: Buffer) => {
        said += chunk.toString()
        this.#output += chunk.toString()
        if (said.includes('ready')) resolve()
      })
    })
  }

  async kill(): Promise<void> {
    const child = this.#process
    this.#process = undefined
    if (!child) return
    const ended = once(child, 'exit')
    child.kill('SIGKILL')
    await ended
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill()
  }
}
