import { setImmediate as nextTick, setTimeout as sleep } from 'node:timers/promises'
import type { AgentSession, AgentSessionEvent } from '@earendil-works/pi-coding-agent'
import { backOffMs } from '../../lib/async/retry.ts'
import { defined } from '../../lib/defined.ts'
import type { HarnessEvent, HarnessSettings, TurnInput, TurnOutcome } from '../harness.ts'
import { gatewayBackOff, gatewayRetryMs } from '../model-proxy.ts'
import { conversationTail, dropFailedAnswers } from './conversation.ts'
import { PiEvents } from './events.ts'

/** One turn of a pi session. */
export class PiTurn {
  readonly #session: AgentSession
  readonly #maxTurns: number
  readonly #signal: AbortSignal
  readonly #events: PiEvents
  #stoppedAtMax = false

  constructor(
    session: AgentSession,
    settings: HarnessSettings,
    emit: (event: HarnessEvent) => void,
    signal: AbortSignal,
  ) {
    this.#session = session
    this.#maxTurns = settings.maxTurns ?? Number.POSITIVE_INFINITY
    this.#signal = signal
    this.#events = new PiEvents(settings, emit)
  }

  async run(turn: TurnInput): Promise<TurnOutcome> {
    const stopListening = this.#session.agent.subscribe((event) => {
      this.#events.take(event)
      if (event.type !== 'turn_end' || this.#events.turnCount < this.#maxTurns) return
      if (event.toolResults.length > 0) {
        this.#stoppedAtMax = true
        this.#session.agent.abort()
      }
    })
    const onAbort = () => void this.#session.abort().catch((error: unknown) => console.error(error))
    this.#signal.addEventListener('abort', onAbort, { once: true })
    try {
      if (!this.#signal.aborted) await this.#ask(turn)
      return this.#outcome()
    } finally {
      this.#signal.removeEventListener('abort', onAbort)
      stopListening()
    }
  }

  async #ask(turn: TurnInput): Promise<void> {
    await this.#settled(() => this.#begin(turn))
    let answered = this.#events.turnCount
    let failingSince: number | undefined
    for (let attempt = 0; this.#hasFailedForNow() && !this.#signal.aborted; attempt++) {
      // A successful answer in between resets the retry window.
      if (this.#events.turnCount > answered) failingSince = undefined
      if (failingSince === undefined) attempt = 0
      failingSince ??= performance.now()
      answered = this.#events.turnCount
      const pauseMs = backOffMs(attempt + 1, gatewayBackOff)
      if (performance.now() + pauseMs - failingSince > gatewayRetryMs) return
      await sleep(pauseMs, undefined, { signal: this.#signal }).catch(() => {})
      if (this.#signal.aborted) return
      dropFailedAnswers(this.#session)
      await this.#settled(() => this.#session.agent.continue())
    }
  }

  #hasFailedForNow(): boolean {
    const { lastAnswer: answer } = this.#events
    return answer?.stopReason === 'error' && isTransientFailure(answer.errorMessage ?? '')
  }

  /** Sends the message, or continues an interrupted turn from the conversation on disk. */
  async #begin(turn: TurnInput): Promise<void> {
    const tail = turn.resumed ? conversationTail(this.#session, turn.content) : 'absent'
    if (tail === 'absent') await this.#session.prompt(turn.content, { expandPromptTemplates: false })
    else if (tail === 'open') await this.#session.agent.continue()
    else this.#events.lastAnswer = tail
  }

  /** Waits for pi's work after a run (writes, compaction, a retry after an overflow), which events of the session report later. */
  async #settled(work: () => Promise<void>): Promise<void> {
    let runs = 0
    let ended = 0
    let compacting = false
    let willRetry = false
    let retryAwaitedSince = 0
    let wake = () => {}
    const countRuns = this.#session.agent.subscribe((event) => {
      if (event.type !== 'agent_start') return
      runs += 1
      willRetry = false
    })
    const stopListening = this.#session.subscribe((event: AgentSessionEvent) => {
      if (event.type === 'agent_end') ended += 1
      if (event.type === 'compaction_start') compacting = true
      if (event.type === 'compaction_end') {
        compacting = false
        willRetry = event.willRetry
        retryAwaitedSince = performance.now()
      }
      wake()
    })
    try {
      await work()
      for (;;) {
        // A compaction begins right after `agent_end`.
        await nextTick()
        if (this.#signal.aborted || performance.now() - retryAwaitedSince > retryAwaitedMs) willRetry = false
        if (ended >= runs && !compacting && !willRetry) return
        const next = Promise.withResolvers<void>()
        wake = next.resolve
        await Promise.race([next.promise, sleep(settleCheckMs)])
      }
    } finally {
      countRuns()
      stopListening()
    }
  }

  #outcome(): TurnOutcome {
    const { lastAnswer: answer, turnCount, usage, costUsd, lastText } = this.#events
    const message = answer?.errorMessage ?? 'The model failed.'
    const code = message.includes('budget_exceeded') ? 'budget_exceeded' : 'model_error'
    return this.#events.outcome(
      { turnCount, usage, ...defined({ costUsd: costUsd || undefined }) },
      lastText || (answer?.content.map((block) => (block.type === 'text' ? block.text : '')).join('') ?? ''),
      {
        interrupted: this.#signal.aborted,
        stoppedAtMax: this.#stoppedAtMax,
        failure: answer?.stopReason === 'error' ? { code, message } : undefined,
      },
    )
  }
}

/** The interval of checks while no event comes. */
const settleCheckMs = 1000

/** pi retries right after the compaction of an overflow. After this time it will not retry. */
const retryAwaitedMs = 5000

/** Messages of pi's clients about failures below HTTP: a restart of the gateway, a restored sandbox, an answer that broke off. */
const connectionFailure =
  /connection error|fetch failed|econn|socket|timed out|other side closed|premature close|terminated|stream ended|ended without|network/i

/** Errors inside an answer that began well: Anthropic's types, OpenAI's codes, and OpenAI's sentence. */
const errorInAnswer =
  /\b(overloaded_error|api_error|timeout_error|rate_limit_error|server_error|rate_limit_exceeded)\b|the server had an error/i

/** An error with a status is final: the gateway has retried it already. */
const statusFailure = /^\s*\d{3}\b/

/** Whether the failure of an answer is transient, by its message. */
export function isTransientFailure(message: string): boolean {
  return (connectionFailure.test(message) || errorInAnswer.test(message)) && !statusFailure.test(message)
}
