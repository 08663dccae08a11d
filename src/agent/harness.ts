import type { TokenUsage } from '../lib/model-price.ts'
import type { AgentEventOf, ConfigureCommand, ResultSubtype } from '../protocol/agent.ts'

/**
 * The port behind which agent programs run. A folder of `src/agent/` holds one harness; `harnesses.ts` names them.
 *
 * A harness speaks to its model only through the gateway, keeps its conversation below `stateDir`, and names its tools
 * as `toolNames` of the protocol does. It knows nothing of message ids, of the journal of turns, or of lines: the `Agent`
 * around it adds ids and durations, tells the files that commands have changed, and guarantees one `result` and one
 * `turn_complete` per message.
 *
 * Life cycle: `open` once, then `run` one turn at a time, then `close`. A session whose `run` has thrown is closed and
 * opened anew before the next turn.
 */
export interface Harness {
  readonly name: string
  readonly version: string

  /** Opens the conversation kept in `stateDir`, or begins one. Throws when the configuration cannot work. */
  open(settings: HarnessSettings): Promise<HarnessSession>
}

export interface HarnessSettings extends Omit<ConfigureCommand, 'type' | 'sessionId' | 'harness'> {
  gateway: { url: string; token: string }
}

export interface HarnessSession {
  /** The harness's own id of the conversation; the same after a restart. */
  readonly sessionId: string
  /** Names of the tools that the model is offered. */
  readonly tools: string[]
  /** As told to clients: `demo`, or `provider/id`. */
  readonly model: string

  /**
   * Runs one turn to its end and tells what happens through `emit`, in order. An aborted `signal` ends it soon with
   * subtype `interrupted`; a failing model ends it with `error_during_execution` after an `error`. Throws for bugs alone.
   */
  run(turn: Turn, emit: (event: HarnessEvent) => void, signal: AbortSignal): Promise<TurnOutcome>

  close(): Promise<void>
}

export interface Turn {
  content: string
  /** A process that died has begun this turn: what the conversation on disk holds of it must not be done again. */
  resumed: boolean
}

export type HarnessEvent =
  | Omit<AgentEventOf<'assistant'>, 'session_id'>
  | AgentEventOf<'tool_use_summary'>
  | AgentEventOf<'artifact'>
  | AgentEventOf<'error'>

export interface TurnOutcome {
  subtype: ResultSubtype
  /** Text of the last answer; on an error, what went wrong. */
  result: string
  /** Calls of the model. */
  turnCount: number
  usage: TokenUsage
  costUsd?: number
}

/** Loads a harness by the name that `agent_config.harness` gives it; only the one in use is imported. */
export async function loadHarness(name: string): Promise<Harness | undefined> {
  switch (name) {
    case 'pi':
      return (await import('./pi/index.ts')).piHarness
    case 'claude':
      return (await import('./claude/index.ts')).claudeHarness
    default:
      if (name.startsWith('acp:')) return (await import('./acp/index.ts')).acpHarness(name)
      return undefined
  }
}
