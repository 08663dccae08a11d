import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import { isRecord } from '../../lib/json.ts'
import { toolNames, type AgentEventOf } from '../../protocol/agent.ts'
import type { HarnessEvent, HarnessSettings } from '../harness.ts'
import { oneLine, pathOf, summarise } from '../summary.ts'

type Block = AgentEventOf<'assistant'>['message']['content'][number]

interface OpenCall {
  tool: string
  input: Record<string, unknown>
  startedAt: number
  existed: boolean
}

export interface ClaudeResult {
  subtype: string
  isError: boolean
  result: string
  turnCount: number
  costUsd: number | undefined
}

/** Claude's names that are not a capitalised name of the protocol. */
const otherNames: Record<string, string> = { multiedit: 'edit', notebookedit: 'edit' }

/** Maps the SDK's messages of one turn to events of the protocol. */
export class ClaudeEvents {
  readonly #settings: HarnessSettings
  readonly #emit: (event: HarnessEvent) => void
  readonly #calls = new Map<string, OpenCall>()
  sessionId: string | undefined
  result: ClaudeResult | undefined
  lastText = ''

  constructor(settings: HarnessSettings, emit: (event: HarnessEvent) => void) {
    this.#settings = settings
    this.#emit = emit
  }

  /** Takes any value: a newer SDK may send unknown messages. */
  take(message: unknown): void {
    if (!isRecord(message)) return
    const { type, session_id: sessionId } = message
    if (typeof sessionId === 'string' && sessionId !== '') this.sessionId = sessionId.slice(0, 200)
    if (type === 'assistant') this.#assistant(message)
    if (type === 'user') this.#toolResults(message)
    if (type === 'result') this.result = resultOf(message)
  }

  /** Ends the turn. A call without an end counts as failed. */
  end(): void {
    for (const id of [...this.#calls.keys()]) this.#callEnded(id, undefined, true)
  }

  #assistant(message: Record<string, unknown>): void {
    const inner = isRecord(message['message']) ? message['message'] : {}
    const content: Block[] = []
    for (const block of Array.isArray(inner['content']) ? (inner['content'] as unknown[]) : []) {
      const known = this.#block(block)
      if (known) content.push(known)
    }
    if (content.length === 0) return
    this.lastText = content.map((block) => (block.type === 'text' ? block.text : '')).join('') || this.lastText
    this.#emit({ type: 'assistant', message: { role: 'assistant', content, model: this.#settings.model.id } })
  }

  #block(block: unknown): Block | undefined {
    if (!isRecord(block)) return undefined
    const { type, text, id, name } = block
    if (type === 'text' && typeof text === 'string' && text !== '') return { type, text }
    if (type !== 'tool_use' || typeof id !== 'string' || typeof name !== 'string') return undefined
    const input = isRecord(block['input']) ? block['input'] : {}
    const tool = protocolToolName(name)
    const file = pathOf(input)
    const existed = file !== '' && existsSync(resolve(this.#settings.cwd, file))
    this.#calls.set(id, { tool, input, startedAt: performance.now(), existed })
    return { type, id: id.slice(0, 1000), name: tool, input }
  }

  #toolResults(message: Record<string, unknown>): void {
    const content = isRecord(message['message']) ? message['message']['content'] : undefined
    for (const block of Array.isArray(content) ? (content as unknown[]) : []) {
      if (!isRecord(block) || block['type'] !== 'tool_result') continue
      const id = block['tool_use_id']
      if (typeof id === 'string') this.#callEnded(id, block['content'], block['is_error'] === true)
    }
  }

  #callEnded(id: string, content: unknown, isError: boolean): void {
    const call = this.#calls.get(id)
    if (!call) return
    this.#calls.delete(id)
    const { tool, input, startedAt, existed } = call
    const result = { content: typeof content === 'string' ? [{ type: 'text', text: content }] : content }
    this.#emit({
      type: 'tool_use_summary',
      tool: oneLine(tool),
      tool_use_id: id.slice(0, 1000),
      summary: summarise(tool, input, result, isError, this.#settings.cwd),
      is_error: isError,
      duration_ms: Math.round(performance.now() - startedAt),
    })
    const file = pathOf(input)
    if (!isError && (tool === 'write' || tool === 'edit') && file !== '' && file.length <= 4096) {
      const path = resolve(this.#settings.cwd, file)
      this.#emit({ type: 'artifact', path, summary: existed ? 'Changed' : 'Created' })
    }
  }
}

/** `Bash` is `bash`. A tool that the protocol does not know keeps its name. */
function protocolToolName(name: string): string {
  const lower = name.toLowerCase()
  if ((toolNames as readonly string[]).includes(lower)) return lower
  return (Object.hasOwn(otherNames, lower) ? otherNames[lower] : name) ?? name
}

function resultOf(message: Record<string, unknown>): ClaudeResult {
  const { subtype, is_error: isError, result, num_turns: turns, total_cost_usd: cost } = message
  return {
    subtype: typeof subtype === 'string' ? subtype : '',
    isError: isError === true,
    result: typeof result === 'string' ? result : '',
    turnCount: typeof turns === 'number' && Number.isSafeInteger(turns) && turns >= 0 ? turns : 0,
    costUsd: typeof cost === 'number' && Number.isFinite(cost) && cost >= 0 ? cost : undefined,
  }
}
