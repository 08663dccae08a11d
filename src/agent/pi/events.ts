import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import type { AgentSessionEvent } from '@earendil-works/pi-coding-agent'
import { addTokens, noTokens, type TokenUsage } from '../../lib/model-price.ts'
import type { AgentEventOf } from '../../protocol/agent.ts'
import type { HarnessEvent, HarnessSettings } from '../harness.ts'
import type { AssistantMessage } from './conversation.ts'
import { oneLine, reportedUsage, summarise } from '../summary.ts'
import { protocolToolName } from './tools.ts'

type Block = AgentEventOf<'assistant'>['message']['content'][number]

interface OpenCall {
  startedAt: number
  args: unknown
  existed: boolean
}

/** Maps pi's events of one turn to events of the protocol, and adds up calls, usage and cost. */
export class PiEvents {
  readonly #settings: HarnessSettings
  readonly #emit: (event: HarnessEvent) => void
  readonly #calls = new Map<string, OpenCall>()
  turnCount = 0
  costUsd = 0
  readonly usage = noTokens()
  lastAnswer: AssistantMessage | undefined
  /** The text of the last answer that has text. */
  lastText = ''

  constructor(settings: HarnessSettings, emit: (event: HarnessEvent) => void) {
    this.#settings = settings
    this.#emit = emit
  }

  take(event: AgentSessionEvent): void {
    if (event.type === 'message_end' && event.message.role === 'assistant') this.#answer(event.message)
    if (event.type === 'tool_execution_start') this.#callStarted(event.toolCallId, event.toolName, event.args)
    if (event.type === 'tool_execution_end') {
      this.#callEnded(event.toolCallId, protocolToolName(event.toolName), event.result, event.isError)
    }
  }

  #answer(message: AssistantMessage): void {
    this.lastAnswer = message
    const usage = tokenUsage(message)
    addTokens(this.usage, usage)
    this.costUsd += Math.max(0, message.usage.cost.total || 0)
    if (message.stopReason !== 'error' && message.stopReason !== 'aborted') this.turnCount += 1
    // pi does not run the tool calls of an incomplete answer, so they are not reported.
    const isComplete = message.stopReason !== 'error' && message.stopReason !== 'aborted'
    const content = blocks(message).filter((block) => isComplete || block.type === 'text')
    if (content.length === 0) return
    this.lastText = content.map((block) => (block.type === 'text' ? block.text : '')).join('') || this.lastText
    this.#emit({
      type: 'assistant',
      message: { role: 'assistant', content, model: this.#settings.model.id, usage: reportedUsage(usage) },
    })
  }

  #callStarted(id: string, tool: string, args: unknown): void {
    const path = tool === 'write' || tool === 'edit' ? this.#path(args) : undefined
    this.#calls.set(id, { startedAt: performance.now(), args, existed: path !== undefined && existsSync(path) })
  }

  #callEnded(id: string, tool: string, result: unknown, isError: boolean): void {
    const call = this.#calls.get(id) ?? { startedAt: performance.now(), args: {}, existed: false }
    this.#calls.delete(id)
    const summary = summarise(tool, call.args, result, isError, this.#settings.cwd)
    this.#emit({
      type: 'tool_use_summary',
      tool: oneLine(tool),
      tool_use_id: id,
      summary,
      is_error: isError,
      duration_ms: whole(performance.now() - call.startedAt),
    })
    const path = (tool === 'write' || tool === 'edit') && !isError ? this.#path(call.args) : undefined
    if (path !== undefined) {
      this.#emit({ type: 'artifact', path, summary: call.existed ? 'Changed' : 'Created' })
    }
  }

  #path(args: unknown): string | undefined {
    const path = typeof args === 'object' && args !== null ? (args as Record<string, unknown>)['path'] : undefined
    if (typeof path !== 'string' || path === '') return undefined
    return resolve(this.#settings.cwd, path.startsWith('@') ? path.slice(1) : path)
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
