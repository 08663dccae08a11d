import { mkdirSync } from 'node:fs'
import { defined } from '../lib/defined.ts'
import { costNanoUsd, noTokens, usd } from '../lib/model-price.ts'
import type { AgentCommand, ConfigureCommand, MessageCommand } from '../protocol/agent.ts'
import { changedFiles } from './changed-files.ts'
import type { Harness, HarnessSession, HarnessSettings, TurnOutcome } from './harness.ts'
import type { Emit } from './output.ts'
import { reportedUsage } from './summary.ts'
import { TurnJournal } from './state-dir.ts'

/** Messages queued while a turn runs. The server sends one at a time, so more than a few is a bug of it. */
const waitingCommandsMax = 16

interface Configured {
  settings: HarnessSettings
  journal: TurnJournal
  /** Absent after a turn that crashed; the next turn opens it again. */
  session: HarnessSession | undefined
  sessionId: string
}

/**
 * Runs the commands of the server as turns of a harness.
 *
 *     unconfigured ──configure──► idle ──message──► running ──end of turn──► idle
 *                                   any ──shutdown──► closed
 *
 * `configure` and `message` run one after another; `interrupt` and `shutdown` act at once.
 */
export class Agent {
  readonly #harness: Harness
  readonly #gateway: HarnessSettings['gateway']
  readonly #emit: Emit
  readonly #waiting: (ConfigureCommand | MessageCommand)[] = []
  /** Queued messages that were interrupted before their turn began. */
  readonly #interrupted = new Set<string>()
  #work: Promise<void> | undefined
  #configured: Configured | undefined
  #configureFailure: string | undefined
  /** `crash` ends the turn after an error that no `catch` received. */
  #running: { messageId: string; abort: AbortController; crash: (error: unknown) => void } | undefined
  #closed = false

  constructor(harness: Harness, gateway: HarnessSettings['gateway'], emit: Emit) {
    this.#harness = harness
    this.#gateway = gateway
    this.#emit = emit
  }

  ready(): void {
    this.#emit({ type: 'ready', harness: this.#harness.name, version: this.#harness.version })
  }

  handle(command: AgentCommand): void {
    if (command.type === 'interrupt') {
      this.#interrupt(command.messageId)
      return
    }
    if (command.type === 'shutdown' || this.#closed) return
    if (command.type === 'message' && this.#holds(command.messageId)) {
      if (this.#running?.messageId === command.messageId) {
        this.#emit({ type: 'turn_started', message_id: command.messageId })
      }
      return
    }
    if (this.#waiting.length >= waitingCommandsMax) {
      this.error('busy', 'Too many messages wait; send the next one after turn_complete.')
      return
    }
    this.#waiting.push(command)
    this.#work ??= this.#drain()
  }

  error(code: string, message: string, fatal = false): void {
    this.#emit({ type: 'error', message: message.slice(0, 4000), code, fatal })
  }

  /** Takes errors that no `catch` received: they belong to the running turn, if there is one. */
  crash(error: unknown): void {
    if (this.#running) this.#running.crash(error)
    else this.error('agent_error', describe(error))
  }

  /** Interrupts the running turn and waits until its end is reported. */
  async close(): Promise<void> {
    this.#closed = true
    this.#waiting.length = 0
    this.#running?.abort.abort()
    await this.#work
    await this.#closeSession()
  }

  async #closeSession(): Promise<void> {
    await this.#configured?.session?.close()
    this.#configured?.journal.close()
    this.#configured = undefined
  }

  #interrupt(messageId: string | undefined): void {
    const current = this.#running?.messageId ?? this.#waiting.find((waiting) => waiting.type === 'message')?.messageId
    const wanted = messageId ?? current
    if (wanted === undefined) return
    if (this.#running?.messageId === wanted) this.#running.abort.abort()
    // A message that still waits for `configure` is interrupted when its turn starts.
    else if (this.#holds(wanted)) this.#interrupted.add(wanted)
  }

  #holds(messageId: string): boolean {
    if (this.#running?.messageId === messageId) return true
    return this.#waiting.some((waiting) => waiting.type === 'message' && waiting.messageId === messageId)
  }

  async #drain(): Promise<void> {
    for (let command = this.#waiting.shift(); command; command = this.#waiting.shift()) {
      try {
        if (command.type === 'configure') await this.#configure(command)
        else await this.#turn(command)
      } catch (error) {
        this.error('agent_error', describe(error))
      }
    }
    this.#work = undefined
  }

  async #configure(command: ConfigureCommand): Promise<void> {
    const { type: _type, sessionId: _sessionId, harness, ...rest } = command
    await this.#closeSession()
    this.#configureFailure = undefined
    if (harness !== this.#harness.name) {
      this.#configureFailure = `This process runs ${this.#harness.name}, not ${harness}.`
      this.error('unknown_harness', this.#configureFailure)
      return
    }
    let journal: TurnJournal | undefined
    try {
      mkdirSync(rest.cwd, { recursive: true })
      journal = new TurnJournal(rest.stateDir)
      const settings: HarnessSettings = { ...rest, gateway: this.#gateway }
      const session = await this.#harness.open(settings)
      this.#configured = { settings, journal, session, sessionId: session.sessionId }
      this.#emit({ type: 'configured', model: session.model, tools: session.tools, cwd: rest.cwd })
    } catch (error) {
      journal?.close()
      this.#configureFailure = describe(error)
      this.error('configure_failed', this.#configureFailure)
    }
  }

  async #turn(command: MessageCommand): Promise<void> {
    const configured = this.#configured
    const { messageId } = command
    if (!configured) {
      this.#refuse(messageId)
      return
    }
    const { journal } = configured
    const state = journal.state(messageId)
    if (state === 'finished') {
      this.#emit({ type: 'turn_complete', message_id: messageId, session_id: journal.sessionId(messageId) })
      return
    }
    const startedAt = performance.now()
    if (state === 'new')
      this.#journal(() => journal.write({ messageId, state: 'started', sessionId: configured.sessionId }))
    const since = journal.writtenMs
    this.#emit({ type: 'turn_started', message_id: messageId })
    const reported = new Set<string>()
    const outcome = await this.#run(configured, command, state === 'started', reported)
    this.#reportChangedFiles(configured.settings.cwd, since, reported)
    const { price } = configured.settings
    if (price) outcome.costUsd = usd(costNanoUsd(price, outcome.usage))
    const { sessionId } = configured
    this.#reportResult(sessionId, outcome, startedAt)
    this.#journal(() => journal.write({ messageId, state: 'finished', sessionId }))
    this.#emit({ type: 'turn_complete', message_id: messageId, session_id: sessionId })
  }

  /** Reports files that no tool has reported: commands create files too. */
  #reportChangedFiles(cwd: string, sinceMs: number, reported: ReadonlySet<string>): void {
    try {
      for (const path of changedFiles(cwd, sinceMs)) {
        if (!reported.has(path)) this.#emit({ type: 'artifact', path, summary: 'Created or changed' })
      }
    } catch (error) {
      // A command may have removed the folder.
      console.error(error)
    }
  }

  #reportResult(sessionId: string, outcome: TurnOutcome, startedAt: number): void {
    this.#emit({
      type: 'result',
      subtype: outcome.subtype,
      result: outcome.result,
      num_turns: outcome.turnCount,
      duration_ms: Math.round(performance.now() - startedAt),
      usage: reportedUsage(outcome.usage),
      ...defined({ total_cost_usd: outcome.costUsd }),
      session_id: sessionId,
    })
  }

  /** Refuses a message without a configuration. After a failed `configure` its turn fails; without a `configure` it is a bug of the server. */
  #refuse(messageId: string): void {
    if (this.#configureFailure === undefined) {
      this.error('not_configured', 'A message came before configure.')
      return
    }
    this.#emit({ type: 'turn_started', message_id: messageId })
    this.error('configure_failed', this.#configureFailure)
    this.#reportResult('', failed(this.#configureFailure), performance.now())
    this.#emit({ type: 'turn_complete', message_id: messageId, session_id: '' })
  }

  /** A full disk must not end a turn: it only means that a repeated message runs again. */
  #journal(write: () => void): void {
    try {
      write()
    } catch (error) {
      this.error('agent_error', `The journal of turns cannot be written: ${describe(error)}`)
    }
  }

  /** Adds the paths of artifacts to `reported`. */
  async #run(
    configured: Configured,
    command: MessageCommand,
    resumed: boolean,
    reported: Set<string>,
  ): Promise<TurnOutcome> {
    const abort = new AbortController()
    const crashed = Promise.withResolvers<never>()
    // `crashed` can reject after the race below has ended.
    crashed.promise.catch(() => {})
    // Late events of an abandoned turn must not appear after its end or in the next turn.
    let over = false
    const crash = (error: unknown) => {
      over = true
      crashed.reject(error)
    }
    this.#running = { messageId: command.messageId, abort, crash }
    if (this.#interrupted.delete(command.messageId)) abort.abort()
    try {
      configured.session ??= await this.#harness.open(configured.settings)
      const { session } = configured
      configured.sessionId = session.sessionId
      const run = session.run(
        { content: command.content, resumed },
        (event) => {
          if (over) return
          if (event.type === 'artifact') reported.add(event.path)
          this.#emit(event.type === 'assistant' ? { ...event, session_id: session.sessionId } : event)
        },
        abort.signal,
      )
      const outcome = await Promise.race([run, crashed.promise])
      // Some harnesses learn the id of a new conversation during its first turn.
      configured.sessionId = session.sessionId
      return outcome
    } catch (error) {
      abort.abort()
      const session = configured.session
      configured.session = undefined
      session?.close().catch((closeError: unknown) => console.error(closeError))
      console.error(error)
      this.error('agent_error', describe(error))
      return failed(describe(error))
    } finally {
      over = true
      this.#running = undefined
    }
  }
}

function failed(message: string): TurnOutcome {
  return { subtype: 'error_during_execution', result: message, turnCount: 0, usage: noTokens() }
}

function describe(error: unknown): string {
  return (error instanceof Error ? error.message : String(error)).slice(0, 4000)
}
