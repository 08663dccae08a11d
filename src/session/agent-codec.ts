import type { ModelPrice } from '../lib/model-price.ts'
import type { Artifact, StreamEvent } from './session.ts'

/**
 * The port behind which lines to and from the agent process are written and checked; `protocol/agent.ts` is what `server/`
 * puts there. What the agent writes comes from a hostile machine: `parse` checks all of it and never throws.
 */
export interface AgentCodec {
  /** Environment variables in which the agent finds the model gateway. */
  readonly environment: { readonly gatewayUrl: string; readonly gatewayToken: string }
  /** Longest line in either direction, in bytes without the newline. */
  readonly lineBytesMax: number
  /** One line with its newline. */
  encode(command: AgentCommand): string
  parse(line: string): { ok: true; value: AgentEvent } | { ok: false; reason: string }
  /** A fresh one for each attachment: it holds the beginning of a line that has not ended. */
  splitter(): AgentLineSplitter
}

export interface AgentLineSplitter {
  /** `offset` is where the chunk begins in the log; so is a line's `endOffset`, just behind its newline. */
  push(chunk: Uint8Array, offset: number): AgentLine[]
}

export type AgentLine =
  | { type: 'line'; text: string; endOffset: number }
  | { type: 'too_long'; byteLength: number; endOffset: number }

export type AgentCommand = ConfigureAgent | { type: 'message'; messageId: string; content: string } | InterruptAgent

export interface ConfigureAgent {
  type: 'configure'
  sessionId: string
  harness: string
  model: { provider: string; id: string }
  systemPrompt?: string
  allowedTools?: string[]
  cwd: string
  maxTurns?: number
  price?: ModelPrice
  /** `SKILL.md` files that do not lie where the agent looks by itself. */
  skillFiles?: string[]
}

export interface InterruptAgent {
  type: 'interrupt'
  messageId: string
}

/** What the agent says; all but `turn_started` and `artifact` goes to clients as it is. */
export type AgentEvent =
  | { type: 'ready'; harness: string; version: string }
  | { type: 'configured'; model: string; tools: string[]; cwd: string }
  | { type: 'assistant'; message: AssistantContent; session_id: string }
  | { type: 'tool_use_summary'; tool: string; summary: string }
  | { type: 'result'; subtype: ResultSubtype; result: string; session_id: string }
  | { type: 'turn_complete'; message_id: string; session_id: string }
  | { type: 'error'; message: string; code: string; fatal: boolean }
  | { type: 'turn_started'; message_id: string }
  | ({ type: 'artifact' } & Artifact)

/** One line of the agent; those that are no event are counted, and the first of an attachment is told as an `error`. */
export type AgentOutput = AgentEvent | { type: 'invalid' }

export interface AssistantContent {
  content: ({ type: 'text'; text: string } | { type: 'tool_use'; name: string; input: Record<string, unknown> })[]
}

export type ResultSubtype = 'success' | 'error_max_turns' | 'error_during_execution' | 'interrupted'

/** The same object, as a store takes it. */
export function streamData(event: AgentEvent): StreamEvent['data'] {
  return event as AgentEvent & Record<string, unknown>
}
