import { setTimeout as sleep } from 'node:timers/promises'
import { methods, type ContentBlock } from '@agentclientprotocol/sdk'
import type { HarnessEvent, HarnessSession, HarnessSettings, Turn, TurnOutcome } from '../harness.ts'
import { ModelProxy, type ModelCalls } from '../model-proxy.ts'
import { skillPaths, sandboxPrompt } from '../instructions.ts'
import { toolNames } from '../../protocol/agent.ts'
import { connectAcp, isClosed, type AcpConnection } from './connection.ts'
import { programEnvironment } from './process.ts'
import { AcpEvents } from './events.ts'

/** A program that has not ended its turn by then is killed. The server waits 400 ms before it kills this process. */
const cancelMs = 250

/** One conversation with an agent program. */
export class AcpSession implements HarnessSession {
  readonly tools: string[]
  readonly model: string
  readonly #command: readonly [string, ...string[]]
  readonly #settings: HarnessSettings
  readonly #proxy: ModelProxy
  #connection: AcpConnection
  /** Whether the program has had the introduction: ACP has no system prompt. */
  #isIntroduced: boolean

  static async open(command: readonly [string, ...string[]], settings: HarnessSettings): Promise<AcpSession> {
    const proxy = await ModelProxy.start(settings.gateway)
    try {
      const connection = await connectAcp(command, settings, environment(settings, proxy))
      return new AcpSession(command, settings, proxy, connection)
    } catch (error) {
      await proxy.close()
      throw error
    }
  }

  private constructor(
    command: readonly [string, ...string[]],
    settings: HarnessSettings,
    proxy: ModelProxy,
    connection: AcpConnection,
  ) {
    this.#command = command
    this.#settings = settings
    this.#proxy = proxy
    this.#connection = connection
    this.#isIntroduced = !connection.isNew
    const { provider, id } = settings.model
    this.model = provider === 'demo' ? 'demo' : `${provider}/${id}`
    this.tools = toolNames.filter((name) => settings.allowedTools?.includes(name) ?? true)
  }

  get sessionId(): string {
    return this.#connection.sessionId.slice(0, 200)
  }

  async run(turn: Turn, emit: (event: HarnessEvent) => void, signal: AbortSignal): Promise<TurnOutcome> {
    const calls = this.#proxy.beginTurn(this.#settings.maxTurns ?? Number.POSITIVE_INFINITY, () => limit.abort())
    const limit = new AbortController()
    if (signal.aborted) return outcome('interrupted', '', calls)
    if (this.#connection.process.isOver) await this.#reconnect()
    const events = new AcpEvents(this.#settings, emit)
    const connection = this.#connection
    connection.onUpdate = (update) => events.take(update)
    try {
      const failure = await this.#ask(connection, turn, AbortSignal.any([signal, limit.signal]))
      events.end()
      if (signal.aborted) return outcome('interrupted', events.lastText, calls)
      if (calls.stoppedAtMax) return outcome('error_max_turns', events.lastText, calls)
      const error = calls.failure ?? (failure && { code: 'agent_error', message: failure })
      if (!error) return outcome('success', events.lastText, calls)
      emit({ type: 'error', ...error, message: error.message.slice(0, 4000), fatal: false })
      return outcome('error_during_execution', error.message.slice(0, 4000), calls)
    } finally {
      connection.onUpdate = undefined
    }
  }

  async close(): Promise<void> {
    this.#connection.process.kill()
    await this.#connection.process.ended
    await this.#proxy.close()
  }

  /** Returns the reason of a failed turn. The death of the program is a failure as well. */
  async #ask(connection: AcpConnection, turn: Turn, signal: AbortSignal): Promise<string | undefined> {
    const { agent, sessionId, process: program } = connection
    const asked = agent.request(methods.agent.session.prompt, { sessionId, prompt: this.#prompt(turn) }).then(
      ({ stopReason }) => (stopReason === 'refusal' ? 'The agent refuses to go on.' : undefined),
      async (error: unknown) => (isClosed(error) ? await program.endReason() : undefined) ?? describe(error),
    )
    this.#isIntroduced = true
    const stop = Promise.withResolvers<undefined>()
    const onAbort = () => {
      stop.resolve(undefined)
    }
    signal.addEventListener('abort', onAbort, { once: true })
    if (signal.aborted) onAbort()
    try {
      const failure = await Promise.race([asked, program.ended, stop.promise])
      if (!signal.aborted) return failure
      await agent.notify(methods.agent.session.cancel, { sessionId })
      const isStopped = await Promise.race([asked.then(() => true), sleep(cancelMs, false)])
      if (!isStopped) {
        program.kill()
        await program.ended
      }
      return undefined
    } finally {
      signal.removeEventListener('abort', onAbort)
    }
  }

  async #reconnect(): Promise<void> {
    const env = environment(this.#settings, this.#proxy)
    this.#connection = await connectAcp(this.#command, this.#settings, env)
    this.#isIntroduced = !this.#connection.isNew
  }

  #prompt(turn: Turn): ContentBlock[] {
    const texts = [turn.content]
    if (turn.resumed) texts.unshift(reminder(interruptedWork))
    if (!this.#isIntroduced) texts.unshift(reminder(introduction(this.#settings)))
    return texts.map((text) => ({ type: 'text', text }))
  }
}

const interruptedWork = `You were stopped in the middle of work on the following message. What you have done so far stands: look at it
before you do anything again.`

function introduction({ systemPrompt, skillsDir, skillFiles }: HarnessSettings): string {
  const skills = skillPaths(skillsDir, skillFiles ?? [])
  const list = skills.length === 0 ? '' : `Read these skills when they fit the task:\n${skills.join('\n')}`
  return [sandboxPrompt, systemPrompt ?? '', list].filter((part) => part !== '').join('\n\n')
}

function reminder(text: string): string {
  return `<system-reminder>\n${text}\n</system-reminder>`
}

function environment({ model }: HarnessSettings, proxy: ModelProxy): NodeJS.ProcessEnv {
  return programEnvironment(process.env, model.id, proxy)
}

function outcome(subtype: TurnOutcome['subtype'], result: string, calls: ModelCalls): TurnOutcome {
  return { subtype, result, turnCount: calls.count, usage: { ...calls.usage } }
}

function describe(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
