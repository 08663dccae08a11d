import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { isServiceError, ServiceError } from '../errors.ts'
import type { AgentOutput } from './agent-connection.ts'
import { defaultSessionLimits, defaultSessionTimings } from './config.ts'
import { isStep, reduce } from './reducer.ts'
import type { Input, SandboxView, StepEffect } from './reducer-types.ts'
import type { Session } from './session.ts'
import type { Point } from './turn.ts'
import { hasWork, initialRun, type SessionState } from './state.ts'

/** A session, its sandbox and its agent, without time or I/O. Each call is one thing that may happen next. */
class Simulation {
  state: SessionState = {
    session: {
      status: 'running',
      activity: 'starting',
      sandboxId: 'sb-0',
      artifacts: [],
      framework: '',
      agentOffset: 0,
      sandboxRestores: 0,
      agentConfig: {},
    } as unknown as Session,
    turn: undefined,
    queuedIds: ['msg-first'],
    streamBytes: 0,
    historyBytes: 0,
    idle: { ready: false, lines: 0, errors: 0 },
    artifactWrites: 0,
    sandboxReady: false,
    agentReady: false,
    previewReady: false,
    hibernated: false,
    run: initialRun,
  }
  sandbox: SandboxView | undefined
  step: StepEffect | undefined
  #stepSandboxId = ''
  #sandboxAtBegin: SandboxView | undefined
  isConnected = false
  /** The agent's own: none, started, configured, or the message that it works on. */
  #agent: string | undefined
  #ids = 0
  #outbox: AgentOutput[] = []
  #sent: Input[] = []
  /** Checkpoints that are being taken. */
  #saves: string[] = []

  /** False when the reducer refused the input. */
  apply(input: Input): boolean {
    const before = structuredClone(this.state)
    const limits = { ...defaultSessionLimits, shortageWaitMs: 1e15 }
    const context = {
      limits,
      timings: defaultSessionTimings,
      checkpoints: 'turn' as const,
      now: new Date(0),
      newId: (prefix: string) => this.#id(prefix),
    }
    const hadStep = this.state.run.step
    const given = this.state
    let reduction
    try {
      reduction = reduce(given, input, context)
    } catch (error) {
      if (!isServiceError(error)) throw error
      return false
    } finally {
      assert.deepEqual(structuredClone(given), before, 'the reducer changed its argument')
    }
    this.state = reduction.state
    if (this.state.session.status === 'ended') return true
    const steps = reduction.effects.filter(isStep)
    assert.ok(steps.length <= 1)
    if (steps[0]) {
      assert.ok(hadStep === undefined || this.step === undefined, `${steps[0].type} began beside ${hadStep}`)
      this.step = steps[0]
      this.#stepSandboxId = this.state.session.sandboxId
      this.#sandboxAtBegin = this.sandbox
    }
    assert.equal(this.state.run.step, this.step?.type)
    for (const effect of reduction.effects) {
      if (effect.type === 'detach') this.isConnected = false
      if (effect.type === 'signal_agent' && effect.signal === 9) this.#agent = undefined
      if (effect.type === 'save_turn') this.#saves.push(effect.turnId)
      if (effect.type === 'start_turn' && this.isConnected) this.#sent.push({ type: 'start_turn' })
      if (!this.isConnected) continue
      if (effect.type === 'report_sent') this.#sent.push({ type: 'commands_sent', wakes: effect.wakes })
      if (effect.type === 'send') this.#hear(effect.command.type === 'configure' ? undefined : effect.command)
    }
    this.#check()
    for (const next of this.#sent.splice(0)) this.apply(next)
    return true
  }

  #check(): void {
    const { session, run, turn, queuedIds } = this.state
    if (session.activity === 'failed' || run.step !== undefined || !hasWork(this.state)) return
    assert.equal(this.sandbox?.status, 'hibernated', 'a session with work rests, and its sandbox does not sleep')
    assert.ok(turn !== undefined || queuedIds.length === 0, 'a message waits for nothing')
    assert.ok(run.wakesWanted <= run.wakesServed, 'a wake-up is lost')
  }

  /** The inspection under way answers with what it saw at its begin. */
  answerLate(): void {
    if (this.step?.type !== 'inspect_sandbox') return
    this.step = undefined
    this.apply({ type: 'inspected', sandboxId: this.#stepSandboxId, sandbox: this.#sandboxAtBegin })
  }

  /** The step under way ends: well, or with this error. */
  finish(error?: ServiceError): void {
    const { step } = this
    if (!step || (step.type === 'attach' && this.isConnected)) return
    const sandboxId = this.#stepSandboxId
    const failed: Input = { type: 'step_failed', sandboxId, what: 'It failed', error }
    this.step = undefined
    switch (step.type) {
      case 'inspect_sandbox':
        return void this.apply({ type: 'inspected', sandboxId, sandbox: this.sandbox })
      case 'boot':
        if (error) return void this.apply(failed)
        if (sandboxId === this.state.session.sandboxId) this.sandbox = { status: 'running', restores: 0 }
        return void this.apply({ type: 'booted', sandboxId })
      case 'delete_fork_checkpoint':
        return void this.apply({ type: 'fork_checkpoint_deleted', sandboxId, isDeleted: true })
      case 'accept_restore':
        if (error) return void this.apply(failed)
        this.#wake()
        this.#agent = undefined
        return void this.apply({ type: 'restore_accepted', sandboxId, restores: this.sandbox?.restores })
      case 'rewind': {
        const { undoCheckpointId } = step.rewind
        if (error) return void this.apply({ type: 'rewind_failed', undoCheckpointId, error })
        this.#wake()
        if (this.sandbox?.status !== 'running')
          return void this.apply({ type: 'rewind_failed', undoCheckpointId, error: stopped })
        this.#agent = undefined
        this.sandbox = { status: 'running', restores: this.sandbox.restores + 1 }
        const { restores } = this.sandbox
        const done = { type: 'rewind_done', sandboxId, undoCheckpointId, restores, fromEvent: 1, adopted: [] } as const
        return void this.apply(done)
      }
      case 'start_agent': {
        this.#wake()
        if (this.sandbox?.status !== 'running') return void this.apply({ ...failed, error: stopped })
        if (error) return void this.apply(failed)
        this.step = step
        const processId = this.#id('ag-')
        this.apply({ type: 'agent_begun', sandboxId, processId, tokenHash: '' })
        this.step = undefined
        if (this.state.session.agentProcessId !== processId) return void this.apply({ type: 'step_done' })
        this.#agent = 'started'
        return void this.apply({ type: 'agent_started' })
      }
      case 'attach':
        return this.#attach(step, error)
      case 'wait_for_capacity':
        return void this.apply({ type: 'capacity_wait_over' })
      case 'back_off':
        return void this.apply({ type: 'step_done' })
    }
  }

  #wake(): void {
    if (this.sandbox?.status === 'hibernated') this.sandbox = { ...this.sandbox, status: 'running' }
  }

  #attach(step: StepEffect & { type: 'attach' }, error?: ServiceError): void {
    const { processId } = step
    if (!error && step.wake) this.#wake()
    const met = error ?? (this.sandbox?.status === 'running' ? undefined : stopped)
    const gone = this.#agent === undefined ? new ServiceError('not_found', 'no process') : undefined
    if (met ?? gone) {
      return void this.apply({ type: 'attach_failed', processId, error: met ?? gone, sandbox: this.sandbox })
    }
    this.step = step
    this.isConnected = true
    this.#outbox = []
    this.apply({ type: 'attached', processId })
    if (!this.isConnected) return this.#endAttachment(processId)
    this.apply({ type: 'live' })
  }

  /** The connection ends, as it does when the sandbox stops running. */
  disconnect(): void {
    const { run, session } = this.state
    if (run.connection) this.#endAttachment(session.agentProcessId ?? 'ag-none')
  }

  #endAttachment(processId: string): void {
    this.isConnected = false
    this.step = undefined
    const exitCode = this.#agent === undefined && this.sandbox?.status === 'running' ? 137 : undefined
    this.apply({ type: 'attachment_ended', processId, exitCode, wasLong: false })
  }

  killAgent(): void {
    this.#agent = undefined
  }

  /** The client or the machine changes the sandbox; the session hears of it now. */
  change(status: SandboxView['status'], restored = false): void {
    const { sandbox } = this
    if (!sandbox || sandbox.status === 'stopped') return
    this.sandbox = { status, restores: sandbox.restores + (restored ? 1 : 0) }
    if (status === 'stopped') this.#agent = undefined
    const { sandboxId } = this.state.session
    const wasConnected = this.isConnected
    this.isConnected &&= status === 'running' && !restored
    this.apply({ type: 'sandbox_changed', sandboxId, status, sandbox: this.sandbox })
    if (wasConnected && !this.isConnected) this.disconnect()
  }

  /** A checkpoint is there, or has failed. */
  save(failure?: string): void {
    const turnId = this.#saves.shift()
    if (turnId === undefined) return
    this.apply({
      type: 'turn_saved',
      turnId,
      ...(failure === undefined ? { point: pointOf(this.#id('cp-')) } : { failure }),
    })
  }

  /** A client takes the session back; the checkpoint of the present takes no time here. */
  rewind(): void {
    if (!this.apply({ type: 'hold' })) return
    const undo = pointOf(this.#id('cp-'))
    const to = { checkpointId: 'cp-then', kind: 'full', toEvent: 1, project: undo.project } as const
    const rewind = { what: 'all', ...to, undoCheckpointId: undo.checkpointId } as const
    if (this.state.run.isSaving || !this.apply({ type: 'rewind_decided', rewind, undo })) return
    this.#agent = undefined
  }

  restart(): void {
    if (this.sandbox?.status !== 'stopped') return
    const { sandboxId: lostId } = this.state.session
    this.apply({ type: 'sandbox_lost', sandboxId: lostId, sandbox: this.sandbox })
    if (this.apply({ type: 'restart', lostId, sandboxId: this.#id('sb-') })) this.sandbox = undefined
  }

  /** The agent reads a command; it answers when it `works`. */
  #hear(command: { type: string; messageId: string } | undefined): void {
    if (!command) {
      if (this.#agent === 'started') this.#agent = 'configured'
      this.#outbox.push({ type: 'configured', model: 'demo', tools: [], cwd: '/' })
    } else {
      this.#outbox.push({ type: 'turn_complete', message_id: command.messageId, session_id: 's' })
    }
  }

  work(): void {
    const processId = this.state.session.agentProcessId
    if (!this.state.run.connection) return
    if (!this.isConnected || this.#agent === undefined || processId === undefined) return this.disconnect()
    const output = this.#outbox.splice(0)
    if (output.length > 0)
      this.apply({ type: 'agent_output', processId, output, offset: this.state.session.agentOffset + 1 })
  }

  #id(prefix: string): string {
    this.#ids += 1
    return `${prefix}${this.#ids}`
  }
}

const stopped = new ServiceError('conflict', 'it does not run')

function pointOf(checkpointId: string): Point {
  const of = { afterEvent: 1, sizeBytes: 1, durationMs: 1, createdAt: new Date(0) }
  return { checkpointId, origin: 'turn', kind: 'full', project: { artifacts: [], framework: '' }, ...of }
}

const acts: Record<string, (simulation: Simulation) => void> = {
  message: (one) => one.apply({ type: 'message', content: 'x' }),
  interrupt: (one) => one.apply({ type: 'interrupt' }),
  cancel: (one) => one.apply({ type: 'cancel_message', messageId: one.state.queuedIds[0] ?? '' }),
  pause: (one) => one.apply({ type: 'pause' }),
  unpause: (one) => one.apply({ type: 'unpause' }),
  resume: (one) => one.apply({ type: 'resume' }),
  restart: (one) => one.restart(),
  hibernate: (one) => one.change('hibernated'),
  wake: (one) => one.change('running'),
  restore: (one) => one.change('running', true),
  stop: (one) => one.change('stopped'),
  killAgent: (one) => one.killAgent(),
  disconnect: (one) => one.disconnect(),
  work: (one) => one.work(),
  save: (one) => one.save(),
  failSave: (one) => one.save('full'),
  rewind: (one) => one.rewind(),
  raise: (one) => one.apply({ type: 'reconfigured', agentConfig: {}, isWithinBudget: true }),
  finish: (one) => one.finish(),
  answerLate: (one) => one.answerLate(),
  full: (one) => one.finish(new ServiceError('no_capacity', 'full')),
  mute: (one) => one.finish(new ServiceError('unavailable', 'no answer')),
  fail: (one) => one.finish(new ServiceError('internal_error', 'a fault')),
  escalate: (one) => one.apply({ type: 'timer', name: 'escalate' }),
  late: (one) => one.apply({ type: 'timer', name: 'late_start' }),
}

test('reducer: in any order of inputs a session with work has a step under way, and all messages are dealt with in the end', () => {
  const names = fc.array(fc.constantFrom('finish', 'work', ...Object.keys(acts), 'finish', 'work'), { maxLength: 40 })
  const property = fc.property(fc.boolean(), names, (beginsIdle, happened) => {
    const simulation = new Simulation()
    simulation.apply({ type: 'resume' })
    for (let tick = 0; tick < (beginsIdle ? 10 : 0); tick++) {
      simulation.finish()
      simulation.work()
    }
    for (const name of happened) acts[name]?.(simulation)
    simulation.apply({ type: 'unpause' })
    simulation.restart()
    simulation.apply({ type: 'message', content: 'the last' })
    for (let tick = 0; tick < 200; tick++) {
      simulation.finish()
      simulation.work()
      simulation.save()
    }
    const { session, queuedIds, turn, run } = simulation.state
    assert.deepEqual([session.activity, queuedIds, turn, run.step], ['idle', [], undefined, 'attach'])
    assert.deepEqual([session.unsavedTurnId, session.pendingRewind, run.isSaving], [undefined, undefined, false])
  })
  fc.assert(property, { numRuns: 1000 })
})

test('reducer: a session whose sandbox is lost during a rewind has failed, and a restart brings it back', () => {
  const simulation = new Simulation()
  simulation.apply({ type: 'resume' })
  simulation.rewind()
  simulation.finish()
  const step = () => simulation.step?.type
  assert.equal(step(), 'rewind')
  simulation.change('stopped')
  simulation.finish()
  simulation.finish()
  const { session, run } = simulation.state
  assert.deepEqual([session.activity, session.pendingRewind, run.step], ['failed', undefined, undefined])
  simulation.restart()
  while (step() !== 'attach') simulation.finish()
  assert.equal(simulation.state.run.lostSandboxId, undefined)
})

test('reducer: an inspection from before a change of the sandbox does not decide', () => {
  const simulation = new Simulation()
  simulation.apply({ type: 'resume' })
  while (!simulation.state.turn) {
    simulation.finish()
    simulation.work()
  }
  simulation.change('hibernated')
  while (simulation.step?.type !== 'inspect_sandbox') simulation.finish()
  simulation.change('running')
  simulation.answerLate()
  assert.equal(simulation.step?.type, 'inspect_sandbox')
})

test('reducer: a request that is refused and an input of an ended session change nothing', () => {
  const simulation = new Simulation()
  simulation.apply({ type: 'resume' })
  assert.equal(simulation.apply({ type: 'pause' }), false)
  simulation.apply({ type: 'ending' })
  assert.equal(simulation.apply({ type: 'message', content: 'x' }), false)
  simulation.apply({ type: 'end', tokenHash: '' })
  const { state } = simulation
  assert.equal(state.session.status, 'ended')
  assert.equal(simulation.apply({ type: 'interrupt' }), false)
  simulation.finish()
  assert.equal(simulation.state, state)
})
