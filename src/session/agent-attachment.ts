import type { AgentCommandInput } from '../protocol/agent.ts'
import { AgentConnection, type AgentOutput, type ConnectionEnd } from './agent-connection.ts'
import { configureCommand, findSandbox } from './boot.ts'
import type { DraftPiece } from './draft.ts'
import { ProjectWatch } from './project.ts'
import type { CommandRef, Input, StepEffect, StepResult, TimerName } from './reducer-types.ts'
import type { Session } from './session.ts'
import type { RunnerContext } from './steps.ts'

/** The attachment to the agent of one session, with what lasts as long as it does: timers, and the watch over the preview. */
export class AgentAttachment {
  readonly #context: RunnerContext
  readonly #project: ProjectWatch
  readonly #timers = new Map<TimerName, NodeJS.Timeout>()
  #connection: AgentConnection | undefined

  constructor(context: RunnerContext) {
    this.#context = context
    this.#project = new ProjectWatch({ ...context, apply: context.applyUnlessStopped })
  }

  /** The step `attach`: stays with the agent process until it or the attachment ends. */
  async run(effect: StepEffect & { type: 'attach' }, session: Session): Promise<StepResult> {
    const { sandboxes, orgId, capacity, permit, signal, timings, log, applyUnlessStopped } = this.#context
    const { processId, offset, wake } = effect
    const { sandboxId } = session
    let connection: AgentConnection
    try {
      if (effect.queues) capacity.assertFree()
      const options = { offset, kind: 'internal', wake } as const
      const attachment = await sandboxes.exec.attach(orgId, sandboxId, processId, options)
      connection = new AgentConnection(attachment, offset, this.#handlersOf(processId), { log })
    } catch (error) {
      return { type: 'attach_failed', processId, error, sandbox: await findSandbox(sandboxes, session) }
    }
    const attachedAt = performance.now()
    let end: ConnectionEnd = { type: 'broken' }
    try {
      this.#connection = connection
      if (signal.aborted) return { type: 'step_done' }
      // Asked after the attachment, since a restore ends the attachments that were made before it.
      const sandbox = await findSandbox(sandboxes, session)
      if (sandbox && sandbox.restores !== session.sandboxRestores) return { type: 'step_done' }
      await applyUnlessStopped({ type: 'attached', processId })
      if (connection.isOpen) end = await connection.run()
    } finally {
      connection.close()
      this.#connection = undefined
      permit.release()
      this.#clearTimers()
      this.#project.preview.pause()
    }
    if (end.type === 'exited') {
      const { exitCode, stderr } = end
      log.warn({ sessionId: session.id, exitCode, stderr }, 'an agent process ended')
    }
    const wasLong = performance.now() - attachedAt > timings.retryMaxMs
    const exitCode = end.type === 'exited' ? end.exitCode : undefined
    return { type: 'attachment_ended', processId, exitCode, wasLong }
  }

  send(command: CommandRef, session: Session): void {
    this.#connection?.send(() => this.#read(command, session))
  }

  startTurn(): void {
    if (this.#connection?.isOpen) void this.#applyOrClose({ type: 'start_turn' })
  }

  /** Applies the input once the sandbox has taken all commands sent so far. */
  applyAfterSent(input: Input): void {
    this.#connection?.afterSent(() => void this.#applyOrClose(input))
  }

  watchPreview(): void {
    this.#project.preview.watch()
  }

  setTimer(name: TimerName, ms: number): void {
    clearTimeout(this.#timers.get(name))
    const timer = setTimeout(() => {
      void this.#context.asAgent(() => this.#applyOrClose({ type: 'timer', name }))
    }, ms)
    this.#timers.set(name, timer.unref())
  }

  close(): void {
    this.#connection?.close()
  }

  /** Nothing begins any more. */
  stop(): void {
    this.close()
    this.#project.preview.stop()
    this.#clearTimers()
  }

  #handlersOf(processId: string) {
    const { read, apply } = this.#context
    return {
      take: async (output: AgentOutput[], offset: number) => {
        const { turn } = await read()
        const ends = output.some((line) => line.type === 'turn_complete' && line.message_id === turn?.messageId)
        // Before the commit, so that a client that has `turn_complete` has the framework of that turn too.
        if (ends) this.#clearTimer('escalate')
        const framework = ends ? await this.#project.inspect() : undefined
        await apply({ type: 'agent_output', processId, output, offset, framework })
      },
      drafted: (piece: DraftPiece) => this.#context.tellDraft(piece),
      live: async () => void (await apply({ type: 'live' })),
    }
  }

  async #read(command: CommandRef, session: Session): Promise<AgentCommandInput | undefined> {
    const { store, config } = this.#context
    if (command.type === 'interrupt') return command
    if (command.type === 'configure') {
      const instructions = await store.instructions(session.id)
      return instructions && configureCommand(session, instructions, config)
    }
    const { messageId } = command
    const message = await store.message(session.id, messageId)
    return message && { type: 'message', messageId, content: message.content }
  }

  /** For inputs beside the steps: the next attachment makes up for one that could not be applied. */
  async #applyOrClose(input: Input): Promise<void> {
    const { applyUnlessStopped, log, sessionId } = this.#context
    try {
      await applyUnlessStopped(input)
    } catch (error) {
      log.warn({ err: error, sessionId }, 'an input of a session was lost')
      this.close()
    }
  }

  #clearTimer(name: TimerName): void {
    clearTimeout(this.#timers.get(name))
    this.#timers.delete(name)
  }

  #clearTimers(): void {
    for (const name of this.#timers.keys()) this.#clearTimer(name)
  }
}
