import type { TokenUsage } from '../lib/model-price.ts'
import { toolNames, type AgentEventOf, type ConfigureCommand, type ResultSubtype } from '../protocol/agent.ts'

/**
 * The port of agent programs. Each folder of `src/agent/` holds one harness; `loadHarness` names them.
 *
 * A harness calls its model only through the gateway, keeps its conversation below `stateDir`, and uses the protocol's `toolNames`. The
 * `Agent` around it adds ids and durations, reports the files that commands have changed, and guarantees one `result` and one
 * `turn_complete` per message.
 *
 * Life cycle: `open` once, then `run` one turn at a time, then `close`. A session whose `run` has thrown is closed and opened again.
 */
export interface Harness {
  readonly name: string
  readonly version: string

  /** Opens the conversation in `stateDir`, or begins one. Throws when the configuration cannot work. */
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
  /** As `modelName` writes it. */
  readonly model: string

  /**
   * Runs one turn to its end and reports its events through `emit`, in order. An aborted `signal` ends it soon with subtype
   * `interrupted`; a failing model ends it with `error_during_execution` after an `error`. Throws only for bugs.
   */
  run(turn: TurnInput, emit: (event: HarnessEvent) => void, signal: AbortSignal): Promise<TurnOutcome>

  close(): Promise<void>
}

export interface TurnInput {
  content: string
  /** An earlier process has begun this turn and died: the part that the conversation on disk holds must not run again. */
  resumed: boolean
}

export type HarnessEvent =
  | Omit<AgentEventOf<'assistant'>, 'session_id'>
  | AgentEventOf<'assistant_draft'>
  | AgentEventOf<'tool_use_summary'>
  | AgentEventOf<'artifact'>
  | AgentEventOf<'error'>

export interface TurnOutcome {
  subtype: ResultSubtype
  /** Text of the last answer; after an error, its message. */
  result: string
  /** Calls of the model. */
  turnCount: number
  usage: TokenUsage
  costUsd?: number
}

/** As reported to clients: `demo`, or `provider/id`. */
export function modelName({ model: { provider, id } }: HarnessSettings): string {
  return provider === 'demo' ? 'demo' : `${provider}/${id}`
}

/** The protocol's tools that the configuration allows. */
export function allowedTools(settings: HarnessSettings): string[] {
  return toolNames.filter((name) => settings.allowedTools?.includes(name) ?? true)
}

/** Loads a harness by its name in `agent_config.harness`. Only that harness is imported. */
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
