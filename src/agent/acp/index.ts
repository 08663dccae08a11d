/**
 * Harness `acp:<command>`: any agent program that speaks the Agent Client Protocol on its standard input and output. The
 * program is a child of this process and lives from `open` to `close`. The next turn restarts a program that has died.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { methods, type ContentBlock } from '@agentclientprotocol/sdk'
import {
  allowedTools,
  modelName,
  type Harness,
  type HarnessEvent,
  type HarnessSession,
  type HarnessSettings,
  type TurnInput,
  type TurnOutcome,
} from '../harness.ts'
import { promptWithSkills } from '../instructions.ts'
import { ModelProxy } from '../model-proxy.ts'
import { killGroup } from '../process-groups.ts'
import { connectAcp, isClosed, type AcpConnection } from './connection.ts'
import { AcpEvents } from './events.ts'
import { acpCommand, programEnvironment } from './process.ts'

/** The version of the protocol. Programs report their own. */
const acpVersion = '1'

/** A program that has not ended its turn by then is killed. The server waits 400 ms before it kills this process. */
const cancelMs = 250

export function acpHarness(name: string): Harness {
  return {
    name,
    version: acpVersion,
    async open(settings) {
      const command = acpCommand(name)
      if (!command) throw new Error('acp: must be followed by the command of an agent.')
      const proxy = await ModelProxy.start(settings.gateway)
      const environment = programEnvironment(process.env, settings.model.id, proxy)
      const connect = () => connectAcp(command, settings, environment, (program) => proxy.admit(() => program.pid))
      try {
        return new AcpSession(settings, proxy, connect, await connect())
      } catch (error) {
        await proxy.close()
        throw error
      }
    },
  }
}

/** One conversation with an agent program. */
class AcpSession implements HarnessSession {
  readonly tools: string[]
  readonly model: string
  readonly #settings: HarnessSettings
  readonly #proxy: ModelProxy
  readonly #connect: () => Promise<AcpConnection>
  #connection: AcpConnection
  /** Whether the program has had the introduction: ACP has no system prompt. */
  #isIntroduced: boolean

  constructor(
    settings: HarnessSettings,
    proxy: ModelProxy,
    connect: () => Promise<AcpConnection>,
    connection: AcpConnection,
  ) {
    this.#settings = settings
    this.#proxy = proxy
    this.#connect = connect
    this.#connection = connection
    this.#isIntroduced = !connection.isNew
    this.model = modelName(settings)
    this.tools = allowedTools(settings)
  }

  get sessionId(): string {
    return this.#connection.sessionId.slice(0, 200)
  }

  async run(turn: TurnInput, emit: (event: HarnessEvent) => void, signal: AbortSignal): Promise<TurnOutcome> {
    const limit = new AbortController()
    const calls = this.#proxy.beginTurn(this.#settings.maxTurns ?? Number.POSITIVE_INFINITY, () => limit.abort())
    const events = new AcpEvents(this.#settings, emit)
    let failure: string | undefined
    if (!signal.aborted) {
      if (this.#connection.process.isOver) await this.#reconnect()
      const connection = this.#connection
      connection.onUpdate = (update) => events.take(update)
      connection.process.onLeftOut = (bytes) => events.leftOut(`a message of the agent with ${bytes} bytes`)
      try {
        failure = await this.#ask(connection, turn, AbortSignal.any([signal, limit.signal]))
        events.end()
      } finally {
        connection.onUpdate = undefined
        connection.process.onLeftOut = undefined
      }
    }
    return events.outcome({ turnCount: calls.count, usage: { ...calls.usage } }, events.lastText, {
      interrupted: signal.aborted,
      stoppedAtMax: calls.stoppedAtMax,
      failure: calls.failure ?? (failure === undefined ? undefined : { code: 'agent_error', message: failure }),
    })
  }

  async close(): Promise<void> {
    this.#connection.process.kill()
    await this.#connection.process.ended
    await this.#proxy.close()
  }

  /** Returns the reason of a failed turn. The death of the program is a failure as well. */
  async #ask(connection: AcpConnection, turn: TurnInput, signal: AbortSignal): Promise<string | undefined> {
    const { agent, sessionId, process: program } = connection
    const earlier = program.commandGroups
    const asked = agent.request(methods.agent.session.prompt, { sessionId, prompt: this.#prompt(turn) }).then(
      ({ stopReason }) => (stopReason === 'refusal' ? 'The agent refuses to go on.' : undefined),
      async (error: unknown) =>
        (isClosed(error) ? await program.endReason() : undefined) ??
        (error instanceof Error ? error.message : String(error)),
    )
    this.#isIntroduced = true
    const stop = Promise.withResolvers<undefined>()
    const onAbort = () => stop.resolve(undefined)
    signal.addEventListener('abort', onAbort, { once: true })
    if (signal.aborted) onAbort()
    try {
      const failure = await Promise.race([asked, program.ended, stop.promise])
      if (!signal.aborted) return failure
      await agent.notify(methods.agent.session.cancel, { sessionId })
      const isStopped = await Promise.race([asked.then(() => true), sleep(cancelMs, false)])
      // A program may answer, or be killed, and leave a command running.
      const left = [...program.commandGroups].filter((group) => !earlier.has(group))
      if (!isStopped || left.length > 0) {
        for (const group of left) killGroup(group)
        program.kill()
        await program.ended
      }
      return undefined
    } finally {
      signal.removeEventListener('abort', onAbort)
    }
  }

  async #reconnect(): Promise<void> {
    this.#connection = await this.#connect()
    this.#isIntroduced = !this.#connection.isNew
  }

  #prompt(turn: TurnInput): ContentBlock[] {
    const texts = [turn.content]
    if (turn.resumed) texts.unshift(reminder(interruptedWork))
    if (!this.#isIntroduced) texts.unshift(reminder(promptWithSkills(this.#settings)))
    return texts.map((text) => ({ type: 'text', text }))
  }
}

const interruptedWork = `You were stopped in the middle of work on the following message. What you have done so far stands: look at it
before you do anything again.`

function reminder(text: string): string {
  return `<system-reminder>\n${text}\n</system-reminder>`
}
