import { spawn, type ChildProcessByStdio } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import type { Readable, Writable } from 'node:stream'
import {
  encodeAgentLine,
  parseAgentEvent,
  type AgentCommandInput,
  type AgentEvent,
  type AgentEventOf,
} from '../../src/protocol/agent.ts'
import { LineSplitter } from '../../src/protocol/line-splitter.ts'

/** The installed copy when there is one to be tested, else the sources. */
const entry = process.env['ATOLL_AGENT_DIR']
  ? join(process.env['ATOLL_AGENT_DIR'], 'app/src/agent/start.mjs')
  : join(import.meta.dirname, '../../src/agent/start.mjs')

const waitMs = 180_000

/** A real agent process, spoken to as the server does. */
export class AgentProcess implements AsyncDisposable {
  readonly events: AgentEvent[] = []
  /** Pieces of answers as they were written, kept apart: how many there are depends on the machine. */
  readonly drafts: AgentEventOf<'assistant_draft'>[] = []
  /** Lines of standard output that are not events: there must be none. */
  readonly rejected: string[] = []
  stderr = ''
  readonly #child: ChildProcessByStdio<Writable, Readable, Readable>
  readonly #ended: Promise<unknown>
  #watchers: (() => void)[] = []

  constructor(
    environment: { gatewayUrl: string; token: string; more?: Record<string, string> },
    folder: string,
    harness = 'pi',
  ) {
    this.#child = spawn(process.execPath, [entry, harness], {
      stdio: ['pipe', 'pipe', 'pipe'],
      // As the guest starts it: in a session and a process group of its own.
      detached: true,
      cwd: folder,
      env: {
        PATH: process.env['PATH'] ?? '',
        HOME: folder,
        ATOLL_GATEWAY_URL: environment.gatewayUrl,
        ATOLL_GATEWAY_TOKEN: environment.token,
        ...environment.more,
      },
    })
    this.#ended = once(this.#child, 'exit')
    const splitter = new LineSplitter()
    this.#child.stdout.on('data', (chunk: Buffer) => {
      for (const line of splitter.push(chunk)) {
        const parsed = line.type === 'line' ? parseAgentEvent(line.text) : undefined
        if (parsed?.ok && parsed.value.type === 'assistant_draft') this.drafts.push(parsed.value)
        else if (parsed?.ok) this.events.push(parsed.value)
        else this.rejected.push(parsed ? parsed.reason : 'too long')
      }
      for (const watcher of this.#watchers) watcher()
    })
    this.#child.stderr.on('data', (chunk: Buffer) => (this.stderr += chunk.toString()))
    // A killed process breaks the pipe under a command that is on its way.
    this.#child.stdin.on('error', () => {})
  }

  get pid(): number {
    return this.#child.pid!
  }

  send(command: AgentCommandInput): void {
    this.#child.stdin.write(encodeAgentLine(command))
  }

  sendRaw(text: string): void {
    this.#child.stdin.write(text)
  }

  /** The first event of a type, from `from` on, for which `test` holds. */
  async event<Type extends AgentEvent['type']>(
    type: Type,
    test: (event: AgentEventOf<Type>) => boolean = () => true,
    from = 0,
  ): Promise<AgentEventOf<Type>> {
    for (;;) {
      const found = this.events.slice(from).find((event) => event.type === type && test(event as AgentEventOf<Type>))
      if (found) return found as AgentEventOf<Type>
      await this.#changed(type)
    }
  }

  /** Sends a message and returns all events up to its `turn_complete`. */
  async turn(messageId: string, content: string): Promise<AgentEvent[]> {
    const from = this.events.length
    this.send({ type: 'message', messageId, content })
    await this.event('turn_complete', (event) => event.message_id === messageId, from)
    return this.events.slice(from)
  }

  signal(name: NodeJS.Signals): void {
    this.#child.kill(name)
  }

  async kill(): Promise<void> {
    this.#child.kill('SIGKILL')
    await this.#ended
  }

  /** Asks the process to end; returns its exit status. */
  async shutdown(): Promise<number | null> {
    this.send({ type: 'shutdown' })
    await this.#ended
    return this.#child.exitCode
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#child.exitCode === null && this.#child.signalCode === null) await this.kill()
  }

  async #changed(awaited: string): Promise<void> {
    const change = Promise.withResolvers<void>()
    const describe = () => JSON.stringify(this.events.slice(-5)).slice(0, 3000)
    const timer = setTimeout(
      () => change.reject(new Error(`No ${awaited} came. Last events: ${describe()}\n${this.stderr}`)),
      waitMs,
    )
    const watcher = () => change.resolve()
    this.#watchers.push(watcher)
    try {
      await Promise.race([
        change.promise,
        this.#ended.then(() => {
          throw new Error(`The agent ended before ${awaited}. ${describe()}\n${this.stderr}`)
        }),
      ])
    } finally {
      clearTimeout(timer)
      this.#watchers = this.#watchers.filter((other) => other !== watcher)
    }
  }
}
