import type { AgentSessionEvent } from '@earendil-works/pi-coding-agent'
import { addTokens, noTokens, type TokenUsage } from '../../lib/model-price.ts'
import { pathOf, reportedUsage } from '../summary.ts'
import { TurnEvents, type Block, type OpenCall } from '../turn-events.ts'
import type { AssistantMessage } from './conversation.ts'
import { protocolToolName } from './tools.ts'

/** Maps pi's events of one turn to events of the protocol, and adds up calls, usage and cost. */
export class PiEvents extends TurnEvents {
  readonly #calls = new Map<string, OpenCall>()
  turnCount = 0
  costUsd = 0
  readonly usage = noTokens()
  lastAnswer: AssistantMessage | undefined

  take(event: AgentSessionEvent): void {
    if (event.type === 'message_start' && event.message.role === 'assistant') this.draft.restart()
    if (event.type === 'message_update') this.#write(event.assistantMessageEvent)
    if (event.type === 'message_end' && event.message.role === 'assistant') this.#answer(event.message)
    if (event.type === 'tool_execution_start') {
      this.#calls.set(event.toolCallId, this.openCall(protocolToolName(event.toolName), event.args))
    }
    if (event.type === 'tool_execution_end') {
      const call = this.#calls.get(event.toolCallId) ?? this.openCall(protocolToolName(event.toolName), {})
      this.#calls.delete(event.toolCallId)
      this.callEnded(event.toolCallId, call, event.isError, event.result)
    }
  }

  #write(event: Extract<AgentSessionEvent, { type: 'message_update' }>['assistantMessageEvent']): void {
    if (event.type === 'text_start') this.draft.breakLine()
    if (event.type === 'text_delta') this.draft.add(event.delta)
  }

  #answer(message: AssistantMessage): void {
    this.lastAnswer = message
    const usage = tokenUsage(message)
    addTokens(this.usage, usage)
    this.costUsd += Math.max(0, message.usage.cost.total || 0)
    const isComplete = message.stopReason !== 'error' && message.stopReason !== 'aborted'
    if (isComplete) this.turnCount += 1
    // pi does not run the tool calls of an incomplete answer, so they are not reported.
    this.answered(
      blocks(message).filter((block) => isComplete || block.type === 'text'),
      reportedUsage(usage),
    )
  }

  /** pi accepts paths that begin with `@`. */
  protected override fileOf(input: unknown): string {
    return super.fileOf({ path: pathOf(input).replace(/^@/, '') })
  }
}

function blocks(message: AssistantMessage): Block[] {
  const content: Block[] = []
  for (const block of message.content) {
    if (block.type === 'text' && block.text !== '') content.push({ type: 'text', text: block.text })
    if (block.type === 'toolCall') {
      content.push({ type: 'tool_use', id: block.id, name: protocolToolName(block.name), input: block.arguments })
    }
  }
  return content
}

/** pi's input excludes cached tokens; here they are part of it. */
function tokenUsage({ usage }: AssistantMessage): TokenUsage {
  const cacheReadTokens = whole(usage.cacheRead)
  const cacheWriteTokens = whole(usage.cacheWrite)
  return {
    inputTokens: whole(usage.input) + cacheReadTokens + cacheWriteTokens,
    cacheReadTokens,
    cacheWriteTokens,
    // pi's cache writes last five minutes unless its environment overrides that.
    longCacheWriteTokens: 0,
    outputTokens: whole(usage.output),
  }
}

function whole(value: number): number {
  return Number.isFinite(value) && value > 0 ? Math.round(value) : 0
}
