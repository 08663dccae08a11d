import type { FakeProcess } from './fake-process.ts'

interface Command {
  type: string
  messageId?: string
  content?: string
}

/**
 * An agent as `protocol/agent.ts` wants it, without a model: it answers `configure`, journals its turns on the sandbox's
 * disk, and plays the turn that `script` gives for a message.
 */
export class FakeAgent {
  readonly process: FakeProcess
  readonly commands: Command[] = []
  readonly #journal: Map<string, 'started' | 'finished'>
  readonly #script: AgentScript
  #running: string | undefined

  constructor(process: FakeProcess, journal: Map<string, 'started' | 'finished'>, script: AgentScript) {
    this.process = process
    this.#journal = journal
    this.#script = script
    process.onSignal = (signal) => script.signal?.(this, signal) ?? true
    process.onLine = (line) => this.#command(JSON.parse(line) as Command)
    this.emit({ type: 'ready', harness: 'pi', version: '1' })
  }

  emit(event: object): void {
    this.process.write(`${JSON.stringify(event)}\n`)
  }

  say(text: string): void {
    this.emit({
      type: 'assistant',
      message: { role: 'assistant', content: [{ type: 'text', text }] },
      session_id: 'agent-1',
    })
  }

  result(subtype = 'success', result = 'done'): void {
    const usage = { input_tokens: 3, cache_read_input_tokens: 0, cache_creation_input_tokens: 0, output_tokens: 2 }
    this.emit({ type: 'result', subtype, result, num_turns: 1, duration_ms: 5, usage, session_id: 'agent-1' })
  }

  /** Ends the running turn. */
  finish(subtype = 'success', result = 'done'): void {
    const messageId = this.#running
    if (messageId === undefined) return
    this.#running = undefined
    this.result(subtype, result)
    this.#journal.set(messageId, 'finished')
    this.emit({ type: 'turn_complete', message_id: messageId, session_id: 'agent-1' })
  }

  #command(command: Command): void {
    this.commands.push(command)
    if (command.type === 'configure') {
      if (this.#script.configure?.(this) === false) return
      this.emit({ type: 'configured', model: 'demo', tools: ['bash'], cwd: '/workspace/app' })
    }
    if (command.type === 'interrupt' && this.#running === command.messageId) {
      if (this.#script.interrupt?.(this) !== false) this.finish('interrupted', '')
    }
    if (command.type === 'message') this.#message(command.messageId!, command.content!)
  }

  #message(messageId: string, content: string): void {
    const state = this.#journal.get(messageId)
    if (state === 'finished') {
      this.emit({ type: 'turn_complete', message_id: messageId, session_id: 'agent-1' })
      return
    }
    this.emit({ type: 'turn_started', message_id: messageId })
    if (this.#running === messageId) return
    this.#journal.set(messageId, 'started')
    this.#running = messageId
    this.#script.turn(this, content, state === 'started')
  }
}

export interface AgentScript {
  /** `false` when the script has answered itself, or answers nothing. */
  configure?: (agent: FakeAgent) => boolean | void
  turn: (agent: FakeAgent, content: string, resumed: boolean) => void
  /** `false` when the agent does not end its turn. */
  interrupt?: (agent: FakeAgent) => boolean | void
  /** `false` when the agent ignores the signal; SIGKILL is not asked about. */
  signal?: (agent: FakeAgent, signal: number) => boolean
}

/** Says something, uses a tool, writes a file, and is done. */
export const answering: AgentScript = {
  turn(agent, content) {
    agent.say(`working on ${content}`)
    agent.emit({
      type: 'tool_use_summary',
      tool: 'write',
      tool_use_id: 't1',
      summary: `wrote ${content}`,
      is_error: false,
      duration_ms: 1,
    })
    agent.emit({ type: 'artifact', path: `/workspace/app/${content}.html`, summary: content })
    agent.say(`done with ${content}`)
    agent.finish()
  },
}
